"""What a framework may ask for, off the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.model.demand import Demand
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, OfferId, Role, TaskId
from croupier.model.task import TaskInfo


@dataclass(frozen=True, slots=True)
class MalformedTask:
    """A task of an ACCEPT that could not be read.

    Attributes:
        place: among all tasks of the call, from 0.
        message: what is wrong with it.
    """

    place: int
    task_id: TaskId
    message: str


@dataclass(frozen=True, slots=True)
class Accept:
    """Launch tasks on offers of one agent, in one role; what is left over is declined.

    Attributes:
        refuse_s: for what is left over; None is the default.
        malformed: tasks that could not be read, in order; each is refused.
    """

    offer_ids: tuple[OfferId, ...]
    tasks: tuple[TaskInfo, ...]
    refuse_s: float | None = None
    malformed: tuple[MalformedTask, ...] = ()

    @property
    def all_tasks(self) -> list[TaskInfo | MalformedTask]:
        """The tasks as the framework listed them: verdicts are in this order."""
        listed: list[TaskInfo | MalformedTask] = list(self.tasks)
        for each in self.malformed:
            listed.insert(each.place, each)
        return listed


@dataclass(frozen=True, slots=True)
class Decline:
    """Pass."""

    offer_ids: tuple[OfferId, ...]
    refuse_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UpdateDemand:
    """Replace all that the framework says it wants; none is whole remainders."""

    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class Suppress:
    """Offer me nothing, in these roles or in all if there are none."""

    roles: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class Revive:
    """Offer me everything again, in these roles or in all if there are none."""

    roles: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class Kill:
    """End a task."""

    task_id: TaskId
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Updates up to and with each sequence have been handled.

    Attributes:
        more: whether the rest of the call follows under the same number; only the last part
            has a verdict.
    """

    updates: tuple[tuple[AgentId, TaskId, int], ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Tell me the state of these tasks, or of all if there are none.

    Attributes:
        more: as in `Acknowledge`.
    """

    task_ids: tuple[TaskId, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Teardown:
    """End the framework for good."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A call that could not be read.

    Attributes:
        call: what it was meant to be.
        task_ids: those of its tasks, if it was an ACCEPT.
    """

    call: str
    error: CroupierError
    task_ids: tuple[TaskId, ...] = ()


Call = (
    Accept
    | Decline
    | UpdateDemand
    | Suppress
    | Revive
    | Kill
    | Acknowledge
    | Reconcile
    | Teardown
    | Malformed
)


# Names in metrics and logs; the digests of event logs cover them, so they never change.
_NAMES: Final[dict[type, str]] = {
    Accept: "accept",
    Decline: "decline",
    UpdateDemand: "update_demand",
    Suppress: "suppress",
    Revive: "revive",
    Kill: "kill",
    Acknowledge: "acknowledge",
    Reconcile: "reconcile",
    Teardown: "teardown",
}


def call_name(call: Call) -> str:
    """Return the call's name in metrics and logs, such as `update_demand`."""
    return call.call if isinstance(call, Malformed) else _NAMES[type(call)]
