"""One task on this agent, and the phase that its process is in.

A live task is STARTING, RUNNING or KILLING. Its phase holds what the agent knows of the process: a
task without a process has no pid.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.agent.core.pending_updates import PendingUpdates
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus

# A task's id is unique within its framework only.
Key = tuple[FrameworkId, TaskId]
# Framework, role and resources.
Place = tuple[FrameworkId, Role, Resources]


@dataclass(frozen=True, slots=True)
class KillOrder:
    """A request to end a task.

    Attributes:
        grace_ms: the time between SIGTERM and SIGKILL.
    """

    reason: Reason
    grace_ms: int


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


Live = Starting | Adopting | Running | Killing
Phase = Live | Ended


@dataclass(slots=True)
class LocalTask:
    """A task, from its launch until its last update is acknowledged.

    Attributes:
        role: the role that the master charges it to; the next master needs it.
        proof: of its launch, in hexadecimal digits; the next master may need it.
        status: the latest update.
    """

    framework_id: FrameworkId
    info: TaskInfo
    role: Role
    phase: Phase
    status: TaskStatus
    updates: PendingUpdates = field(default_factory=PendingUpdates)
    proof: str = ""

    @property
    def key(self) -> Key:
        """The task's id and its framework's."""
        return (self.framework_id, self.info.task_id)

    @property
    def state(self) -> TaskState:
        """The state that the latest update reports."""
        return self.status.state

    @property
    def is_live(self) -> bool:
        """Whether the task has, or is about to have, a process, and so holds resources."""
        return not isinstance(self.phase, Ended)

    @property
    def place(self) -> Place:
        """What a lined-up task must have in common with it to succeed it."""
        return (self.framework_id, self.role, self.info.resources)

    @property
    def may_be_succeeded(self) -> bool:
        """Whether a lined-up task may take its place when it ends: it lives, and is not killed."""
        return self.is_live and self.kill is None

    @property
    def run(self) -> str:
        """The name of the process; empty once the task has ended."""
        return "" if isinstance(self.phase, Ended) else self.phase.run

    @property
    def pid(self) -> int:
        """The pid of the process, even after its end; 0 while it is not known."""
        return self.phase.pid if isinstance(self.phase, Running | Killing) else self.status.pid

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


def place_of(order: LaunchTask) -> Place:
    """Return what a task must have in common with the one of an order, which may succeed it."""
    return (order.framework_id, order.role, order.task.resources)


@dataclass(frozen=True, slots=True)
class KillDeadline:
    """The grace of a task that was asked to end is over."""

    key: Key


@dataclass(frozen=True, slots=True)
class ResendDeadline:
    """A task's updates were not acknowledged in time."""

    key: Key


@dataclass(frozen=True, slots=True)
class CompletionDeadline:
    """A task has run for the longest time that it may take."""

    key: Key


Deadline = KillDeadline | ResendDeadline | CompletionDeadline
