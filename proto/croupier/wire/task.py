"""Tasks, with their limits, isolation and usage, their statuses and demand to and from the wire.

Rule: a message that is malformed, or has too much of anything, is an `InvalidRequest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final

from croupier.model import isolation
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.attributes import MAX_CONSTRAINTS, check_constraints
from croupier.model.demand import MAX_SHAPES, Demand, check_demands
from croupier.model.devices import DeviceRequest
from croupier.model.errors import InvalidRequest
from croupier.model.executor import MAX_TIMEOUT_MS, ExecutorSpec, check_message
from croupier.model.gang import MAX_GANG_TASKS, GangMember, GangPlacement
from croupier.model.ids import AgentId, FrameworkId, HoldId, TaskId, check_id, check_role
from croupier.model.output_bound import MAX_FILES, MAX_SIZE, NO_OUTPUT_BOUND, OutputBound
from croupier.model.preemption import MAX_MIN_RUN_MS, NO_PREEMPTION, TaskPreemption
from croupier.model.resources import Resources
from croupier.model.secrets import MAX_SECRETS, NO_SECRETS, WITHHELD, SecretValues
from croupier.model.task import (
    DEFAULT_GRACE_MS,
    MASTER_SEQUENCE,
    MAX_MESSAGE,
    Command,
    Reason,
    Source,
    TaskInfo,
    TaskState,
    TaskStatus,
)
from croupier.model.task_checks import MAX_GRACE_MS, MAX_LABELS, MAX_WORDS, check_news
from croupier.model.task_group import GroupPart, TaskGroup
from croupier.model.volume import MAX_VOLUMES, Volume, VolumeMount
from croupier.v1 import agent_pb2, framework_pb2, resources_pb2, task_pb2
from croupier.v1 import task_pb2 as pb
from croupier.v1.resources_pb2 import Resources as ResourcesMessage
from croupier.wire.mapped import Both, at_most, mapped
from croupier.wire.resources import (
    check_count,
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)

_REASONS: dict[int, Reason] = {int(reason): reason for reason in Reason}
# Bounds of numbers that the master passes on from peers: the year 9999, and a year.
_MAX_TIME_MS = 253_402_300_799_999
# Bytes of resources that are kept for the next task of their shape.
_MAX_SHAPE = 256
_MAX_DECIDED_MS = 366 * 24 * 3600 * 1000
# Above all that a task can use; a false agent may send any number.
_MAX_USED = 2**62

LIMITS: Final = mapped(
    isolation.Limits, pb.Limits, {"cpus": "cpus_milli", "mem": "mem_milli", "disk": "disk_milli"}
)
ISOLATION: Final = mapped(isolation.Isolation, pb.Isolation)
OUTPUT_BOUND: Final = mapped(
    OutputBound, pb.OutputBound, size=at_most(MAX_SIZE + 1), files=at_most(MAX_FILES + 1)
)
EXECUTOR: Final = mapped(
    ExecutorSpec,
    pb.ExecutorSpec,
    registration_timeout_ms=at_most(MAX_TIMEOUT_MS + 1),
    shutdown_grace_ms=at_most(MAX_TIMEOUT_MS + 1),
)
VOLUME: Final = mapped(VolumeMount, pb.VolumeMount)
PREEMPTION: Final = mapped(
    TaskPreemption, pb.TaskPreemption, min_run_ms=at_most(MAX_MIN_RUN_MS + 1)
)
DEVICES: Final = mapped(DeviceRequest, resources_pb2.DeviceRequest)
GROUP: Final = mapped(TaskGroup, pb.TaskGroup, part=Both(int, lambda number: _part(number)))
GANG_PLACEMENT: Final = mapped(GangPlacement, pb.GangPlacement)
GANG: Final = mapped(
    GangMember,
    pb.GangMember,
    part=Both(int, lambda number: _part(number)),
    placement=GANG_PLACEMENT,
    hosts=Both(tuple, lambda hosts: _hosts(hosts)),
)
USAGE: Final = mapped(
    isolation.Usage,
    pb.Usage,
    {"memory_peak": "memory_peak_bytes"},
    **dict.fromkeys((each.name for each in fields(isolation.Usage)), at_most(_MAX_USED)),
)


def task_to_wire(task: TaskInfo, secrets: SecretValues = NO_SECRETS) -> pb.TaskInfo:
    """Return the message for `task`; only the values in `secrets` are in it, else names."""
    if task.encoded:
        return pb.TaskInfo.FromString(task.encoded)
    values = dict.fromkeys(task.command.secrets, "") | secrets.reveal()
    return pb.TaskInfo(
        task_id=task.task_id,
        name=task.name,
        command=pb.Command(
            argv=task.command.argv,
            shell=task.command.shell,
            environment=task.command.environment,
            user=task.command.user,
            secrets=values,
            secret_files=task.command.secret_files,
        ),
        resources=resources_to_wire(task.resources),
        kill_policy=pb.KillPolicy(grace_ms=task.grace_ms),
        labels=[pb.Label(key=key, value=value) for key, value in task.labels],
        limits=None if task.limits == isolation.NO_LIMITS else LIMITS.to_wire(task.limits),
        isolation=None
        if task.isolation == isolation.NO_ISOLATION
        else ISOLATION.to_wire(task.isolation),
        max_completion_ms=task.max_completion_ms,
        output=None if task.output is NO_OUTPUT_BOUND else OUTPUT_BOUND.to_wire(task.output),
        executor=None if task.executor is None else EXECUTOR.to_wire(task.executor),
        executor_id=task.executor_id,
        data=task.data,
        group=None if task.group is None else GROUP.to_wire(task.group),
        volumes=[VOLUME.to_wire(mount) for mount in task.volumes],
        preemption=None
        if task.preemption == NO_PREEMPTION
        else PREEMPTION.to_wire(task.preemption),
        gang=None if task.gang is None else GANG.to_wire(task.gang),
        devices=None if task.devices is None else DEVICES.to_wire(task.devices),
    )


def task_to_bytes(task: TaskInfo) -> bytes:
    """Return the message for `task`, serialized, with the names of its secrets only."""
    return task.encoded or task_to_wire(task).SerializeToString()


def task_from_wire(wire: pb.TaskInfo) -> TaskInfo:
    """Return the task in `wire`; only the form is checked here, `check_task` does the rest.

    The values of secrets are withheld; `secrets_from_wire` returns them.
    """
    command = wire.command
    check_count(len(command.argv), MAX_WORDS, "words in a command")
    check_count(len(command.environment), MAX_WORDS, "variables in an environment")
    check_count(len(command.secrets), MAX_SECRETS, "secrets of a task")
    check_count(len(wire.volumes), MAX_VOLUMES, "volumes of a task")
    task = TaskInfo(
        task_id=TaskId(wire.task_id),
        command=Command(
            argv=tuple(command.argv),
            shell=command.shell,
            environment=dict(command.environment),
            user=command.user,
            secrets=dict.fromkeys(command.secrets, WITHHELD),
            secret_files=command.secret_files,
        ),
        resources=_resources(wire.resources),
        name=wire.name,
        # Of all that are too long, the shortest.
        grace_ms=min(wire.kill_policy.grace_ms, MAX_GRACE_MS + 1)
        if wire.HasField("kill_policy")
        else DEFAULT_GRACE_MS,
        labels=labels_from_wire(wire.labels, "on a task"),
        limits=LIMITS.from_wire(wire.limits) if wire.HasField("limits") else isolation.NO_LIMITS,
        isolation=ISOLATION.from_wire(wire.isolation)
        if wire.HasField("isolation")
        else isolation.NO_ISOLATION,
        max_completion_ms=min(wire.max_completion_ms, isolation.MAX_COMPLETION_MS + 1),
        output=OUTPUT_BOUND.from_wire(wire.output) if wire.HasField("output") else NO_OUTPUT_BOUND,
        executor=EXECUTOR.from_wire(wire.executor) if wire.HasField("executor") else None,
        executor_id=TaskId(wire.executor_id),
        data=wire.data,
        group=GROUP.from_wire(wire.group) if wire.HasField("group") else None,
        volumes=tuple(map(VOLUME.from_wire, wire.volumes)),
        preemption=PREEMPTION.from_wire(wire.preemption)
        if wire.HasField("preemption")
        else NO_PREEMPTION,
        gang=GANG.from_wire(wire.gang) if wire.HasField("gang") else None,
        devices=DEVICES.from_wire(wire.devices) if wire.HasField("devices") else None,
    )
    return task if command.secrets else task.with_encoded(wire.SerializeToString())


def _resources(wire: ResourcesMessage) -> Resources:
    data = wire.SerializeToString()
    return _shape(data) if len(data) <= _MAX_SHAPE else resources_from_wire(wire)


def _hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    check_count(len(hosts), MAX_GANG_TASKS, "hosts of a gang")
    return tuple(hosts)


def _part(number: int) -> GroupPart:
    try:
        return GroupPart(number)
    except ValueError:
        raise InvalidRequest(f"a task cannot have the part {number} in a group") from None


@lru_cache(maxsize=1024)
def _shape(data: bytes) -> Resources:
    """Return the amount in `data`; tasks of one shape share it."""
    return resources_from_wire(ResourcesMessage.FromString(data))


def secrets_from_wire(wire: pb.TaskInfo) -> SecretValues:
    """Return the plain values of the task's secrets."""
    check_count(len(wire.command.secrets), MAX_SECRETS, "secrets of a task")
    secrets = SecretValues(wire.command.secrets)
    secrets.check()
    return secrets


def status_to_wire(status: TaskStatus) -> pb.TaskStatus:
    """Return the message for `status`."""
    return pb.TaskStatus(
        framework_id=status.framework_id,
        task_id=status.task_id,
        agent_id=status.agent_id,
        state=task_pb2.TaskState.ValueType(status.state),
        source=task_pb2.Source.ValueType(status.source),
        reason=task_pb2.Reason.ValueType(status.reason),
        message=status.message,
        sequence=status.sequence,
        time_ms=status.time_ms,
        exit_code=status.exit_code,
        signal=status.signal,
        pid=status.pid,
        decided_in_ms=None
        if status.decided_in_s is None
        else max(0, round(status.decided_in_s * 1000)),
        reconciled=status.is_reconciled,
        usage=None if status.usage is None else USAGE.to_wire(status.usage),
        successor=status.successor,
        data=status.data,
        labels=[pb.Label(key=key, value=value) for key, value in status.labels],
        update_id=status.update_id,
    )


def status_from_wire(wire: pb.TaskStatus) -> TaskStatus:
    """Return the status in `wire`. An unknown reason of a newer peer is read as NONE."""
    if wire.sequence > MASTER_SEQUENCE:
        raise InvalidRequest(
            f"task {wire.task_id[:255]!r}: no update has the number {wire.sequence}"
        )
    labels = labels_from_wire(wire.labels, "in an update")
    check_news(wire.data, labels, wire.update_id)
    try:
        state, source = TaskState(wire.state), Source(wire.source)
    except ValueError:
        raise InvalidRequest(
            f"task {wire.task_id[:255]}: unknown state {wire.state} or source {wire.source}"
        ) from None
    return TaskStatus(
        framework_id=FrameworkId(wire.framework_id),
        task_id=TaskId(wire.task_id),
        agent_id=AgentId(wire.agent_id),
        state=state,
        source=source,
        reason=_REASONS.get(wire.reason, Reason.NONE),
        message=wire.message[:MAX_MESSAGE],
        sequence=wire.sequence,
        time_ms=min(max(0, wire.time_ms), _MAX_TIME_MS),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        signal=wire.signal if wire.HasField("signal") else None,
        pid=wire.pid,
        decided_in_s=min(wire.decided_in_ms, _MAX_DECIDED_MS) / 1000
        if wire.HasField("decided_in_ms")
        else None,
        is_reconciled=wire.reconciled,
        usage=USAGE.from_wire(wire.usage) if wire.HasField("usage") else None,
        successor=TaskId(wire.successor),
        data=wire.data,
        labels=labels,
        update_id=wire.update_id,
    )


def labels_from_wire(wire: Sequence[pb.Label], where: str) -> tuple[tuple[str, str], ...]:
    """Return labels as pairs; raise InvalidRequest if there are too many."""
    check_count(len(wire), MAX_LABELS, f"labels {where}")
    return tuple((each.key, each.value) for each in wire)


def volume_to_wire(volume: Volume, size: int = 0) -> agent_pb2.Volume:
    """Return the message for a volume; `size` is that of an order."""
    volume_id, framework_id = volume.volume_id, volume.framework_id
    return agent_pb2.Volume(
        volume_id=volume_id, framework_id=framework_id, role=volume.role, size=size
    )


def volume_from_wire(wire: agent_pb2.Volume) -> Volume:
    """Return the volume in `wire`; raises InvalidRequest as its `check`."""
    return Volume(HoldId(wire.volume_id), FrameworkId(wire.framework_id), wire.role).check()


def message_from_wire(wire: agent_pb2.ExecutorMessage) -> ExecutorMessage:
    """Return the message between a framework and its executor in `wire`."""
    check_id("framework", wire.framework_id)
    check_id("executor", wire.task_id)
    return ExecutorMessage(
        FrameworkId(wire.framework_id), TaskId(wire.task_id), check_message(wire.data)
    )


def demand_to_wire(demand: Demand) -> framework_pb2.Demand:
    """Return the message for `demand`."""
    return framework_pb2.Demand(
        unit=resources_to_wire(demand.unit),
        count=demand.count,
        constraints=[constraint_to_wire(constraint) for constraint in demand.constraints],
        min_per_offer=None if demand.min_per_offer == 1 else demand.min_per_offer,
        max_per_offer=demand.max_per_offer,
        role=demand.role or "",
        devices=None if demand.devices is None else DEVICES.to_wire(demand.devices),
        max_completion_ms=demand.max_completion_ms,
    )


def demands_from_wire(wire: Sequence[framework_pb2.Demand]) -> tuple[Demand, ...]:
    """Return the demands in `wire`, whose roles are not checked here.

    Reading stops at the first excess: a pattern costs time to compile.
    """
    check_count(len(wire), MAX_SHAPES, "demands")
    return check_demands(map(_demand_from_wire, wire))


def _demand_from_wire(wire: framework_pb2.Demand) -> Demand:
    check_count(len(wire.constraints), MAX_CONSTRAINTS, "constraints")
    return Demand(
        unit=resources_from_wire(wire.unit),
        count=wire.count if wire.HasField("count") else None,
        constraints=check_constraints(map(constraint_from_wire, wire.constraints)),
        min_per_offer=wire.min_per_offer if wire.HasField("min_per_offer") else 1,
        max_per_offer=wire.max_per_offer if wire.HasField("max_per_offer") else None,
        role=check_role(wire.role) if wire.role else None,
        devices=DEVICES.from_wire(wire.devices) if wire.HasField("devices") else None,
        max_completion_ms=min(wire.max_completion_ms, isolation.MAX_COMPLETION_MS + 1),
    )
