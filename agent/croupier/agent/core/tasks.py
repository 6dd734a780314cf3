"""One task on this agent, the phase that its process is in, and its unacknowledged updates.

A live task is STARTING, RUNNING or KILLING. Its phase holds what the agent knows of the process: a
task without a process has no pid.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from croupier.model.agent_orders import LaunchTask
from croupier.model.executor import news_size
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus

FIRST_RESEND_S = 10.0
LAST_RESEND_S = 600.0
# Unacknowledged updates of one task, and the bytes of their data and labels: beyond, an agent drops
# those of an executor that are no end. A master refuses 100, and messages of 2 MiB.
MAX_WAITING = 50
MAX_WAITING_DATA = 256 * 1024
# The states of a task in an executor, in the order in which it goes through them.
IN_EXECUTOR = (TaskState.STARTING, TaskState.RUNNING, TaskState.KILLING)
# A task's id is unique within its framework only, and so is a group's.
Key = tuple[FrameworkId, TaskId]
GroupKey = tuple[FrameworkId, str]
# Framework, role and resources.
Place = tuple[FrameworkId, Role, Resources]


class PendingUpdates:
    """The unacknowledged updates of one task."""

    __slots__ = ("_resend_s", "sequence", "waiting")

    def __init__(self, sequence: int = 0) -> None:
        """Begin after `sequence`, the number of the last update of the task's earlier runs."""
        self.waiting: deque[TaskStatus] = deque()
        """Unacknowledged updates, oldest first."""
        self.sequence = sequence
        """The number of the latest update."""
        self._resend_s = FIRST_RESEND_S

    def add(self, status: TaskStatus) -> None:
        """Add the next update."""
        assert status.sequence == self.sequence + 1
        self.sequence = status.sequence
        self.waiting.append(status)

    def restore(self, status: TaskStatus) -> None:
        """Add an update of an earlier life; a gap means that the updates before it are lost."""
        if status.sequence != self.sequence + 1:
            self.waiting.clear()
        self.sequence = status.sequence
        self.waiting.append(status)

    def acknowledge(self, sequence: int) -> int:
        """Drop all updates up to `sequence`; return how many there were."""
        before = len(self.waiting)
        while self.waiting and self.waiting[0].sequence <= sequence:
            self.waiting.popleft()
        return before - len(self.waiting)

    def has_room(self, size: int) -> bool:
        """Return whether one more update of an executor that is not an end may wait."""
        if len(self.waiting) >= MAX_WAITING:
            return False
        held = sum(news_size(each.data, each.labels) for each in self.waiting)
        return held + size <= MAX_WAITING_DATA

    def restart_resending(self) -> float:
        """Return the shortest wait until the coming resend, in seconds."""
        self._resend_s = FIRST_RESEND_S
        return self._resend_s

    def put_off_resending(self) -> float:
        """Return twice the last wait until the coming resend, in seconds."""
        self._resend_s = min(self._resend_s * 2, LAST_RESEND_S)
        return self._resend_s

    def check(self) -> None:
        """Assert the rule."""
        numbers = [status.sequence for status in self.waiting]
        assert numbers == list(range(self.sequence - len(numbers) + 1, self.sequence + 1))
        assert FIRST_RESEND_S <= self._resend_s <= LAST_RESEND_S


@dataclass(frozen=True, slots=True)
class KillOrder:
    """A request to end a task; SIGKILL follows SIGTERM after `grace_ms`.

    Attributes:
        message: its cause, for people; empty if the reason says everything.
    """

    reason: Reason
    grace_ms: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Starting:
    """`Spawn` has no answer yet, so a process may or may not exist.

    Attributes:
        run: the name of the process, unique over all lives of the agent.
        kill: set if the task is to end as soon as the answer is known.
    """

    run: str
    kill: KillOrder | None = None


@dataclass(frozen=True, slots=True)
class Adopting:
    """An earlier life of the agent launched the run, and `Adopt` has no answer yet."""

    run: str
    kill: KillOrder | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """The process runs."""

    run: str
    pid: int


@dataclass(frozen=True, slots=True)
class Killing:
    """The process was asked to end."""

    run: str
    pid: int
    kill: KillOrder


@dataclass(frozen=True, slots=True)
class Ended:
    """There is no process; the task holds no resources, and waits for acknowledgements."""


@dataclass(frozen=True, slots=True)
class InExecutor:
    """An executor runs the task, or is to run it; the task has no process of its own.

    Attributes:
        is_sent: whether the executor may have got the launch.
        kill: the request to end the task.
        may_have_ended: whether the record of its end may be lost; the executor has not told yet
            whether it has the task.
    """

    is_sent: bool
    kill: KillOrder | None = None
    may_have_ended: bool = False


Process = Starting | Adopting | Running | Killing
Live = Process | InExecutor
Phase = Live | Ended


@dataclass(slots=True)
class Executor:
    """The stream of an executor, and the live tasks in it.

    Attributes:
        connection: the number of its stream; None while it is not registered.
        has_registered: whether it has registered before; one of an earlier life counts as so.
    """

    connection: int | None = None
    has_registered: bool = False
    tasks: dict[Key, None] = field(default_factory=dict)


@dataclass(slots=True)
class LocalTask:
    """A task, from its launch until its last update is acknowledged.

    Attributes:
        role: the role that the master charges it to; the next master needs it.
        proof: of its launch, in hexadecimal digits; the next master may need it.
        status: the latest update.
        began_at: when its process started, in seconds on the agent's clock; None if it has not.
    """

    framework_id: FrameworkId
    info: TaskInfo
    role: Role
    phase: Phase
    status: TaskStatus
    updates: PendingUpdates = field(default_factory=PendingUpdates)
    proof: str = ""
    began_at: float | None = None

    @property
    def key(self) -> Key:
        """The task's id and its framework's."""
        return (self.framework_id, self.info.task_id)

    @property
    def group(self) -> GroupKey | None:
        """Its group; None if it is in none."""
        return None if self.info.group is None else (self.framework_id, self.info.group_id)

    @property
    def state(self) -> TaskState:
        """The state that the latest update reports."""
        return self.status.state

    @property
    def is_live(self) -> bool:
        """Whether the task has not ended, and so holds resources."""
        return not isinstance(self.phase, Ended)

    @property
    def executor_key(self) -> Key | None:
        """The key of the executor that runs it; None if the task is a process of its own."""
        return (self.framework_id, self.info.executor_id) if self.info.executor_id else None

    @property
    def place(self) -> Place:
        """What a lined-up task must have in common with it to succeed it."""
        return (self.framework_id, self.role, self.info.resources)

    @property
    def run(self) -> str:
        """The name of the process; empty without one, as of a task that has ended."""
        return "" if isinstance(self.phase, Ended | InExecutor) else self.phase.run

    @property
    def pid(self) -> int:
        """The pid of the process, even after its end; 0 while it is not known."""
        return self.phase.pid if isinstance(self.phase, Running | Killing) else self.status.pid

    def age_ms(self, at: float) -> int:
        """Return how long its process has run at a time of the agent's clock; 0 if it has not."""
        return 0 if self.began_at is None else max(0, round((at - self.began_at) * 1000))

    @property
    def kill(self) -> KillOrder | None:
        """The request to end the task, if there is one."""
        return None if isinstance(self.phase, Running | Ended) else self.phase.kill

    def check(self) -> None:
        """Assert every invariant of a task."""
        self.updates.check()
        assert self.status.sequence == self.updates.sequence
        if self.updates.waiting:
            assert self.updates.waiting[-1] is self.status
        match self.phase:
            case Ended():
                assert self.state.is_terminal
                # The task is kept only because its framework may not know its end yet.
                assert self.updates.waiting
            case Adopting():
                assert not self.state.is_terminal
            case Starting():
                assert self.state is TaskState.STARTING
            case Running():
                assert self.state is TaskState.RUNNING
            case Killing():
                assert self.state is TaskState.KILLING
            case InExecutor():
                assert self.info.executor_id
                assert self.state in IN_EXECUTOR


def place_of(order: LaunchTask) -> Place:
    """Return what a task must have in common with the one of an order, which may succeed it."""
    return (order.framework_id, order.role, order.task.resources)


class Due(Enum):
    """What happens to a task when a deadline of it has passed."""

    KILL = "its grace is over"
    TERMINATE = "its time to save its state is over"
    RESEND = "its updates were not acknowledged in time"
    COMPLETION = "it has run for the longest time that it may take"
    REGISTRATION = "the executor has not registered in time"


Deadline = tuple[Due, Key]
