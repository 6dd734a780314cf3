"""Reports and orders of the agent protocol, to and from the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from croupier.agent.core.events import Event, GroupLaunch, TaskLaunch
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, LocalTask
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    ExecutorMessage,
    KillTask,
    LaunchTask,
    RecallTask,
    ResendUpdates,
    SetVolume,
)
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.executor import news_size
from croupier.model.health import Problem
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, TaskId, check_role
from croupier.model.isolation import feature_names
from croupier.model.secrets import NO_SECRETS
from croupier.model.store_position import check_epoch
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskStatus
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.model.task_group import MAX_GROUP_TASKS
from croupier.net.address import Address
from croupier.net.version import croupier_version
from croupier.v1 import agent_pb2 as pb
from croupier.wire.resources import (
    attributes_to_wire,
    check_count,
    devices_to_wire,
    resources_to_wire,
)
from croupier.wire.store_position import position_to_wire
from croupier.wire.task import (
    message_from_wire,
    secrets_from_wire,
    status_to_wire,
    task_from_wire,
    task_to_wire,
    volume_from_wire,
    volume_to_wire,
)

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig

# A larger REGISTER lacks the fields of tasks that affect no decision, and may have 128 KB for each
# task. If it is still larger, its tasks come in pages.
SLIM_BYTES = 1024 * 1024
_LARGE = ("name", "command", "labels", "limits", "isolation", "output", "data")
PAGE_BYTES = 256 * 1024
# Masters send 16.
MAX_PROOF_BYTES = 64
# Of earlier runs; masters refuse updates from `MASTER_SEQUENCE` on.
MAX_SEQUENCE = MASTER_SEQUENCE // 2

# A refused launch, and the reason.
Refused = tuple[Key, str]

_REASONS = {int(reason): reason for reason in Reason}


def identity_to_wire(
    config: AgentConfig, http: Address, boot_id: str, default_user: str
) -> pb.Register:
    """Return the part of REGISTER that does not depend on the state; `http` is where it listens."""
    named = config.hostname if http.host in ("0.0.0.0", "::") else http.host  # noqa: S104 - asked for
    scheme = "https://" if config.tls.has_certificate else ""
    return pb.Register(
        hostname=config.hostname,
        attributes=attributes_to_wire(config.attributes),
        http_address=f"{scheme}{Address(named, http.port)}",
        version=croupier_version(),
        boot_id=boot_id,
        default_user=default_user,
        takes_exec=config.exec == "allow",
    )


def register_to_wire(identity: pb.Register, state: AgentState) -> list[pb.Report]:
    """Return REGISTER with everything that the agent knows, after pages of many tasks.

    `identity` is that of `identity_to_wire`. O(tasks).
    """
    register = pb.Register(
        agent_id=state.agent_id,
        resources=resources_to_wire(state.total),
        tasks=[_task_to_wire(task, identity.sent_ms / 1000) for task in state.tasks.values()],
        master_epoch=state.master_epoch,
        cluster=state.cluster,
        incomplete=state.incomplete,
        problems=_problems(state.health.problems),
        position=position_to_wire(state.position) if state.position else None,
        takes_secrets=True,
        isolation=feature_names(state.features),
        lines_up=True,
        volumes=map(volume_to_wire, sorted(state.volumes, key=str)),
        devices=devices_to_wire(() if state.inventory is None else state.inventory.devices),
    )
    register.MergeFrom(identity)
    if register.ByteSize() > SLIM_BYTES:
        for task in register.tasks:
            _slim(task.task)
    if register.ByteSize() <= SLIM_BYTES:
        return [pb.Report(register=register)]
    pages = _pages(register.tasks)
    register.ClearField("tasks")
    register.pages = len(pages)
    return [*pages, pb.Report(register=register)]


def _slim(task: Any) -> None:
    for name in _LARGE:
        task.ClearField(name)
    if task.HasField("gang"):
        task.gang.ClearField("hosts")


def _pages(tasks: Iterable[pb.AgentTask]) -> list[pb.Report]:
    pages: list[pb.Report] = []
    size = PAGE_BYTES
    for task in tasks:
        if size >= PAGE_BYTES:
            pages.append(pb.Report(register_page=pb.RegisterPage()))
            size = 0
        pages[-1].register_page.tasks.append(task)
        size += task.ByteSize()
    return pages


def health_to_wire(problems: Iterable[Problem], refused: Iterable[Refused] = ()) -> pb.Report:
    """Return the report of the agent's problems, and of the launches that it refused for them."""
    health = pb.AgentHealth(problems=_problems(problems))
    for (framework_id, task_id), message in refused:
        health.refused.add(framework_id=framework_id, task_id=task_id, message=message)
    return pb.Report(health=health)


def returned_to_wire(keys: Iterable[Key]) -> pb.Report:
    """Return the report of lined-up tasks that will not start."""
    tasks = [pb.ReturnedTask(framework_id=key[0], task_id=key[1]) for key in keys]
    return pb.Report(returned=pb.ReturnedTasks(tasks=tasks))


def order_from_wire(order: pb.Order) -> Event:
    """Return the event for an order on tasks.

    Raises:
        InvalidRequest: if it is malformed.
        ProtocolViolation: if this agent does not know orders of its kind.
    """
    match order.WhichOneof("order"):
        case "launch":
            launch = _launch_from_wire(order.launch)
            return launch if launch.secrets else launch.order
        case "launch_group":
            check_count(len(order.launch_group.tasks), MAX_GROUP_TASKS, "tasks of a group")
            launches = [_launch_from_wire(launch) for launch in order.launch_group.tasks]
            if not launches:
                raise InvalidRequest("a group without tasks")
            return GroupLaunch(tuple(launches))
        case "acknowledge":
            ack = order.acknowledge
            return AcknowledgeUpdate(
                FrameworkId(ack.framework_id), TaskId(ack.task_id), ack.sequence
            )
        case "kill":
            kill = order.kill
            has_grace = kill.HasField("kill_policy")
            return KillTask(
                FrameworkId(kill.framework_id),
                TaskId(kill.task_id),
                min(kill.kill_policy.grace_ms, MAX_GRACE_MS) if has_grace else None,
                _REASONS.get(kill.reason, Reason.NONE),
                check_epoch(kill.framework_epoch),
            )
        case "recall":
            return RecallTask(FrameworkId(order.recall.framework_id), TaskId(order.recall.task_id))
        case "executor_message":
            return message_from_wire(order.executor_message)
        case "volume":
            return SetVolume(volume_from_wire(order.volume), order.volume.size)
        case "resend":
            return ResendUpdates(FrameworkId(order.resend.framework_id))
        case kind:
            raise ProtocolViolation(f"an order that is unknown: {kind or 'empty'}")


def _launch_from_wire(launch: pb.LaunchTask) -> TaskLaunch:
    secrets = secrets_from_wire(launch.task) if launch.task.command.secrets else NO_SECRETS
    order = LaunchTask(
        FrameworkId(launch.framework_id),
        task_from_wire(launch.task),
        check_role(launch.role or DEFAULT_ROLE),
        check_epoch(launch.framework_epoch),
        launch.proof[:MAX_PROOF_BYTES].hex(),
        launch.lined_up,
        min(launch.sequence, MAX_SEQUENCE),
    )
    return TaskLaunch(order, secrets)


def parts_of(statuses: Sequence[TaskStatus]) -> Iterator[list[TaskStatus]]:
    """Yield statuses in parts whose data and labels fit one report together."""
    part: list[TaskStatus] = []
    size = 0
    for status in statuses:
        own = news_size(status.data, status.labels)
        if part and size + own > PAGE_BYTES:
            yield part
            part, size = [], 0
        part.append(status)
        size += own
    yield part


def message_to_wire(message: ExecutorMessage) -> pb.Report:
    """Return the report of a message of an executor."""
    return pb.Report(
        executor_message=pb.ExecutorMessage(
            framework_id=message.framework_id, task_id=message.task_id, data=message.data
        )
    )


def _problems(problems: Iterable[Problem]) -> list[pb.HealthProblem]:
    return [pb.HealthProblem(part=each.part, message=each.message) for each in problems]


def _task_to_wire(task: LocalTask, sent_at: float) -> pb.AgentTask:
    return pb.AgentTask(
        framework_id=task.framework_id,
        task=task_to_wire(task.info),
        # The unacknowledged updates have the data.
        latest=status_to_wire(task.status.without_data()),
        unacknowledged=[status_to_wire(status) for status in task.updates.waiting],
        role=task.role,
        proof=bytes.fromhex(task.proof),
        age_ms=task.age_ms(sent_at),
    )
