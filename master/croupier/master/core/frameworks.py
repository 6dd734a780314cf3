"""A framework, as the master knows it.

Rule: each state holds the data that is valid in it. `TRANSITIONS` lists the legal moves; any other
move is an error and changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import ClassVar, Final

from croupier.master.core.effects import SessionId
from croupier.master.core.offers import Offer
from croupier.master.core.records import NO_OWNER, FrameworkRecord
from croupier.master.core.task_queues import TaskQueues
from croupier.master.core.tasks import Task
from croupier.model.errors import Conflict
from croupier.model.ids import FrameworkId, OfferId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal, PrincipalName
from croupier.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Connected:
    """The framework's session is open."""

    name: ClassVar = "connected"
    session: SessionId


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The framework has no session; it is removed after its failover timeout."""

    name: ClassVar = "disconnected"


@dataclass(frozen=True, slots=True)
class Removed:
    """The framework was removed; the master forgets it when the last of its tasks has ended."""

    name: ClassVar = "removed"


FrameworkState = Connected | Disconnected | Removed
STATE_NAMES: Final = (Connected.name, Disconnected.name, Removed.name)

TRANSITIONS: Final[dict[type, tuple[type, ...]]] = {
    Connected: (Disconnected,),
    Disconnected: (Connected, Removed),
    Removed: (),
}


@dataclass(slots=True)
class Framework:
    """A framework that subscribed, until it is removed and its tasks have ended.

    Attributes:
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
        owner: the only principal that may subscribe it; empty without authentication.
        principal: the caller of its present or latest session.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    state: FrameworkState = field(default_factory=Disconnected)
    client_id: str = ""
    hostname: str = ""
    webui_url: str = ""
    offer_lease_s: float = 10.0
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
    owner: PrincipalName = NO_OWNER
    principal: Principal = ANONYMOUS

    @property
    def session(self) -> SessionId | None:
        """Its open session, if there is one."""
        return self.state.session if isinstance(self.state, Connected) else None

    @property
    def is_disconnected(self) -> bool:
        """Whether it waits for its failover timeout."""
        return isinstance(self.state, Disconnected)

    @property
    def is_removed(self) -> bool:
        """Whether it was removed."""
        return isinstance(self.state, Removed)

    def move(self, state: FrameworkState) -> None:
        """Move to `state`, along `TRANSITIONS`.

        Raises:
            Conflict: if the framework cannot go there from its present state.
        """
        if not isinstance(state, TRANSITIONS[type(self.state)]):
            raise Conflict(f"framework {self.framework_id} cannot go from {self.state} to {state}")
        self.state = state

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
