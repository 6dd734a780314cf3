"""The command that drains an agent, and follows how far that is.

Rule: the drain is the master's, and is durable there: whatever ends this command, be it Ctrl-C
or the loss of the master, leaves the drain on, and says so.

Exit codes: 0 the drain is on, with `--wait` done; 1 the master refused or cannot be reached;
2 a bad argument; 3 `--timeout` is over and tasks are left; 4 the drain was ended by another, or
the agent has left; 128 + N if signal N ended it, as 130 for Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from dataclasses import dataclass

from croupier.ctl import views
from croupier.ctl.agent_change import stake_of, told
from croupier.ctl.agent_text import blocker_lines, many, named, progress_line, task_lines
from croupier.ctl.connection import Master, connected
from croupier.ctl.pages import all_agents
from croupier.ctl.run.progress import SIGNAL_BASE
from croupier.ctl.signals import EndSignals
from croupier.ctl.target import Target
from croupier.ctl.terminal import print_lines
from croupier.ctl.views import View
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.task import MAX_GRACE_MS
from croupier.v1 import operator_pb2 as pb

POLL_S = 0.5
# To hang up on the master.
GOODBYE_S = 1.0
DONE, TIMED_OUT, ENDED = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Wish:
    """How an agent is to be drained; times in seconds.

    Attributes:
        grace_s: the longest that a task is given; None: its own.
        timeout_s: how long to wait; None: for ever.
    """

    grace_s: float | None = None
    wait: bool = False
    timeout_s: float | None = None
    dry_run: bool = False
    as_json: bool = False


def drain_agent(target: Target, agent: str, wish: Wish) -> int:
    """Drain the agent and print how far that is; the exit code.

    Raises:
        InvalidRequest: if an argument cannot be.
        Refused: if several agents have that hostname.
        NotFound: if there is no such agent.
    """
    request = drain_request(agent, wish)
    if wish.dry_run:
        asyncio.run(_foretell(target, agent, wish))
        return DONE
    view = asyncio.run(_ask(target, request))
    if not wish.wait:
        _tell(view, wish)
        return DONE
    return asyncio.run(Follower(target, view, wish).run())


def drain_request(agent: str, wish: Wish) -> pb.DrainAgentRequest:
    """The request that asks for the drain.

    Raises:
        InvalidRequest: if an argument cannot be.
    """
    request = pb.DrainAgentRequest(agent=agent)
    if wish.grace_s is not None:
        if math.isnan(wish.grace_s) or not 0 <= wish.grace_s * 1000 <= MAX_GRACE_MS:
            raise InvalidRequest("--grace must be between 0 seconds and 24 hours")
        request.grace_ms = round(wish.grace_s * 1000)
    if wish.timeout_s is not None and not wish.wait:
        raise InvalidRequest("--timeout is for --wait")
    return request


class Follower:
    """Waits for the end of a drain, through the loss of masters too."""

    def __init__(self, target: Target, agent: View, wish: Wish) -> None:
        """Of this agent, as it stood when the drain began."""
        self._target, self._agent, self._wish = target, agent, wish
        self._told: object = None
        self._is_cut_off = False

    async def run(self) -> int:
        """Print a line for each change; the exit code."""
        signals = EndSignals()
        following = asyncio.create_task(self._follow())
        interrupt = asyncio.create_task(signals.asked())
        tasks = [following, interrupt]
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait(tasks, timeout=self._wish.timeout_s, return_when=first)
            if following.done():
                code = following.result()
            else:
                print_lines(_still_on(self._agent), file=sys.stderr)
                code = SIGNAL_BASE + interrupt.result() if interrupt.done() else TIMED_OUT
        finally:
            signals.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=GOODBYE_S)
        if self._wish.as_json:
            print(json.dumps(self._agent, indent=2))
        return code

    async def _follow(self) -> int:
        while True:
            try:
                async with connected(self._target) as master:
                    while True:
                        code = await self._look(master)
                        if code is not None:
                            return code
                        await asyncio.sleep(POLL_S)
            except Unavailable as error:
                if not self._is_cut_off:
                    self._say(f"{error}; the drain is on all the same, and this waits for a master")
                self._is_cut_off = True
                await asyncio.sleep(POLL_S)

    async def _look(self, master: Master) -> int | None:
        """Print what has changed; the exit code if there is nothing to wait for any more."""
        listed = await all_agents(master)
        self._is_cut_off = False
        wanted = self._agent["agent_id"]
        found = [each for each in listed if each.agent.agent_id == wanted]
        if not found:
            self._say(f"{named(self._agent)} has left the cluster for good")
            return ENDED
        self._agent = views.agent_view(found[0])
        drain = self._agent["drain"]
        if drain is None:
            self._say(f"somebody else has ended the drain of {named(self._agent)}")
            return ENDED
        news = (drain["tasks_left"], [each["task_id"] for each in drain["blockers"]])
        if news != self._told:
            self._told = news
            self._say(progress_line(self._agent), *blocker_lines(self._agent))
        return DONE if drain["done"] else None

    def _say(self, *lines: str) -> None:
        if not self._wish.as_json:
            print_lines(*lines)


async def _ask(target: Target, request: pb.DrainAgentRequest) -> View:
    async with connected(target) as master:
        return views.agent_view((await master.ask(master.service.DrainAgent, request)).agent)


async def _foretell(target: Target, agent: str, wish: Wish) -> None:
    async with connected(target) as master:
        stake = await stake_of(master, agent)
    if wish.as_json:
        print(json.dumps({"dry_run": True, **told(stake)}, indent=2))
        return
    own = "its own grace" if wish.grace_s is None else f"at most {wish.grace_s:g} s"
    number = many(len(stake.tasks), "task")
    print_lines(
        f"nothing was changed; {named(stake.agent)} would be offered to nobody, and {number}"
    )
    print(f"would be ended, each with {own}:" if stake.tasks else "would have to end")
    print_lines(*task_lines(stake.tasks, stake.frameworks))


def _tell(agent: View, wish: Wish) -> None:
    if wish.as_json:
        print(json.dumps(agent, indent=2))
        return
    print_lines(progress_line(agent), *blocker_lines(agent))


def _still_on(agent: View) -> str:
    undo = f"croupier agent reactivate {agent['agent_id']}"
    return f"croupier: the drain of {named(agent)} is still on; {undo} ends it"
