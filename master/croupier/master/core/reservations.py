"""A reservation of agents for a role, as the master knows it: once, or every day or week.

Rule: its state changes only along `TRANSITIONS`, and only forward in time. Its times are those of
the wall clock, in milliseconds since the epoch; the driver tells the core the time of day.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from math import gcd
from typing import Final

from croupier.master.core.records import ReservationRecord
from croupier.master.core.tasks import TaskKey
from croupier.model.attributes import Constraint, check_constraints
from croupier.model.errors import InvalidRequest
from croupier.model.ids import (
    NO_RESERVATION,
    AgentId,
    ReservationId,
    Role,
    check_id,
)
from croupier.model.reservation import DAY_MS, PERIODS
from croupier.model.resources import NOTHING, Resources

MAX_RESERVATIONS: Final = 1_000
MAX_AGENTS: Final = 10_000
# The longest reservation, and the longest time before its first begin.
MAX_LENGTH_MS: Final = 366 * DAY_MS
MAX_NOTICE_MS: Final = 30 * DAY_MS


class ReservationState(Enum):
    """Where a reservation is.

    WAITING: it binds nobody yet. ANNOUNCED: its notice has begun: others are dealt only what ends
    in time. ACTIVE: its agents are for its role alone. ENDED: the master forgets it.
    """

    WAITING = "waiting"
    ANNOUNCED = "announced"
    ACTIVE = "active"
    ENDED = "ended"


TRANSITIONS: Final[dict[ReservationState, tuple[ReservationState, ...]]] = {
    ReservationState.WAITING: (ReservationState.ANNOUNCED, ReservationState.ENDED),
    ReservationState.ANNOUNCED: (ReservationState.ACTIVE, ReservationState.ENDED),
    ReservationState.ACTIVE: (ReservationState.WAITING, ReservationState.ENDED),
    ReservationState.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class Times:
    """From when to when, and after which time again; all in milliseconds.

    `every_ms`: 0 if it does not recur.
    """

    from_ms: int
    until_ms: int
    every_ms: int = 0

    def overlaps(self, other: Times) -> bool:
        """Return whether any occurrences of both overlap, now or later."""
        if not other.every_ms:
            return self._overlaps_once(other)
        if not self.every_ms:
            return other._overlaps_once(self)
        # The distances between occurrences are all multiples of this, away from each other.
        step = gcd(self.every_ms, other.every_ms)
        ahead = (other.from_ms - self.from_ms) % step
        return ahead < self.until_ms - self.from_ms or step - ahead < (
            other.until_ms - other.from_ms
        )

    def after(self, wall_ms: int) -> Times:
        """Return the first occurrence that ends after this time; it recurs."""
        missed = max(0, (wall_ms - self.until_ms) // self.every_ms + 1)
        later = missed * self.every_ms
        return replace(self, from_ms=self.from_ms + later, until_ms=self.until_ms + later)

    def _overlaps_once(self, other: Times) -> bool:
        """Return whether an occurrence overlaps one that does not recur."""
        first = self.after(other.from_ms) if self.every_ms else self
        return first.from_ms < other.until_ms and other.from_ms < first.until_ms


@dataclass(frozen=True, slots=True)
class NewReservation:
    """What an operator wants to reserve.

    Attributes:
        agents: how many agents.
        least: the scalars that each of them has at least in all.
        constraints: all must hold on each of them.
        notice_ms: how long before it begins it may bind others.
    """

    role: Role
    agents: int
    times: Times
    least: Resources = NOTHING
    constraints: tuple[Constraint, ...] = ()
    notice_ms: int = 0
    reservation_id: ReservationId = NO_RESERVATION

    def at(self, times: Times) -> NewReservation:
        """Return the same at other times."""
        return replace(self, times=times)

    def check(self, wall_ms: int) -> None:
        """Raise InvalidRequest if it can never be made."""
        times = self.times
        length_ms = times.until_ms - times.from_ms
        if self.reservation_id:
            check_id("reservation", self.reservation_id)
        if not 1 <= self.agents <= MAX_AGENTS:
            raise InvalidRequest(f"the number of agents must be between 1 and {MAX_AGENTS}")
        if not 0 < length_ms <= MAX_LENGTH_MS:
            raise InvalidRequest("the end must be after the begin, by at most 366 days")
        if not wall_ms < times.until_ms <= wall_ms + 2 * MAX_LENGTH_MS:
            raise InvalidRequest("the end must be later than now, by at most two years")
        if times.every_ms not in PERIODS.values():
            raise InvalidRequest("a reservation recurs every day or every week, or not at all")
        if times.every_ms and length_ms > times.every_ms:
            raise InvalidRequest("a reservation that recurs ends before it begins again")
        if not 0 <= self.notice_ms <= MAX_NOTICE_MS:
            raise InvalidRequest("the notice must be between 0 and 30 days")
        if self.least.ranges or self.least.sets:
            raise InvalidRequest("the least of an agent is made of scalars, such as cpus:8")
        check_constraints(self.constraints)


@dataclass(slots=True)
class Reservation:
    """A reservation that has not ended.

    Attributes:
        wanted: its `times` are those of the present or the next occurrence.
        made_by: the principal of the operator; only agents that it may operate are chosen.
        agent_ids: the agents that were chosen; fewer than wanted if others were lost.
        asked: the tasks of others that were asked to end, and when they are killed.
    """

    reservation_id: ReservationId
    wanted: NewReservation
    made_by: str
    agent_ids: tuple[AgentId, ...]
    state: ReservationState = ReservationState.WAITING
    asked: dict[TaskKey, float] = field(default_factory=dict)

    @property
    def role(self) -> Role:
        """The role that it is for, with those below it."""
        return self.wanted.role

    @property
    def times(self) -> Times:
        """The present or the next occurrence."""
        return self.wanted.times

    @property
    def announced_ms(self) -> int:
        """When it begins to bind others."""
        return self.times.from_ms - self.wanted.notice_ms

    @property
    def missing(self) -> int:
        """How many agents it lacks."""
        return self.wanted.agents - len(self.agent_ids)

    @property
    def binds(self) -> bool:
        """Whether it binds others now."""
        return self.state in (ReservationState.ANNOUNCED, ReservationState.ACTIVE)

    def move(self, state: ReservationState) -> None:
        """Change its state along `TRANSITIONS`."""
        assert state in TRANSITIONS[self.state], f"{self.reservation_id}: {self.state} to {state}"
        self.state = state

    def record(self) -> ReservationRecord:
        """Return its record; its state follows from the time of day."""
        wanted = self.wanted
        return ReservationRecord(
            self.reservation_id,
            wanted.role,
            wanted.agents,
            wanted.times.from_ms,
            wanted.times.until_ms,
            wanted.times.every_ms,
            wanted.notice_ms,
            wanted.least,
            wanted.constraints,
            self.made_by,
            self.agent_ids,
        )


def recovered(record: ReservationRecord) -> Reservation:
    """Return the reservation of a record."""
    wanted = NewReservation(
        record.role,
        record.agents,
        Times(record.from_ms, record.until_ms, record.every_ms),
        record.least,
        record.constraints,
        record.notice_ms,
        record.reservation_id,
    )
    return Reservation(record.reservation_id, wanted, record.made_by, record.agent_ids)
