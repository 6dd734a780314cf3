"""`croupier agent` and `croupier drain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from croupier.cli.flags import (
    CHANGE,
    LOCAL,
    AgentName,
    Change,
    GraceFlag,
    JsonFlag,
    MasterFlag,
    Target,
    TimeoutFlag,
    WaitFlag,
    YesFlag,
)
from croupier.ctl.app import app, family

if TYPE_CHECKING:
    from google.protobuf.message import Message

agent = family(
    "agent",
    "Show, drain, deactivate and reactivate an agent, or declare it gone.\n\n"
    "AGENT is an agent id, or a hostname if only one agent has it: croupier agents lists them.",
)


@agent.command(name="show")
def show(name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show one agent: state, resources, attributes, tasks, drain."""
    from functools import partial

    from croupier.cli.connection import run
    from croupier.ctl.operation import print_result
    from croupier.ctl.previews import agent_use
    from croupier.ctl.views.agent import agent_lines

    use = run(master, partial(agent_use, named=name))
    print_result(use.agent, *agent_lines(use.agent, use.affected), as_json=as_json)


@app.command(name="drain")
@agent.command(name="drain")
def drain(
    name: AgentName,
    /,
    *,
    grace: GraceFlag = None,
    wait: WaitFlag = False,
    timeout: TimeoutFlag = None,
    change: Change = CHANGE,
) -> int:
    """Kill the tasks of an agent and withhold it from offers, until it is reactivated.

    The drain continues if this command ends, and after restarts of masters and agents. It is
    complete when the agent has no tasks left; frameworks need not acknowledge the terminal updates.

    Exit codes: 0 done; 1 the master refused or cannot be reached; 2 wrong argument; 3 --timeout
    passed; 4 another operator ended the drain, or the agent has left the cluster; 130 Ctrl-C.

    Parameters
    ----------
    grace
        The longest time between SIGTERM and SIGKILL of a task, such as 30s. A task's own grace
        period applies if it is shorter, or if this is not given. A second drain can only shorten
        the time.
    timeout
        Stop waiting after this time, such as 10m; the drain stays on.
    """
    from croupier.ctl.draining import DrainOptions, drain_agent

    return drain_agent(name, DrainOptions(grace, wait, timeout), change)


@agent.command(name="deactivate")
def deactivate(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Withhold an agent from offers; its tasks keep running."""
    from croupier.v1.operator_pb2 import DeactivateAgentRequest

    _change(master, "DeactivateAgent", DeactivateAgentRequest(agent=name), as_json)


@agent.command(name="reactivate")
def reactivate(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Offer a deactivated or drained agent again.

    Tasks that the agent was already ordered to kill still end; other tasks keep running.
    """
    from croupier.v1.operator_pb2 import ReactivateAgentRequest

    _change(master, "ReactivateAgent", ReactivateAgentRequest(agent=name), as_json)


@agent.command(name="gone")
def gone(
    name: AgentName,
    /,
    *,
    yes: YesFlag = False,
    change: Change = CHANGE,
) -> None:
    """Declare an agent and all its tasks permanently lost.

    Use this if the machine will not come back. The master reports the agent's tasks as
    GONE_BY_OPERATOR, so that frameworks start them elsewhere. If the agent does return, it ends its
    tasks and gets a new id.
    """
    from functools import partial

    from croupier.api.objects import as_object
    from croupier.ctl.operation import ask, confirm, print_result
    from croupier.ctl.previews import gone_preview
    from croupier.ctl.views.agent import name_of
    from croupier.v1.operator_pb2 import MarkAgentGoneRequest

    preview = partial(gone_preview, named=name)
    confirmed = confirm(name, preview, change, yes=yes)
    if confirmed is not None:
        request = MarkAgentGoneRequest(agent=confirmed)
        view = as_object(ask(change.master, "MarkAgentGone", request).agent)
        print_result(view, f"{name_of(view)} is gone", as_json=change.as_json)


def _change(master: Target, method: str, request: Message, as_json: bool) -> None:
    from croupier.api.objects import as_object
    from croupier.ctl.operation import ask, print_result
    from croupier.ctl.views.agent import name_of, state_text

    view = as_object(ask(master, method, request).agent)
    print_result(view, f"{name_of(view)} is {state_text(view)}", as_json=as_json)
