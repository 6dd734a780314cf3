"""Tasks, their states and their status updates.

States and reasons have Mesos' names.

QUEUED is the state of a submitted task until the master places it on an agent, and once more if
it is requeued after a preemption, or with its gang. UNREACHABLE, which the master sets for a silent
agent, is not final: an agent that returns may report that the task runs. FINISHED, FAILED, KILLED,
ERROR, LOST, DROPPED, GONE and GONE_BY_OPERATOR are final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from croupier.model.devices import DeviceRequest
from croupier.model.executor import MESOS_API, ExecutorSpec
from croupier.model.gang import GangMember
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.isolation import (
    NO_FEATURES,
    NO_ISOLATION,
    NO_LIMITS,
    Feature,
    Features,
    Isolation,
    Limits,
    Usage,
)
from croupier.model.output_bound import NO_OUTPUT_BOUND, OutputBound
from croupier.model.preemption import NO_PREEMPTION, TaskPreemption
from croupier.model.resources import Resources
from croupier.model.secrets import WITHHELD, SealedValue
from croupier.model.task_group import GroupPart, TaskGroup
from croupier.model.volume import VolumeMount

# The sequence number of a terminal update by the master: above all numbers of agents.
MASTER_SEQUENCE = 2**62

# Characters of a status message.
MAX_MESSAGE = 4096
DEFAULT_GRACE_MS = 3_000
# Of an ended task with more text than MAX_SLIM, only the name is kept, cut to MAX_SLIM_NAME.
MAX_SLIM = 1024
MAX_SLIM_NAME = 256
# Bytes of a task's message besides its text.
MAX_TAGS = 512


class _Named(IntEnum):
    """A number on the wire, which formats as its name."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class TaskState(_Named):
    """The state of a task; the numbers are those of the wire."""

    STARTING = 1
    RUNNING = 2
    FINISHED = 3
    FAILED = 4
    KILLED = 5
    LOST = 6
    STAGING = 7
    ERROR = 8
    KILLING = 9
    DROPPED = 10
    UNREACHABLE = 11
    GONE = 12
    GONE_BY_OPERATOR = 13
    UNKNOWN = 14
    QUEUED = 15

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended and holds no resources."""
        return self in TERMINAL

    @property
    def is_failure(self) -> bool:
        """Whether the task has ended in a way that its owner did not want."""
        return self in FAILURES


class Source(_Named):
    """The origin of a status update."""

    MASTER = 1
    AGENT = 2
    EXECUTOR = 3


class Reason(_Named):
    """The reason of a task's state; the numbers are those of the wire."""

    NONE = 0
    COMMAND_EXECUTOR_FAILED = 1
    CONTAINER_LAUNCH_FAILED = 2
    TASK_INVALID = 3
    INVALID_OFFERS = 4
    AGENT_DISCONNECTED = 5
    AGENT_REMOVED = 6
    AGENT_RESTARTED = 7
    AGENT_UNKNOWN = 8
    FRAMEWORK_REMOVED = 9
    RECONCILIATION = 10
    TASK_KILLED_DURING_LAUNCH = 11
    TASK_UNKNOWN = 12
    AGENT_STOPPED = 13
    KILLED_BY_FRAMEWORK = 14
    KILLED_BY_OPERATOR = 15
    AGENT_REREGISTERED = 16
    TASK_GROUP_INVALID = 17
    PREEMPTED = 18
    AGENT_DRAINING = 19
    EXECUTOR_TERMINATED = 20
    AGENT_REBOOTED = 21
    GONE_BY_OPERATOR = 22
    MEMORY_LIMIT = 23
    DISK_LIMIT = 24
    TIMED_OUT = 25
    EXECUTOR_REGISTRATION_TIMEOUT = 26
    GROUP_ENDED = 27
    EXECUTOR_REREGISTRATION_TIMEOUT = 28
    GANG_ENDED = 29

    @property
    def is_limit(self) -> bool:
        """Whether the task failed because it exceeded one of its limits."""
        return self in (Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.TIMED_OUT)

    @property
    def is_blameless(self) -> bool:
        """Whether the task did not cause its end: others killed or lost it."""
        return self in _BLAMELESS


_BLAMELESS = frozenset(
    {
        Reason.AGENT_DISCONNECTED,
        Reason.AGENT_DRAINING,
        Reason.AGENT_REBOOTED,
        Reason.AGENT_REMOVED,
        Reason.AGENT_REREGISTERED,
        Reason.AGENT_RESTARTED,
        Reason.AGENT_STOPPED,
        Reason.AGENT_UNKNOWN,
        Reason.FRAMEWORK_REMOVED,
        Reason.GANG_ENDED,
        Reason.GROUP_ENDED,
        Reason.INVALID_OFFERS,
        Reason.KILLED_BY_FRAMEWORK,
        Reason.KILLED_BY_OPERATOR,
        Reason.PREEMPTED,
        Reason.TASK_KILLED_DURING_LAUNCH,
    }
)

_S = TaskState
TERMINAL = frozenset(
    {_S.FINISHED, _S.FAILED, _S.KILLED, _S.LOST, _S.ERROR, _S.DROPPED, _S.GONE, _S.GONE_BY_OPERATOR}
)
FAILURES = TERMINAL - {_S.FINISHED, _S.KILLED}


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, or one line for `sh -c`; exactly one of the two.

    Attributes:
        user: the account to run as; empty is the agent's own.
        secrets: further variables, which stay sealed outside of the task.
        secret_files: whether the task gets its secrets as files, not as variables.
    """

    argv: tuple[str, ...] = ()
    shell: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    secrets: Mapping[str, SealedValue] = field(default_factory=dict)
    secret_files: bool = False

    @property
    def size(self) -> int:
        """Characters of the words, the shell line, the environment and the sealed secrets."""
        size = len(self.shell) + sum(map(len, self.argv))
        if self.environment:
            size += sum(len(name) + len(value) for name, value in self.environment.items())
        if self.secrets:
            size += sum(len(name) + value.size for name, value in self.secrets.items())
        return size

    def without_values(self) -> Command:
        """Return the command with the names of its secrets only."""
        return replace(self, secrets=dict.fromkeys(self.secrets, WITHHELD))


NO_TASK: Final = TaskId("")


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A framework's description of a task.

    Attributes:
        grace_ms: time between SIGTERM and SIGKILL.
        max_completion_ms: the task is ended this long after its start; 0: never.
        output: how much of its output is kept.
        executor: makes it an executor; None: it is none.
        executor_id: the executor that runs it, in place of a command; empty: it has none.
        data: bytes for that executor, or of the executor itself.
        group: its membership in a group; None: it is in none.
        volumes: the volumes that it uses.
        preemption: its rules when it is taken back for a starving framework.
        gang: its membership in a gang; None: it is in none.
        devices: what it asks of its named devices; None: any will do, or none are named.
        encoded: the message that describes it, as it came, so that it need not be written again;
            empty if there is none. A copy that differs has none. It holds no secret.
    """

    task_id: TaskId
    command: Command
    resources: Resources
    name: str = ""
    grace_ms: int = DEFAULT_GRACE_MS
    labels: tuple[tuple[str, str], ...] = ()
    limits: Limits = NO_LIMITS
    isolation: Isolation = NO_ISOLATION
    max_completion_ms: int = 0
    output: OutputBound = NO_OUTPUT_BOUND
    executor: ExecutorSpec | None = None
    executor_id: TaskId = NO_TASK
    data: bytes = b""
    group: TaskGroup | None = None
    volumes: tuple[VolumeMount, ...] = ()
    preemption: TaskPreemption = NO_PREEMPTION
    gang: GangMember | None = None
    devices: DeviceRequest | None = None
    encoded: bytes = field(init=False, default=b"", compare=False, repr=False)

    def with_encoded(self, encoded: bytes) -> TaskInfo:
        """Keep `encoded` with this new task, unless unknown fields make it large."""
        if len(encoded) <= MAX_TAGS + 4 * self.size:
            object.__setattr__(self, "encoded", encoded)
        return self

    @property
    def size(self) -> int:
        """Characters of all its text, as a measure of its memory."""
        return (
            len(self.task_id)
            + len(self.name)
            + self.command.size
            + len(self.isolation.image)
            + len(self.group_id)
            + (0 if self.gang is None else self.gang.text_size)
            + sum(mount.size for mount in self.volumes)
            + (0 if self.devices is None else self.devices.size)
            + len(self.executor_id)
            + len(self.data)
            + sum(len(key) + len(value) for key, value in self.labels)
        )

    @property
    def group_id(self) -> str:
        """The id of its group; empty if it is in none."""
        return "" if self.group is None else self.group.group_id

    @property
    def gang_id(self) -> str:
        """The id of its gang; empty if it is in none."""
        return "" if self.gang is None else self.gang.gang_id

    @property
    def unit_id(self) -> str:
        """The id of its group or gang; empty if it is in neither."""
        if self.group is not None:
            return self.group.group_id
        return "" if self.gang is None else self.gang.gang_id

    @property
    def part(self) -> GroupPart:
        """Its part in its group; MEMBER if it is in none."""
        return GroupPart.MEMBER if self.group is None else self.group.part

    def needs(self) -> Features:
        """Return what an agent must be able to enforce for the task."""
        is_plain = self.limits is NO_LIMITS and self.isolation is NO_ISOLATION
        needs = NO_FEATURES if is_plain else self.limits.needs() | self.isolation.needs()
        if self.executor is not None or self.executor_id:
            needs |= {Feature.EXECUTORS}
        if self.executor is not None and self.executor.api == MESOS_API:
            needs |= {Feature.MESOS_EXECUTORS}
        if self.volumes:
            needs |= {Feature.VOLUMES}
        if self.gang is not None:
            needs |= {Feature.GANGS}
        if (self.preemption is not NO_PREEMPTION and self.preemption.needs_agent) or (
            self.gang is not None and self.gang.restarts
        ):
            needs |= {Feature.REQUEUE}
        if self.devices is not None:
            needs |= {Feature.DEVICES}
        return needs if self.group is None else needs | {Feature.GROUPS}

    def outline(self) -> TaskInfo:
        """Return the task without its command, labels, image and data, and its gang's hosts."""
        gang = None if self.gang is None else replace(self.gang, hosts=())
        return replace(
            self, command=Command(), labels=(), isolation=NO_ISOLATION, data=b"", gang=gang
        )

    def slimmed(self) -> TaskInfo:
        """Return the task without sealed values; if it is large, its outline with its name cut."""
        if self.size <= MAX_SLIM:
            sealed = self.command.secrets
            return replace(self, command=self.command.without_values()) if sealed else self
        return replace(self.outline(), name=self.name[:MAX_SLIM_NAME])


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One update of a task's state.

    Attributes:
        agent_id: empty if the master knows no agent for the task.
        sequence: numbers an agent's updates of one task from 1; `MASTER_SEQUENCE` if the master
            reports the end of the task on behalf of a lost agent; 0 if the update is sent once
            and needs no acknowledgement.
        time_ms: milliseconds since the epoch by the clock of `source`.
        exit_code: set if the process ended by itself; 127 or 126, as in a shell, if its program
            was not found or cannot be run (CONTAINER_LAUNCH_FAILED).
        signal: set if a signal ended the process.
        pid: of the task's first process; 0 before it has started.
        decided_in_s: with UNKNOWN: seconds within which the master decides on the task; None if
            no decision is pending.
        is_reconciled: whether it answers RECONCILE; then it may repeat an earlier update.
        usage: what the task has used, with its end; None if it was not measured.
        successor: with its end, from agents only: the task that was lined up and took its place.
        data, labels: from the executor that runs the task.
        update_id: names the update to that executor; empty for other updates.
    """

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    state: TaskState
    source: Source = Source.MASTER
    reason: Reason = Reason.NONE
    message: str = ""
    sequence: int = 0
    time_ms: int = 0
    exit_code: int | None = None
    signal: int | None = None
    pid: int = 0
    decided_in_s: float | None = None
    is_reconciled: bool = False
    usage: Usage | None = None
    successor: TaskId = NO_TASK
    data: bytes = b""
    labels: tuple[tuple[str, str], ...] = ()
    update_id: bytes = b""

    @property
    def needs_acknowledgement(self) -> bool:
        """Whether the update is sent again until it is acknowledged."""
        return self.sequence > 0

    def without_data(self) -> TaskStatus:
        """Return the status without what its executor added for the framework."""
        return replace(self, data=b"", labels=()) if self.data or self.labels else self
