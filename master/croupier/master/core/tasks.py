"""A task, as the master knows it.

Rule: the hold of a task changes only along `TRANSITIONS`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from croupier.master.allocator.pending_demand import Shape
from croupier.master.core.effects import SessionId
from croupier.master.core.holds import place_of
from croupier.master.core.records import NO_OWNER, QueuePlace, Requeue, TaskRecord
from croupier.master.core.usage_buckets import Account
from croupier.model.ids import NO_HOLD, AgentId, FrameworkId, HoldId, Role, TaskId
from croupier.model.principal import PrincipalName
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus
from croupier.model.task_transitions import moved
from croupier.model.value import value

# The role and the shape of submitted tasks.
Key = tuple[Role, Shape]
TaskKey = tuple[FrameworkId, TaskId]
# A slimmed task with more resources than this keeps cpus, mem, disk and gpus only.
MAX_SLIM_PARTS = 32
MAX_SLIM_MESSAGE = 256


class TaskHold(Enum):
    """The kind of claim that a task has on resources; it decides who sends the terminal update.

    A QUEUED task was submitted and has no agent. A LINED_UP task waits at an agent for the end
    of a task like it, and holds nothing; it may be placed elsewhere only after that agent has
    returned it. An ABSENT task is known only from the ledger until its agent returns; it is
    charged to its role and framework. An ACTIVE task holds resources of its agent. A RELEASED task
    holds nothing: it has ended, or its agent is unreachable. An ORPHANED task has ended and its
    agent has no record of it, so the master itself sends the terminal update.
    """

    QUEUED = "queued"
    LINED_UP = "lined up"
    ABSENT = "absent"
    ACTIVE = "active"
    RELEASED = "released"
    ORPHANED = "orphaned"


TRANSITIONS: dict[TaskHold, frozenset[TaskHold]] = {
    TaskHold.QUEUED: frozenset({TaskHold.LINED_UP, TaskHold.ACTIVE, TaskHold.ORPHANED}),
    TaskHold.LINED_UP: frozenset(
        {TaskHold.QUEUED, TaskHold.ACTIVE, TaskHold.RELEASED, TaskHold.ORPHANED}
    ),
    TaskHold.ABSENT: frozenset({TaskHold.ACTIVE, TaskHold.RELEASED}),
    TaskHold.ACTIVE: frozenset({TaskHold.RELEASED}),
    TaskHold.RELEASED: frozenset({TaskHold.ACTIVE, TaskHold.ORPHANED, TaskHold.QUEUED}),
    TaskHold.ORPHANED: frozenset(),
}


@value
class KillRequest:
    """A kill that the agent must execute, now or when it returns.

    Attributes:
        grace_ms: None for the task's own.
        due: when the agent kills the task by force, in seconds on the master's clock; None if the
            agent has not been ordered to.
    """

    grace_ms: int | None
    reason: Reason
    due: float | None = None


@value
class Delivery:
    """The updates of a task that were sent to its framework on one session.

    Attributes:
        sequence: the number of the last one.
        has_end: whether RECONCILE was answered with the terminal update, maybe ahead of others.
    """

    session: SessionId
    sequence: int = 0
    has_end: bool = False


@dataclass(slots=True)
class Task:
    """A task that was launched or submitted, until its last update is acknowledged.

    Attributes:
        agent_id: empty as long as it is queued; of a lined-up task, where it is.
        role: the role it was launched in, whatever roles its framework has now.
        status: the latest status, from the agent or from the master.
        since: when it was launched, or by its agent has started, or at the latest when it was found
            on its agent; seconds on the master's clock.
        submitted: when it was submitted to this master; None if it was not.
        placed: when this master launched it; None if it has not.
        started_ms: when it started, by its agent's clock, in milliseconds since the epoch; 0 if
            that is unknown. For people.
        sequence: the highest number of an update that its agent sent.
        acknowledged: the highest number that its framework acknowledged.
        kill: the requested kill until the task has ended; an absent agent receives it on return.
        delivery: None before the first update is sent.
        client_id: the run of its framework's program that launched it; empty if the task was
            found on its agent.
        seq: the number of the ACCEPT or SUBMIT, of that run.
        master_status: the durable status of the master's own: a terminal one, or UNREACHABLE
            though its agent may have returned since.
        is_unsent: whether its framework may have missed a status of the master's own.
        queued: its place in the queue of its framework, as long as it is queued or lined up.
        kind: its role and shape, if it was submitted to this master, and others may succeed it.
        is_recalled: whether it is lined up, and its agent was asked to return it.
        requeue: how it goes back into its queue, in place of an end; None: it does not.
        has_data: whether the latest status of its agent came with data or labels of an executor.
        begun_ms: when its agent began to start it, by the agent's clock; 0 if it has not.
        hold_id: the hold that it runs in; empty if it takes nothing from one.
        held: the part of its resources that it takes from the hold.
        account: the account of the usage ledger that it counts in, or counted in; None before.
    """

    info: TaskInfo
    framework_id: FrameworkId
    agent_id: AgentId
    role: Role
    status: TaskStatus
    since: float = 0.0
    hold: TaskHold = TaskHold.RELEASED
    sequence: int = 0
    acknowledged: int = 0
    kill: KillRequest | None = None
    delivery: Delivery | None = None
    client_id: str = ""
    seq: int = 0
    master_status: TaskStatus | None = None
    is_unsent: bool = False
    queued: QueuePlace | None = None
    submitted: float | None = None
    placed: float | None = None
    started_ms: int = 0
    kind: Key | None = None
    is_recalled: bool = False
    begun_ms: int = 0
    hold_id: HoldId = NO_HOLD
    held: Resources = NOTHING
    has_data: bool = False
    account: Account | None = None
    requeue: Requeue | None = None

    def __post_init__(self) -> None:
        self.started_ms = self.started_ms or _start_ms(self.status)

    @property
    def task_id(self) -> TaskId:
        """The task's id, unique within its framework."""
        return self.info.task_id

    @property
    def key(self) -> TaskKey:
        """What no other task has."""
        return self.framework_id, self.task_id

    @property
    def rest(self) -> Resources:
        """The resources that it takes from its agent, beside those from a hold."""
        return self.info.resources - self.held

    def parts(self) -> list[tuple[AgentId, Resources]]:
        """Return its resources by agent and hold."""
        parts = [(self.agent_id, self.rest)]
        return [*parts, (place_of(self.agent_id, self.hold_id), self.held)] if self.held else parts

    @property
    def state(self) -> TaskState:
        """The latest known state."""
        return self.status.state

    @property
    def has_updates(self) -> bool:
        """Whether its agent has sent an update of its present run."""
        return self.sequence > (0 if self.requeue is None else self.requeue.sequence)

    @property
    def is_orphan(self) -> bool:
        """Whether the master itself sends its terminal update."""
        return self.hold is TaskHold.ORPHANED

    @property
    def is_kept_back(self) -> bool:
        """Whether its framework is not told of its end: its gang may start again."""
        again = self.requeue
        if again is None or again.is_last or self.info.gang is None:
            return False
        return self.state.is_terminal and not self.is_orphan

    @property
    def is_queued(self) -> bool:
        """Whether it waits for the master to place it."""
        return self.hold is TaskHold.QUEUED

    @property
    def is_lined_up(self) -> bool:
        """Whether it waits at its agent for the end of a task like it."""
        return self.hold is TaskHold.LINED_UP

    @property
    def is_absent(self) -> bool:
        """Whether it is known from the ledger only."""
        return self.hold is TaskHold.ABSENT

    @property
    def is_active(self) -> bool:
        """Whether it holds resources of its agent."""
        return self.hold is TaskHold.ACTIVE

    @property
    def is_counted(self) -> bool:
        """Whether it counts as used by its role and framework."""
        return self.hold is TaskHold.ACTIVE or self.hold is TaskHold.ABSENT

    def record(self, is_acknowledged: bool = False) -> TaskRecord:
        """Return the task's record; `is_acknowledged`: its terminal status was acknowledged."""
        return TaskRecord(
            self.framework_id,
            self.info,
            self.agent_id,
            self.role,
            self.client_id,
            self.seq,
            None if self.kill is None else (self.kill.grace_ms, self.kill.reason),
            self.master_status,
            is_acknowledged,
            self.queued,
            self.hold_id,
            self.held,
            self.requeue,
        )

    def hold_as(self, hold: TaskHold) -> None:
        """Change its hold along `TRANSITIONS`."""
        assert hold in TRANSITIONS[self.hold], f"{self.task_id}: {self.hold} to {hold}"
        self.hold = hold

    def request_kill(self, grace_ms: int | None, reason: Reason) -> None:
        """Replace the requested kill; an order that was sent before stays due."""
        self.kill = KillRequest(grace_ms, reason, self.kill.due if self.kill else None)

    def sent_on(self, session: SessionId) -> Delivery:
        """Return the updates that were sent on this session."""
        if self.delivery is None or self.delivery.session != session:
            return Delivery(session)
        return self.delivery

    def master_made(self, state: TaskState, reason: Reason, message: str) -> TaskStatus:
        """Return a status made by the master, without a sequence number."""
        ids = (self.framework_id, self.task_id, self.agent_id)
        return TaskStatus(*ids, state, reason=reason, message=message)

    def move(self, status: TaskStatus) -> None:
        """Replace the status along the table of `model.task`.

        Raises Conflict if a task cannot go from its state to that one.
        """
        moved(self.task_id, self.state, status.state)
        self.started_ms = self.started_ms or _start_ms(status)
        self.status = status
        self.sequence = max(self.sequence, status.sequence)


def _start_ms(status: TaskStatus) -> int:
    return status.time_ms if status.state is TaskState.RUNNING else 0


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task at one moment; it never changes.

    Attributes:
        owner: of its framework, if the task has ended and was acknowledged; else empty.
        since: when this master got it, or found it; seconds on the master's clock.
        submitted, placed, started_ms: as in `Task`.
        hostname: of its agent; empty if that is unknown.
        hold_id: the hold that it runs in; empty if it takes nothing from one.
        requeues: how often it was requeued.
    """

    info: TaskInfo
    framework_id: FrameworkId
    role: Role
    status: TaskStatus
    owner: PrincipalName = NO_OWNER
    since: float = 0.0
    submitted: float | None = None
    placed: float | None = None
    started_ms: int = 0
    framework_name: str = ""
    hostname: str = ""
    hold_id: HoldId = NO_HOLD
    requeues: int = 0

    def slimmed(self) -> TaskSnapshot:
        """Return it without large fields that only its agent needs."""
        info, status = self.info.slimmed(), self.status
        if info.resources.parts > MAX_SLIM_PARTS:
            info = replace(info, resources=info.resources.everyday())
        if len(status.message) > MAX_SLIM_MESSAGE:
            status = replace(status, message=status.message[:MAX_SLIM_MESSAGE])
        is_slim = info is self.info and status is self.status
        return self if is_slim else replace(self, info=info, status=status)


class EndedTasks:
    """A bounded number of ended tasks, oldest first; the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        """Hold at most `most`; raises ValueError if that is negative."""
        if most < 0:
            raise ValueError(f"{most} ended tasks cannot be kept")
        self._most = most
        self._tasks: OrderedDict[TaskKey, TaskSnapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskSnapshot]:
        return iter(self._tasks.values())

    def get(self, framework_id: FrameworkId, task_id: TaskId) -> TaskSnapshot | None:
        """Return the task; None if it is unknown or forgotten."""
        return self._tasks.get((framework_id, task_id))

    def add(self, task: TaskSnapshot) -> None:
        """Add a task in place of an older one with the same id."""
        key = (task.framework_id, task.info.task_id)
        self._tasks[key] = task
        self._tasks.move_to_end(key)
        if len(self._tasks) > self._most:
            self._tasks.popitem(last=False)
