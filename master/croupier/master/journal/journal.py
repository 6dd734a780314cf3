"""The ring of events of one term.

Rule: the ring is bounded, and an event costs about a microsecond until a reader asks for it. A
reader holds only its position, so a slow one costs nothing; it gets a reset for what it missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from croupier.master.core import facts
from croupier.master.core.agents import Agent
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.journal.entry import (
    Happening,
    JournalEntry,
    OffersLapsed,
    Preempting,
    TermBegan,
)
from croupier.master.journal.lines import MOST_QUOTED, OMITTED
from croupier.master.log import FactThrottle
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role

KEPT: Final = 10_000
# Offers that lapse within this time make one event of each framework.
LAPSED_S: Final = 1.0
# Roles of a framework that are kept with an event.
MOST_ROLES: Final = 16


class Journal:
    """Records facts, and wakes readers.

    Attributes:
        epoch: of the term.
        kept: how many events are remembered.
        last: the number of the latest event.
        ended: why the term ended; None while it lasts.
    """

    def __init__(self, state: State, clock: Clock, kept: int = KEPT) -> None:
        """Remember the last `kept` events."""
        self.epoch, self.last = state.epoch, 0
        self.ended: CroupierError | None = None
        self.kept, self._clock = kept, clock
        self._ring: list[JournalEntry | None] = [None] * kept
        self._frameworks: Mapping[FrameworkId, Framework] = state.frameworks
        self._agents: Mapping[AgentId, Agent] = state.agents
        # Also those that the state has just forgotten.
        self._known = dict(state.frameworks)
        self._throttle = FactThrottle()
        self._waiting: list[asyncio.Future[None]] = []
        self._lapsed: dict[FrameworkId, list[int]] = {}
        self._lapsed_at = 0.0
        self._add(TermBegan(state.master_id), (), "")

    @property
    def first(self) -> int:
        """The number of the oldest event that is remembered."""
        return max(1, self.last - self.kept + 1)

    def happened(self, fact: facts.Fact) -> None:
        """Record a fact that the core reported."""
        if isinstance(fact, facts.TaskMoved):
            self._add_task(fact)
        elif isinstance(fact, facts.OfferEnded):
            if fact.outcome in ("rescinded", "expired"):
                self._lapse(fact)
        elif type(fact) not in OMITTED and self._throttle.is_due(fact):
            self._add_other(fact)

    def entry(self, number: int) -> JournalEntry:
        """Return the event of a number from `first` to `last`."""
        found = self._ring[number % self.kept]
        assert found is not None
        assert found.number == number
        return found

    def first_within(self, seconds: float) -> int:
        """Return the number of the first event of the last `seconds`. O(log n)."""
        since = self._clock.now() - seconds
        low, high = self.first, self.last + 1
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).at < since:
                low = middle + 1
            else:
                high = middle
        return low

    async def wait(self, number: int, timeout_s: float) -> None:
        """Wait until there is an event after `number`, or the term ends, or the time is over."""
        self._record_lapsed()
        if self.last > number or self.ended is not None:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        alarm = loop.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def close(self, error: CroupierError) -> None:
        """End all readers with `error`; only the first one counts."""
        if self.ended is None:
            self.ended = error
            self._wake_all()

    def _add_task(self, fact: facts.TaskMoved) -> None:
        if len(fact.message) > MOST_QUOTED:
            fact = replace(fact, message=fact.message[: MOST_QUOTED + 1])
        framework = self._frameworks.get(fact.framework_id)
        if framework is None:
            self._add(fact, *self._scope(fact.framework_id))
            return
        task = framework.tasks.get(fact.task_id)
        roles = framework.roles if task is None else (task.role,)
        self._add(fact, roles, framework.owner)

    def _add_other(self, fact: facts.Fact) -> None:
        framework_id: FrameworkId | None = getattr(fact, "framework_id", None)
        if framework_id is None:
            self._add(_shortened(fact), (), "")
            return
        if isinstance(fact, facts.FrameworkJoined) and framework_id in self._frameworks:
            self._known[framework_id] = self._frameworks[framework_id]
        roles, owner = self._scope(framework_id)
        if isinstance(fact, facts.PreemptionBegun):
            self._add(_outlined(fact), (fact.role,), owner)
            return
        if isinstance(fact, facts.PreemptionEnded) and framework_id in self._frameworks:
            task = self._frameworks[framework_id].tasks.get(fact.task_id)
            roles = roles if task is None else (task.role,)
        self._add(_shortened(fact), roles, owner)
        if isinstance(fact, facts.FrameworkLeft) and fact.why == "removed":
            self._known.pop(framework_id, None)

    def _scope(self, framework_id: FrameworkId) -> tuple[tuple[Role, ...], str]:
        """Return the roles and the owner of a framework."""
        found = self._frameworks.get(framework_id) or self._known.get(framework_id)
        return ((), "") if found is None else (found.roles[:MOST_ROLES], found.owner)

    def _names(self, what: Happening) -> dict[str, str]:
        framework_id = FrameworkId(getattr(what, "framework_id", ""))
        agent_id = AgentId(getattr(what, "agent_id", ""))
        framework = self._frameworks.get(framework_id) or self._known.get(framework_id)
        agent = self._agents.get(agent_id)
        names: dict[str, str] = {} if framework is None else {framework_id: framework.name}
        return names if agent is None else names | {agent_id: agent.hostname}

    def _add(self, what: Happening, roles: tuple[Role, ...], owner: str) -> None:
        clock = self._clock
        self.last = number = self.last + 1
        names = self._names(what)
        entry = JournalEntry(number, clock.now(), clock.wall_ms(), what, roles, owner, names)
        self._ring[number % self.kept] = entry
        if self._waiting:
            self._wake_all()

    def _lapse(self, fact: facts.OfferEnded) -> None:
        now = self._clock.now()
        if not self._lapsed:
            self._lapsed_at = now
        counts = self._lapsed.setdefault(fact.framework_id, [0, 0])
        counts[fact.outcome == "expired"] += 1
        if now - self._lapsed_at >= LAPSED_S:
            self._record_lapsed()

    def _record_lapsed(self) -> None:
        """Record the offers that lapsed a while ago."""
        if self._lapsed and self._clock.now() - self._lapsed_at >= LAPSED_S:
            lapsed, self._lapsed = self._lapsed, {}
            for framework_id, (rescinded, expired) in lapsed.items():
                what = OffersLapsed(framework_id, rescinded, expired)
                self._add(what, *self._scope(framework_id))

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            _wake(waiter)


def _outlined(fact: facts.PreemptionBegun) -> Preempting:
    """Return the fact without the ids of its victims, which may be many."""
    lost = (len(fact.tasks), len(fact.offers))
    message = fact.message[: MOST_QUOTED + 1]
    return Preempting(fact.framework_id, fact.role, fact.agent_id, fact.room, *lost, message)


def _shortened(fact: facts.Fact) -> facts.Fact:
    """Return the fact with at most `MOST_QUOTED` characters, and one, of each text."""
    match fact:
        case facts.AgentLeft() | facts.AgentRefused() | facts.FrameworkLeft():
            return replace(fact, message=fact.message[: MOST_QUOTED + 1])
        case facts.AgentUnhealthy():
            return replace(fact, problems=fact.problems[: MOST_QUOTED + 1])
        case facts.FrameworkJoined():
            return replace(fact, name=fact.name[: MOST_QUOTED + 1])
        case facts.FrameworkTornDown():
            return replace(fact, name=fact.name[: MOST_QUOTED + 1])
        case facts.RoleChanged():
            before, after = fact.before[: MOST_QUOTED + 1], fact.after[: MOST_QUOTED + 1]
            return replace(fact, before=before, after=after)
        case _:
            return fact


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
