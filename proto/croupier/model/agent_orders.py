"""Orders of a master to an agent about tasks."""

from __future__ import annotations

from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.task import Reason, TaskInfo
from croupier.model.value import value
from croupier.model.volume import Volume


@value
class LaunchTask:
    """Start a task.

    Attributes:
        role: the role that the task is charged to; the agent keeps it for the next master.
        framework_epoch: counts the runs of the framework's program; 0: unknown.
        proof: of the launch, in hexadecimal digits; the agent keeps it for the next master.
        lined_up: whether it starts only in place of a task of its framework, role and resources.
        sequence: the number of the last update of its earlier runs; 0: it has none.
    """

    framework_id: FrameworkId
    task: TaskInfo
    role: Role
    framework_epoch: int = 0
    proof: str = ""
    lined_up: bool = False
    sequence: int = 0


@value
class LaunchGroup:
    """Start all of these tasks, which are one group, or none."""

    tasks: tuple[LaunchTask, ...]


@value
class KillTask:
    """End a task.

    Attributes:
        grace_ms: None means the task's own.
        framework_epoch: 0 unless the framework itself ends the task.
    """

    framework_id: FrameworkId
    task_id: TaskId
    grace_ms: int | None
    reason: Reason
    framework_epoch: int = 0


@value
class AcknowledgeUpdate:
    """The framework has acknowledged the task's updates up to and with `sequence`."""

    framework_id: FrameworkId
    task_id: TaskId
    sequence: int


@value
class ResendUpdates:
    """The framework is connected again and needs all updates that it has not acknowledged."""

    framework_id: FrameworkId


@value
class RecallTask:
    """Return a task that is lined up, unless it has started."""

    framework_id: FrameworkId
    task_id: TaskId


@value
class ExecutorMessage:
    """A message of a framework to one of its executors, or back; lost if the peer is away."""

    framework_id: FrameworkId
    task_id: TaskId
    data: bytes


@value
class SetVolume:
    """Keep a directory of a volume, or remove it.

    Attributes:
        size: its bytes; 0: remove it.
    """

    volume: Volume
    size: int


TaskOrder = (
    RecallTask
    | LaunchTask
    | LaunchGroup
    | KillTask
    | AcknowledgeUpdate
    | ResendUpdates
    | ExecutorMessage
    | SetVolume
)
