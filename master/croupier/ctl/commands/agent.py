"""`croupier agent` and `croupier drain`.

Rule: the master keeps the drain. If this command ends early, by Ctrl-C or because it loses the
master, it reports that the drain is still on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

from croupier.api.objects import as_object
from croupier.cli.connection import Master, connected, objects, run
from croupier.cli.flags import (
    CHANGE,
    LOCAL,
    AgentName,
    Change,
    GraceFlag,
    JsonFlag,
    MasterFlag,
    TimeoutFlag,
    WaitFlag,
    YesFlag,
)
from croupier.cli.signals import SIGNAL_BASE, EndSignals
from croupier.cli.terminal import View, print_lines
from croupier.ctl import operation
from croupier.ctl.app import app, family
from croupier.ctl.views.agent import agent_lines, drain_lines, name_of, state_text
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.v1 import operator_pb2 as pb

POLL_S = 0.5
# Limit for closing the connection to the master.
CLOSE_S = 1.0
# Exit codes of `croupier drain`.
DONE, TIMED_OUT, ENDED = 0, 3, 4

agent = family(
    "agent",
    "AGENT is an agent id, or a hostname if only one agent has it: croupier agents lists them.",
)


@agent.command(name="show")
def show(name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show one agent: state, resources, attributes, tasks, drain."""
    use = run(master, partial(operation.agent_use, named=name))
    operation.print_result(use.agent, *agent_lines(use.agent, use.affected), as_json=as_json)


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

    Exit codes: 0 the drain has begun, with --wait it is complete; 1 the master refused or cannot be
    reached; 2 wrong argument; 3 --timeout passed; 4 another operator ended the drain, or the agent
    has left the cluster; 130 Ctrl-C.

    Args:
        grace: The longest time between SIGTERM and SIGKILL of a task, such as 30s. A task's own
            grace period applies if it is shorter, or if this is not given. A second drain can only
            shorten the time.
        timeout: Stop waiting after this time, such as 10m; the drain continues.
    """
    if timeout is not None and not wait:
        raise InvalidRequest("--timeout is for --wait")
    if change.dry_run:
        preview = partial(operation.drain_preview, named=name, grace_ms=grace)
        operation.print_preview(change.master, preview, as_json=change.as_json)
        return DONE
    request = pb.DrainAgentRequest(agent=name, grace_ms=grace)
    view = as_object(operation.ask(change.master, "DrainAgent", request).agent)
    if wait:
        return asyncio.run(Follower(view, timeout, change).run())
    operation.print_result(view, *drain_lines(view), as_json=change.as_json)
    return DONE


@agent.command(name="deactivate")
def deactivate(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Withhold an agent from offers; its tasks keep running."""
    answer = operation.ask(master, "DeactivateAgent", pb.DeactivateAgentRequest(agent=name))
    _print_state(as_object(answer.agent), as_json=as_json)


@agent.command(name="reactivate")
def reactivate(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Offer a deactivated or drained agent again.

    Tasks that the agent was already ordered to kill still end; other tasks keep running.
    """
    answer = operation.ask(master, "ReactivateAgent", pb.ReactivateAgentRequest(agent=name))
    _print_state(as_object(answer.agent), as_json=as_json)


@agent.command(name="gone")
def gone(name: AgentName, /, *, yes: YesFlag = False, change: Change = CHANGE) -> None:
    """Declare an agent and all its tasks permanently lost.

    Use this if the machine will not come back. The master reports the agent's tasks as
    GONE_BY_OPERATOR, so that frameworks start them elsewhere. If the agent does return, it ends its
    tasks and gets a new id.
    """
    confirmed = operation.confirm(
        name, partial(operation.gone_preview, named=name), change, yes=yes
    )
    if confirmed is not None:
        request = pb.MarkAgentGoneRequest(agent=confirmed)
        view = as_object(operation.ask(change.master, "MarkAgentGone", request).agent)
        operation.print_result(view, f"{name_of(view)} is gone", as_json=change.as_json)


def _print_state(view: View, *, as_json: bool) -> None:
    operation.print_result(view, f"{name_of(view)} is {state_text(view)}", as_json=as_json)


class Follower:
    """Waits for the end of a drain, even while no master can be reached."""

    def __init__(self, agent: View, timeout_s: float | None, change: Change) -> None:
        self._agent, self._timeout_s, self._change = agent, timeout_s, change
        self._printed: object = None
        self._is_cut_off = False

    async def run(self) -> int:
        """Print a line for each change; return the exit code."""
        signals = EndSignals()
        following = asyncio.create_task(self._follow())
        interrupt = asyncio.create_task(signals.first())
        tasks = [following, interrupt]
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait(tasks, timeout=self._timeout_s, return_when=first)
            if following.done():
                code = following.result()
            else:
                print_lines(_still_on(self._agent), file=sys.stderr)
                code = SIGNAL_BASE + interrupt.result() if interrupt.done() else TIMED_OUT
        finally:
            signals.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if self._change.as_json:
            print(json.dumps(self._agent, indent=2))
        return code

    async def _follow(self) -> int:
        while True:
            try:
                async with connected(self._change.master) as master:
                    while True:
                        code = await self._poll(master)
                        if code is not None:
                            return code
                        await asyncio.sleep(POLL_S)
            except Unavailable as error:
                if not self._is_cut_off:
                    self._print(f"{error}; the drain continues; waiting for a master")
                self._is_cut_off = True
                await asyncio.sleep(POLL_S)

    async def _poll(self, master: Master) -> int | None:
        """Print changes; return the exit code if the drain is over."""
        wanted = self._agent["agent_id"]
        listed = objects(master, "agents")
        found = [each async for each in listed if each.agent.agent_id == wanted]
        self._is_cut_off = False
        if not found:
            self._print(f"{name_of(self._agent)} has left the cluster permanently")
            return ENDED
        self._agent = as_object(found[0])
        drain = self._agent["drain"]
        if drain is None:
            self._print(f"another operator has ended the drain of {name_of(self._agent)}")
            return ENDED
        progress = (drain["tasks_left"], [each["task_id"] for each in drain["blockers"]])
        if progress != self._printed:
            self._printed = progress
            self._print(*drain_lines(self._agent))
        return DONE if drain["done"] else None

    def _print(self, *lines: str) -> None:
        if not self._change.as_json:
            print_lines(*lines)


def _still_on(agent: View) -> str:
    undo = f"croupier agent reactivate {agent['agent_id']}"
    return f"croupier: the drain of {name_of(agent)} is still on; {undo} ends it"
