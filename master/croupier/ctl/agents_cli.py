"""`croupier drain` and `croupier agent`: flags and help; the work is in the modules beside this.

Rule: what a command needs is imported within it, so that `--help` stays fast.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.target import LOCAL, MasterFlag
from croupier.model.durations import parse_duration
from croupier.process.cli import make_app, read_by

JsonFlag = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for programs.")]
DryRunFlag = Annotated[
    bool,
    Parameter(name="--dry-run", negative="", help="Change nothing; list the tasks it is about."),
]
GraceFlag = Annotated[float | None, read_by(parse_duration, name="--grace")]
TimeoutFlag = Annotated[float | None, read_by(parse_duration, name="--timeout")]
WaitFlag = Annotated[bool, Parameter(name="--wait", negative="")]

agent = make_app(
    "agent",
    "Show, drain, deactivate and reactivate an agent, or declare it gone.\n\n"
    "AGENT is its id, or its hostname if no other agent has that: croupier agents lists them.",
    reads_environment=False,
)
drain = make_app(
    "drain", "End the tasks of an agent and offer it no more.", reads_environment=False
)


@agent.command(name="show")
def agent_show(name: str, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show all that is known of one agent."""
    from croupier.ctl.agent_change import show_agent

    show_agent(master, name, as_json=as_json)


@agent.command(name="drain")
@drain.default
def agent_drain(
    name: str,
    /,
    *,
    grace: GraceFlag = None,
    wait: WaitFlag = False,
    timeout: TimeoutFlag = None,
    dry_run: DryRunFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> int:
    """End the tasks of an agent and offer it no more, until it is reactivated.

    The drain is the master's: it goes on if this command ends, and outlives masters and agents.
    It is done when no task is left; it does not wait for frameworks to acknowledge the ends.
    Exits with 0; 1 if the master refuses or cannot be reached; 3 if --timeout is over, and 4 if
    somebody else ended the drain or the agent has left for good; 2 for a bad argument; 130 after
    Ctrl-C.

    Parameters
    ----------
    name
        Its id, or its hostname if no other agent has that.
    grace
        The longest that a task is given to end by itself, such as 30s; its own if that is less,
        or if this is not given. Another drain may make it shorter, not longer.
    wait
        Follow the drain, a line for each change, until it is done.
    timeout
        Wait no longer than this, such as 10m; the drain stays on.
    """
    from croupier.ctl.draining import Wish, drain_agent

    return drain_agent(master, name, Wish(grace, wait, timeout, dry_run, as_json))


@agent.command(name="deactivate")
def agent_deactivate(
    name: str, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Offer an agent no more; its tasks run on."""
    from croupier.ctl.agent_change import deactivate_agent

    deactivate_agent(master, name, as_json=as_json)


@agent.command(name="reactivate")
def agent_reactivate(
    name: str, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Offer an agent again that was deactivated or drained.

    Tasks that were told to end do so; those that had not heard of it yet are spared.
    """
    from croupier.ctl.agent_change import reactivate_agent

    reactivate_agent(master, name, as_json=as_json)


@agent.command(name="gone")
def agent_gone(
    name: str,
    /,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    dry_run: DryRunFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Declare an agent and all its tasks dead, for ever.

    For a machine that will not come back: its tasks are reported GONE_BY_OPERATOR, so that
    frameworks start them elsewhere. If it runs all the same and returns, it ends its tasks and
    comes back as a new agent.

    Parameters
    ----------
    name
        Its id, or its hostname if no other agent has that.
    yes
        Do not ask for confirmation.
    """
    from croupier.ctl.agent_change import mark_agent_gone

    mark_agent_gone(master, name, is_sure=yes, dry_run=dry_run, as_json=as_json)
