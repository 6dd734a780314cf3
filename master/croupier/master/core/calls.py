"""Calls of frameworks, as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from croupier.model.demand import ANYWHERE, Demand, Placement
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, HoldId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo
from croupier.model.value import value


@value
class MalformedTask:
    """A task of an ACCEPT or a SUBMIT that could not be parsed.

    Attributes:
        place: its position among all tasks of the call, from 0.
        unit_id: the group or gang that was to be launched with it; empty if it is in none.
    """

    place: int
    task_id: TaskId
    message: str
    unit_id: str = ""


@value
class MakeHold:
    """Hold resources of the offers.

    Attributes:
        ttl_ms: time until the hold ends; 0: it ends only when it is released.
        for_role: whether it is held for the role of the offers, not for the framework alone.
        volume: whether it is a volume: a directory of that size, which is never offered. Its disk
            is that of an offered hold of the same owner, if one has room for it.
    """

    hold_id: HoldId
    resources: Resources
    ttl_ms: int = 0
    for_role: bool = False
    volume: bool = False


@value
class Accept:
    """Make holds and launch tasks on offers of one agent, in one role; the remainder is declined.

    Attributes:
        refuse_s: filter of the remainder; None: the default.
        malformed: tasks that could not be parsed, in order; each is refused.
        holds: are made before any task is launched, which takes from them first.
        releases: holds that end after that.
    """

    offer_ids: tuple[OfferId, ...]
    tasks: tuple[TaskInfo, ...]
    refuse_s: float | None = None
    malformed: tuple[MalformedTask, ...] = ()
    holds: tuple[MakeHold, ...] = ()
    releases: tuple[HoldId, ...] = ()

    @property
    def all_tasks(self) -> list[TaskInfo | MalformedTask]:
        """The tasks in the framework's order, which is that of their verdicts."""
        return _in_order(self.tasks, self.malformed)


@value
class Submit:
    """Queue tasks, which the master places.

    Attributes:
        role: one of the framework's; None: its first.
        placement: the agents on which they may run.
        malformed: tasks that could not be parsed, in order; each is refused.
    """

    tasks: tuple[TaskInfo, ...]
    role: Role | None = None
    placement: Placement = ANYWHERE
    malformed: tuple[MalformedTask, ...] = ()

    @property
    def all_tasks(self) -> list[TaskInfo | MalformedTask]:
        """The tasks in the framework's order, which is that of their verdicts."""
        return _in_order(self.tasks, self.malformed)


@value
class Withdraw:
    """End tasks that are still queued."""

    task_ids: tuple[TaskId, ...]


@value
class SendMessage:
    """Send a message to an executor, at most once."""

    task_id: TaskId
    data: bytes


@value
class Decline:
    """Decline offers."""

    offer_ids: tuple[OfferId, ...]
    refuse_s: float | None = None
    reason: str = ""


@value
class UpdateDemand:
    """Replace the declared demand; without any, offers are whole remainders."""

    demands: tuple[Demand, ...]


@value
class Suppress:
    """Stop offers, in these roles or in all if there are none."""

    roles: tuple[Role, ...] = ()


@value
class Revive:
    """Resume offers and clear filters, in these roles or in all if there are none."""

    roles: tuple[Role, ...] = ()


@value
class Kill:
    """End a task."""

    task_id: TaskId
    grace_ms: int | None = None


@value
class Acknowledge:
    """Acknowledge updates, each up to and with its sequence.

    `more`: whether the rest of the call follows under the same number; only the last part has a
    verdict.
    """

    updates: tuple[tuple[AgentId, TaskId, int], ...]
    more: bool = False


@value
class Reconcile:
    """Send the latest status of these tasks, of all if none; `more` as in `Acknowledge`."""

    task_ids: tuple[TaskId, ...]
    more: bool = False


@value
class Teardown:
    """Remove the framework."""


@value
class Release:
    """End holds."""

    hold_ids: tuple[HoldId, ...]


@value
class Malformed:
    """A call that could not be parsed.

    `task_ids`: the tasks of an ACCEPT, a SUBMIT or a WITHDRAW.
    """

    call: str
    error: CroupierError
    task_ids: tuple[TaskId, ...] = ()


Call = (
    Accept
    | Submit
    | Withdraw
    | SendMessage
    | Decline
    | UpdateDemand
    | Suppress
    | Revive
    | Kill
    | Acknowledge
    | Reconcile
    | Teardown
    | Release
    | Malformed
)

# Names in metrics and logs; the digests of event logs cover them, so they never change.
_NAMES: Final[dict[type, str]] = {
    Accept: "accept",
    Submit: "submit",
    Withdraw: "withdraw",
    SendMessage: "send_message",
    Decline: "decline",
    UpdateDemand: "update_demand",
    Suppress: "suppress",
    Revive: "revive",
    Kill: "kill",
    Acknowledge: "acknowledge",
    Reconcile: "reconcile",
    Teardown: "teardown",
    Release: "release",
}


def _in_order(
    tasks: tuple[TaskInfo, ...], malformed: tuple[MalformedTask, ...]
) -> list[TaskInfo | MalformedTask]:
    listed: list[TaskInfo | MalformedTask] = list(tasks)
    for each in malformed:
        listed.insert(each.place, each)
    return listed


def units(tasks: Iterable[TaskInfo | MalformedTask]) -> Iterator[list[TaskInfo | MalformedTask]]:
    """Yield each task alone, and tasks of one group or gang that follow each other together."""

    def unit_of(placed: tuple[int, TaskInfo | MalformedTask]) -> str | int:
        place, task = placed
        return task.unit_id or place

    for _, unit in groupby(enumerate(tasks), unit_of):
        yield [task for _, task in unit]


def call_name(call: Call) -> str:
    """Return the call's name in metrics and logs, such as `update_demand`."""
    return call.call if isinstance(call, Malformed) else _NAMES[type(call)]
