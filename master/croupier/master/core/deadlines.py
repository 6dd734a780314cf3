"""Deadlines of the core. Each is a value that names its subject."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.master.core.effects import SessionId
from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId, TaskId


@dataclass(frozen=True, slots=True)
class OfferExpiry:
    """The lease of an offer ends."""

    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class FailoverTimeout:
    """A disconnected framework is removed."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class AgentTimeout:
    """A disconnected agent becomes unreachable."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class SessionSilence:
    """A session is suspected or closed if nothing was received on it."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class ResendTerminalUpdates:
    """The master sends unacknowledged terminal updates of its own to a framework again."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class StarvationCheck:
    """The master looks for starving frameworks."""


@dataclass(frozen=True, slots=True)
class PreemptionGrace:
    """The grace of a task that was asked to yield ends."""

    framework_id: FrameworkId
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class HoldReview:
    """A hold ends, or the rest of its time is written to its record again."""

    hold_id: HoldId


@dataclass(frozen=True, slots=True)
class GatheringReview:
    """The master looks at the gangs that wait, for which it may gather room."""


@dataclass(frozen=True, slots=True)
class ReservationReview:
    """A reservation is announced, begins or ends, or the grace of tasks in its way is over."""


Deadline = (
    OfferExpiry
    | FailoverTimeout
    | AgentTimeout
    | SessionSilence
    | ResendTerminalUpdates
    | StarvationCheck
    | PreemptionGrace
    | HoldReview
    | GatheringReview
    | ReservationReview
)
