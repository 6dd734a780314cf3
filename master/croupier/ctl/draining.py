"""Draining an agent, and following the progress of a drain.

Rule: the master keeps the drain. If this command ends early, by Ctrl-C or because it loses the
master, it reports that the drain is still on.

Exit codes: 0 the drain is on, with `--wait` done; 1 the master refused or cannot be reached;
2 wrong argument; 3 `--timeout` passed with tasks left; 4 another operator ended the drain, or the
agent left; 128 + N if signal N ended the command, such as 130 for Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from functools import partial

from croupier.api.objects import as_object
from croupier.cli.amounts import View
from croupier.cli.connection import Master, connected, messages
from croupier.cli.flags import Change
from croupier.cli.signals import SIGNAL_BASE, EndSignals
from croupier.cli.terminal import print_lines
from croupier.ctl.operation import ask, print_preview, print_result
from croupier.ctl.previews import drain_preview
from croupier.ctl.views.agent import drain_lines, name_of
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.v1 import operator_pb2 as pb

POLL_S = 0.5
# Limit for closing the connection to the master.
CLOSE_S = 1.0
DONE, TIMED_OUT, ENDED = 0, 3, 4


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """The flags of `croupier drain` beside those of every change.

    Attributes:
        grace_ms: the longest grace period of a task; None means each task's own.
        timeout_s: the limit of `wait`; None means no limit.
    """

    grace_ms: int | None = None
    wait: bool = False
    timeout_s: float | None = None


def drain_agent(agent: str, options: DrainOptions, change: Change) -> int:
    """Drain the agent and print the progress; return the exit code.

    Raises:
        InvalidRequest: if there is a timeout and no `wait`.
        CroupierError: if there is no such agent, or several have that hostname.
    """
    if options.timeout_s is not None and not options.wait:
        raise InvalidRequest("--timeout is for --wait")
    if change.dry_run:
        preview = partial(drain_preview, named=agent, grace_ms=options.grace_ms)
        print_preview(change.master, preview, as_json=change.as_json)
        return DONE
    request = pb.DrainAgentRequest(agent=agent, grace_ms=options.grace_ms)
    view = as_object(ask(change.master, "DrainAgent", request).agent)
    if options.wait:
        return asyncio.run(Follower(view, options.timeout_s, change).run())
    print_result(view, *drain_lines(view), as_json=change.as_json)
    return DONE


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
                    self._print(f"{error}; the drain stays on; waiting for a master")
                self._is_cut_off = True
                await asyncio.sleep(POLL_S)

    async def _poll(self, master: Master) -> int | None:
        """Print changes; return the exit code if the drain is over."""
        wanted = self._agent["agent_id"]
        listed = messages(master, "agents")
        found = [each async for page in listed for each in page if each.agent.agent_id == wanted]
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
