"""A framework, as the master knows it.

Rule: `TRANSITIONS` lists the legal moves; any other move is an error and changes nothing. Only a
connected framework has a session.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from croupier.master.core.effects import SessionId
from croupier.master.core.offers import Offer
from croupier.master.core.records import NO_OWNER, FrameworkRecord
from croupier.master.core.task_queues import TaskQueues
from croupier.master.core.tasks import Task
from croupier.master.core.usage_buckets import Account, Labels, account_label
from croupier.model.errors import Conflict
from croupier.model.executor import ALL_EXECUTORS_MESSAGES, FRAMEWORK_MESSAGES
from croupier.model.ids import FrameworkId, OfferId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal, PrincipalName
from croupier.model.token_bucket import Bucket
from croupier.model.verdict import Verdict


class FrameworkState(Enum):
    """State of a framework; the value is its name for operators.

    CONNECTED: its session is open. DISCONNECTED: it has no session; it is removed after its
    failover timeout. REMOVED: it was removed; the master forgets it when the last of its tasks has
    ended.
    """

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    REMOVED = "removed"


TRANSITIONS: Final[dict[FrameworkState, tuple[FrameworkState, ...]]] = {
    FrameworkState.CONNECTED: (FrameworkState.DISCONNECTED,),
    FrameworkState.DISCONNECTED: (FrameworkState.CONNECTED, FrameworkState.REMOVED),
    FrameworkState.REMOVED: (),
}


@dataclass(slots=True)
class Framework:
    """A framework that subscribed, until it is removed and its tasks have ended.

    Attributes:
        session: its open session, if there is one.
        connected_at: time at which its latest session began, in monotonic seconds; None before
            the first one.
        roles: those it subscribes to now; a task stays in the role that it was launched in.
        client_id: identifies the run of its program; call numbers restart with each run.
        last_seq: the number of the last call that was decided.
        verdicts: verdicts that may not have arrived, by call number.
        used_ids: ids of ended tasks, oldest first; none may be used again.
        epoch: the number of runs of its program.
        earlier_clients: latest earlier runs, oldest first; none of them may connect again.
        accepted: tasks that ACCEPTs of this run launched under an earlier master, by call number.
        retained: acknowledged tasks in the ledger that answer a repeated ACCEPT, by call number.
        is_unrecorded: whether it came with an id that was not in the ledger; it may have tasks
            that are not in the ledger either.
        ended: the number of ended tasks that were not acknowledged.
        done, failed: of its tasks that were acknowledged under this master: all, and those that
            failed.
        queues: its submitted tasks that have no agent yet; they are in `tasks` too.
        groups: the known tasks of each group, by id.
        gangs: the known tasks of each gang, by id.
        owner: the only principal that may subscribe it; empty without authentication.
        principal: the caller of its present or latest session.
        messages: bounds its messages to executors.
        said: bounds the messages of all of its executors.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    state: FrameworkState = FrameworkState.DISCONNECTED
    client_id: str = ""
    hostname: str = ""
    webui_url: str = ""
    offer_lease_s: float = 10.0
    session: SessionId | None = None
    last_received: float = 0.0
    connected_at: float | None = None
    last_seq: int = 0
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    used_ids: OrderedDict[TaskId, None] = field(default_factory=OrderedDict)
    epoch: int = 1
    earlier_clients: tuple[str, ...] = ()
    accepted: dict[int, set[TaskId]] = field(default_factory=dict)
    retained: dict[int, list[TaskId]] = field(default_factory=dict)
    is_unrecorded: bool = False
    ended: int = 0
    done: int = 0
    failed: int = 0
    queues: TaskQueues = field(default_factory=TaskQueues)
    groups: dict[str, dict[TaskId, Task]] = field(default_factory=dict)
    gangs: dict[str, dict[TaskId, Task]] = field(default_factory=dict)
    owner: PrincipalName = NO_OWNER
    principal: Principal = ANONYMOUS
    messages: Bucket = field(default_factory=lambda: Bucket(*FRAMEWORK_MESSAGES, 0.0))
    said: Bucket = field(default_factory=lambda: Bucket(*ALL_EXECUTORS_MESSAGES, 0.0))

    def account(self, role: Role, labels: Labels = ()) -> Account:
        """Return the account of its offers in a role, or of its tasks with these labels."""
        return Account(role, self.name, self.owner, account_label(labels) if labels else "")

    @property
    def is_removed(self) -> bool:
        """Whether it was removed."""
        return self.state is FrameworkState.REMOVED

    def move(self, state: FrameworkState, session: SessionId | None = None) -> None:
        """Move to `state`, along `TRANSITIONS`; `session`: the one of a connected framework.

        Raises Conflict if the framework cannot go there from its present state.
        """
        if state not in TRANSITIONS[self.state]:
            raise Conflict(f"framework {self.framework_id} cannot go from {self.state} to {state}")
        self.state, self.session = state, session

    def record(self) -> FrameworkRecord:
        """Return its record for the ledger."""
        return FrameworkRecord(
            self.framework_id,
            self.name,
            self.roles,
            self.failover_timeout_s,
            self.is_removed,
            self.client_id,
            self.epoch,
            self.is_unrecorded,
            self.earlier_clients,
            self.owner,
        )

    def unit_of(self, task: Task) -> list[Task]:
        """Return all known tasks of the task's group, or the task alone."""
        group_id = task.info.group_id
        return list(self.groups[group_id].values()) if group_id else [task]

    def queued_with(self, task: Task) -> list[Task]:
        """Return what is queued as one with a task: its group or gang, by rank, or it alone."""
        if task.info.gang is None:
            return self.unit_of(task)
        members = self.gangs[task.info.gang_id].values()
        return sorted(members, key=lambda each: each.info.gang.rank if each.info.gang else 0)

    def add_task(self, task: Task) -> None:
        """Add a task, and to its group or gang if it is in one."""
        self.tasks[task.task_id] = task
        if task.info.group is not None:
            self.groups.setdefault(task.info.group_id, {})[task.task_id] = task
        if task.info.gang is not None:
            self.gangs.setdefault(task.info.gang_id, {})[task.task_id] = task

    def remove_task(self, task: Task) -> None:
        """Remove a task; its group or gang ends with the last one."""
        del self.tasks[task.task_id]
        if unit_id := task.info.unit_id:
            units = self.groups if task.info.group is not None else self.gangs
            del units[unit_id][task.task_id]
            if not units[unit_id]:
                del units[unit_id]

    def has_used(self, task_id: TaskId) -> bool:
        """Return whether a task of this id runs or has run."""
        return task_id in self.tasks or task_id in self.used_ids

    def remember_used(self, task_id: TaskId, limit: int) -> None:
        """Refuse the id from now on; forget the oldest id beyond `limit`."""
        self.used_ids[task_id] = None
        if len(self.used_ids) > limit:
            self.used_ids.popitem(last=False)

    def may_repeat_accept(self, task: Task) -> bool:
        """Return whether the verdict on the task's ACCEPT may not have arrived."""
        is_own = bool(task.client_id) and task.client_id == self.client_id
        return is_own and (task.seq in self.verdicts or task.seq in self.accepted)
