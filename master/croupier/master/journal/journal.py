"""The ring of events of one term. The text of an event is made when a reader first asks for it.

Rule: the ring is bounded, and an event costs about a microsecond until a reader asks for it. A
reader holds only its position, so a slow one costs nothing; it gets a reset for what it missed.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from croupier.master.core import facts
from croupier.master.core.agents import Agent
from croupier.master.core.facts import Fact
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.log import FactThrottle
from croupier.master.services.visibility import Visibility
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role

# Characters of one text that a peer chose, such as a message, in a line.
MOST_QUOTED: Final = 300
# Facts that are no events of their own: too many, or of no interest to people.
OMITTED: Final = frozenset(
    {
        facts.OfferMade,
        facts.OfferEnded,
        facts.CallAnswered,
        facts.UpdateHandled,
        facts.ExecutorMessaged,
        facts.UpdateAcknowledged,
        facts.TaskLined,
    }
)
# Fields of facts that may be long.
_TEXTS: Final = ("message", "problems", "name", "before", "after")
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")

KEPT: Final = 10_000
# Offers that lapse within this time make one event of each framework.
LAPSED_S: Final = 1.0
# Roles of a framework that are kept with an event.
MOST_ROLES: Final = 16


@dataclass(frozen=True, slots=True)
class TermBegan:
    """The master began to lead. Every caller may view this, so it has nothing else."""

    master_id: str


@dataclass(frozen=True, slots=True)
class OffersLapsed:
    """Offers of one framework that were rescinded or expired within about a second."""

    framework_id: FrameworkId
    rescinded: int
    expired: int


@dataclass(frozen=True, slots=True)
class Preempting:
    """As `facts.PreemptionBegun`, with numbers of tasks and offers: their ids may be many."""

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    room: str
    tasks: int
    offers: int
    message: str


Happening = Fact | TermBegan | OffersLapsed | Preempting


@dataclass(slots=True, eq=False)
class JournalEntry:
    """An event.

    Attributes:
        number: counts up within the term, from 1.
        at: when it was recorded, in seconds on the master's monotonic clock.
        wall_ms: the same in milliseconds since 1970, for people.
        roles: the roles in which it may be viewed; empty if it is about no framework.
        owner: the principal that may view it without a rule; empty if there is none.
        names: of its framework and of its agent's machine, by their ids.
        line: what readers get, once it was made; see `lines`.
    """

    number: int
    at: float
    wall_ms: int
    what: Happening
    roles: tuple[Role, ...]
    owner: str
    names: Mapping[str, str]
    line: object = None


def may_view(entry: JournalEntry, visible: Visibility) -> bool:
    """Return whether a caller may view the event: its framework in a role, or its agent."""
    what = entry.what
    if isinstance(what, TermBegan):
        return True
    if entry.roles:
        return any(visible.in_role(role, entry.owner) for role in entry.roles)
    role: Role | None = getattr(what, "role", None)
    if role is not None:
        return visible.has_role(role)
    is_of_agent = not hasattr(what, "framework_id")
    agent_id: AgentId | None = getattr(what, "agent_id", None) if is_of_agent else None
    # An agent without an id, or a framework that is forgotten: for those who may view all.
    return visible.has_agent(agent_id) if agent_id else visible.has_all


def id_text(epoch: int, number: int) -> str:
    """Return the id of an event: EPOCH-NUMBER."""
    return f"{epoch}-{number}"


def parse_id(text: str) -> tuple[int, int]:
    """Return the epoch and the number of an event's id; raises InvalidRequest if it is none."""
    epoch, _, number = text.partition("-")
    if not _ID.fullmatch(text):
        raise InvalidRequest("not the id of an event: it has the form EPOCH-NUMBER, such as 3-1042")
    return int(epoch), int(number)


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
        # Readers wait for it until there is another event; None if no reader does.
        self._waiting: asyncio.Event | None = None
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
        since, numbers = self._clock.now() - seconds, range(self.first, self.last + 1)
        return self.first + bisect_left(numbers, since, key=lambda number: self.entry(number).at)

    async def wait(self, number: int, timeout_s: float) -> None:
        """Wait until there is an event after `number`, or the term ends, or the time is over."""
        self._record_lapsed()
        if self.last > number or self.ended is not None:
            return
        waiting = self._waiting = self._waiting or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await waiting.wait()

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
            lost = len(fact.tasks), len(fact.offers)
            message = fact.message[: MOST_QUOTED + 1]
            what = Preempting(framework_id, fact.role, fact.agent_id, fact.room, *lost, message)
            self._add(what, (fact.role,), owner)
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
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None


def _shortened(fact: facts.Fact) -> facts.Fact:
    """Return the fact with at most `MOST_QUOTED` characters, and one, of each text."""
    texts = {name: getattr(fact, name) for name in _TEXTS if hasattr(fact, name)}
    return replace(fact, **{name: text[: MOST_QUOTED + 1] for name, text in texts.items()})
