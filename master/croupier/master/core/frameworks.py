"""A framework, as the master knows it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from croupier.master.core.effects import SessionId
from croupier.master.core.offers import Offer
from croupier.master.core.tasks import Task
from croupier.model.errors import Conflict
from croupier.model.ids import FrameworkId, OfferId, Role, TaskId
from croupier.model.verdict import Verdict

# So many older runs of a program are known again if one comes back.
FORMER_RUNS = 16


class FrameworkState(Enum):
    """Where a framework stands. A REMOVED one only waits for its tasks to end."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    REMOVED = "removed"


TRANSITIONS: dict[FrameworkState, frozenset[FrameworkState]] = {
    FrameworkState.CONNECTED: frozenset(FrameworkState),
    FrameworkState.DISCONNECTED: frozenset({FrameworkState.CONNECTED, FrameworkState.REMOVED}),
    FrameworkState.REMOVED: frozenset(),
}


@dataclass(slots=True)
class Framework:
    """A framework that subscribed, until it is removed and its tasks have ended.

    Attributes:
        roles: those it subscribes to now; a task stays in the role that it was launched in.
        client_id: the run of its program; call numbers start again with each.
        last_seq: the number of the last call that was decided.
        verdicts: answers that may not have arrived yet, by call number.
        spent: ids of tasks that have ended, oldest first; none may be used again.
        epoch: how many runs of its program there were.
        earlier_clients: latest earlier runs, oldest first; none of them may connect again.
        accepted: what ACCEPTs of this run an earlier master took, by call number: the tasks
            that it launched.
        unseen: tasks of which all is done but that the verdict on their ACCEPT may still be
            asked for, by the number of that.
        is_unrecorded: the ledger did not know of it when it came, so it may have tasks that the
            ledger does not know either.
        takes_reconciled: as its SUBSCRIBE said.
        ended: how many of its tasks have ended and were not acknowledged.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    state: FrameworkState = FrameworkState.DISCONNECTED
    session: SessionId | None = None
    client_id: str = ""
    hostname: str = ""
    webui_url: str = ""
    offer_lease_s: float = 10.0
    last_heard: float = 0.0
    last_seq: int = 0
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    spent: OrderedDict[TaskId, None] = field(default_factory=OrderedDict)
    epoch: int = 1
    earlier_clients: tuple[str, ...] = ()
    accepted: dict[int, set[TaskId]] = field(default_factory=dict)
    unseen: dict[int, list[TaskId]] = field(default_factory=dict)
    is_unrecorded: bool = False
    takes_reconciled: bool = True
    ended: int = 0

    def move(self, state: FrameworkState) -> None:
        """Go to `state`.

        Raises:
            Conflict: if a framework cannot go there from where it is.
        """
        if state not in TRANSITIONS[self.state]:
            raise Conflict(f"framework {self.framework_id} cannot go from {self.state} to {state}")
        self.state = state

    def has_used(self, task_id: TaskId) -> bool:
        """Whether a task of this id runs or has run."""
        return task_id in self.tasks or task_id in self.spent

    def spend(self, task_id: TaskId, limit: int) -> None:
        """Remember that the id was used; of more than `limit` the oldest is forgotten."""
        self.spent[task_id] = None
        if len(self.spent) > limit:
            self.spent.popitem(last=False)

    def may_ask_again(self, task: Task) -> bool:
        """Whether the verdict on the task's ACCEPT may not have arrived."""
        is_ours = bool(task.client_id) and task.client_id == self.client_id
        return is_ours and (task.seq in self.verdicts or task.seq in self.accepted)

    def verdicts_arrived(self, seq: int) -> list[TaskId]:
        """Forget the answers up to `seq`; the tasks of which nothing is left to be asked."""
        while self.verdicts and (first := next(iter(self.verdicts))) <= seq:
            del self.verdicts[first]
        for number in [each for each in self.accepted if each <= seq]:
            del self.accepted[number]
        return [
            task_id
            for number in [each for each in self.unseen if each <= seq]
            for task_id in self.unseen.pop(number)
        ]

    def begin_run(self, client_id: str) -> list[TaskId]:
        """A new run of its program begins: call numbers start again.

        What is returned is as by `verdicts_arrived`.
        """
        if self.client_id:
            self.earlier_clients = (*self.earlier_clients, self.client_id)[-FORMER_RUNS:]
        self.client_id, self.last_seq = client_id, 0
        self.verdicts.clear()
        self.accepted.clear()
        ended = [task_id for ids in self.unseen.values() for task_id in ids]
        self.unseen.clear()
        return ended
