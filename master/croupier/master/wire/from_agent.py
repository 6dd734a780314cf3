"""Reports of agents, from protobuf; what is malformed is an `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from croupier.master.access.cluster_keys import LaunchProofs
from croupier.master.core import events
from croupier.master.core.effects import SessionId
from croupier.master.core.step import Event
from croupier.master.leadership.lineage import Lineage
from croupier.model.access import AGENT_USER
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.health import MAX_PROBLEMS, Problem
from croupier.model.ids import AgentId, FrameworkId, TaskId, check_id, check_role
from croupier.model.isolation import known_features
from croupier.model.limits import MAX_PER_REPORT
from croupier.model.task import MASTER_SEQUENCE, MAX_MESSAGE, Source, TaskStatus
from croupier.net.address import check_http_address
from croupier.process.time_slice import sliced
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.resources import (
    attributes_from_wire,
    check_count,
    devices_from_wire,
    resources_from_wire,
)
from croupier.wire.store_position import position_from_wire
from croupier.wire.task import message_from_wire, status_from_wire, task_from_wire, volume_from_wire

# Croupier's own agent sends at most 200 updates in one report.
MAX_UPDATES = 1_000
# Limits of the tasks of one agent, and of the unacknowledged updates of one task.
MAX_AGENT_TASKS = 100_000
MAX_WAITING = 100
# Far more than there are, for agents of later releases.
MAX_FEATURES = 1_000
# Ten years.
MAX_AGE_MS = 315_360_000_000


async def report_from_wire(
    session: SessionId, wire: pb.Report, proofs: LaunchProofs | None = None
) -> Event:
    """Return the event for a report. The tasks of a REGISTER are converted in slices.

    Raises InvalidRequest if an amount, attribute or status is malformed; ProtocolViolation if the
    kind of report is unknown.
    """
    match wire.WhichOneof("report"):
        case "updates":
            check_count(len(wire.updates.statuses), MAX_UPDATES, "updates in one report")
            return events.AgentReported(session, tuple(map(_status, wire.updates.statuses)))
        case "heartbeat":
            return events.Received(session)
        case "register":
            return await _register(session, wire.register, proofs)
        case "health":
            return _health(session, wire.health)
        case "returned":
            returned = wire.returned.tasks
            check_count(len(returned), MAX_UPDATES, "returned tasks in one report")
            keys = ((FrameworkId(each.framework_id), TaskId(each.task_id)) for each in returned)
            return events.TasksReturned(session, tuple(keys))
        case "executor_message":
            return events.ExecutorSaid(session, message_from_wire(wire.executor_message))
        case "goodbye":
            return events.AgentStopped(session, wire.goodbye.message[:1024])
        case _:
            raise ProtocolViolation("the report is empty or unknown to this master")


def claim_from_wire(wire: pb.Register, lineage: Lineage) -> tuple[events.Claim, str]:
    """Return a judgement of the masters that the agent has seen, and the objection, if any."""
    has_position = wire.HasField("position")
    try:
        position = position_from_wire(wire.position) if has_position else None
    except InvalidRequest as error:
        return events.Claim.UNPROVEN, f"the agent states a malformed position: {error}"
    return lineage.judge(wire.cluster, wire.master_epoch, position)


async def tasks_from_wire(
    wire: Iterable[pb.AgentTask], proofs: LaunchProofs | None
) -> list[events.AgentTask]:
    """Convert the tasks of an agent, in slices; `proofs` judges those of their launches."""
    return await sliced(_task(each, proofs) for each in wire)


async def _register(
    session: SessionId, wire: pb.Register, proofs: LaunchProofs | None
) -> events.Register:
    check_count(len(wire.tasks), MAX_AGENT_TASKS, "tasks of one agent")
    check_count(len(wire.isolation), MAX_FEATURES, "features of isolation")
    check_count(len(wire.volumes), MAX_AGENT_TASKS, "volumes of one agent")
    return events.Register(
        session,
        AgentId(wire.agent_id),
        wire.hostname,
        resources_from_wire(wire.resources),
        attributes_from_wire(wire.attributes),
        _http_address(wire.http_address),
        tuple(await tasks_from_wire(wire.tasks, proofs)),
        wire.master_epoch,
        wire.incomplete,
        wire.cluster[:64],
        problems=_problems(wire.problems),
        features=known_features(wire.isolation),
        default_user=check_id("user", wire.default_user or AGENT_USER),
        takes_exec=wire.takes_exec,
        lines_up=wire.lines_up,
        boot_id=wire.boot_id[:64],
        sent_ms=wire.sent_ms,
        volumes=tuple(map(volume_from_wire, wire.volumes)),
        devices=devices_from_wire(wire.devices),
    )


def _http_address(text: str) -> str:
    try:
        return check_http_address(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"the agent's http_address: {error}") from None


def _health(session: SessionId, wire: pb.AgentHealth) -> events.AgentHealth:
    check_count(len(wire.refused), MAX_PER_REPORT, "refused launches")
    refused = (
        events.RefusedLaunch(
            FrameworkId(check_id("framework", each.framework_id)),
            TaskId(check_id("task", each.task_id)),
            each.message[:MAX_MESSAGE],
        )
        for each in wire.refused
    )
    return events.AgentHealth(session, _problems(wire.problems), tuple(refused))


def _problems(wire: Iterable[pb.HealthProblem]) -> tuple[Problem, ...]:
    """Convert at most `MAX_PROBLEMS` problems, with their texts cut."""
    first = islice(wire, MAX_PROBLEMS)
    return tuple(Problem.bounded(each.part, each.message) for each in first)


def _task(wire: pb.AgentTask, proofs: LaunchProofs | None) -> events.AgentTask:
    check_count(len(wire.unacknowledged), MAX_WAITING, "updates of one task")
    task = events.AgentTask(
        FrameworkId(wire.framework_id),
        task_from_wire(wire.task),
        _status(wire.latest),
        tuple(map(_status, wire.unacknowledged)),
        check_role(wire.role) if wire.role else None,
        age_ms=min(wire.age_ms, MAX_AGE_MS),
    )
    return task if proofs is None else proofs.judged(task, wire.proof.hex())


def _status(wire: task_pb2.TaskStatus) -> TaskStatus:
    """Convert an agent's status, without the fields that only a master sets."""
    if wire.sequence >= MASTER_SEQUENCE:
        raise InvalidRequest(
            f"task {wire.task_id[:255]!r}: sequence {wire.sequence} is reserved for the master"
        )
    status = status_from_wire(wire)
    if status.source is not Source.MASTER and not (
        status.is_reconciled or wire.HasField("decided_in_ms")
    ):
        return status
    source = Source.AGENT if status.source is Source.MASTER else status.source
    return replace(status, source=source, decided_in_s=None, is_reconciled=False)
