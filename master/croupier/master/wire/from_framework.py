"""Calls of frameworks, from protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, TypeVar

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, Subscribe
from croupier.model import ids
from croupier.model.attributes import MAX_CONSTRAINTS, check_constraints
from croupier.model.demand import Placement
from croupier.model.errors import CroupierError, InvalidRequest, ProtocolViolation, shortened
from croupier.model.executor import check_message
from croupier.model.limits import (
    MAX_NAMED,
    MAX_OFFERS_PER_CALL,
    MAX_TASKS_PER_ACCEPT,
    MAX_TASKS_PER_SUBMIT,
)
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskInfo
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.process.time_slice import TimeSlice, sliced
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.resources import check_count, constraint_from_wire, resources_from_wire
from croupier.wire.task import demands_from_wire, secrets_from_wire, task_from_wire

# Tasks of one call that the core decides in one event: about 10 ms of work.
PART = 500

T = TypeVar("T")
# Tasks that are one, by the name of their field.
_Kind = Literal["group", "gang"]
# Returns the task with its secrets sealed.
Seal = Callable[[TaskInfo, SecretValues], TaskInfo]


def subscribe_from_wire(session: SessionId, wire: pb.Subscribe) -> Subscribe:
    """Return the event for a SUBSCRIBE; raises InvalidRequest if it is too large or malformed."""
    _check_size(wire)
    framework = wire.framework
    if not wire.client_id or len(wire.client_id) > 255:
        raise InvalidRequest("client_id has 1 to 255 characters")
    return Subscribe(
        session,
        ids.FrameworkId(framework.framework_id),
        framework.name,
        ids.check_roles(framework.roles),
        wire.client_id,
        failover_timeout_s=framework.failover_timeout_ms / 1000,
        offer_lease_s=wire.offer_lease_ms / 1000,
        demands=demands_from_wire(wire.demands),
        suppressed=wire.suppressed,
        suppressed_roles=_roles(wire.suppressed_roles),
        hostname=framework.hostname[:255],
        webui_url=framework.webui_url[:2048],
    )


async def call_from_wire(session: SessionId, wire: pb.Call, seal: Seal) -> FrameworkCalled:
    """Return the event for any call but SUBSCRIBE and HEARTBEAT; `seal` seals tasks' secrets.

    A malformed call is an event too, and gets a verdict. The tasks of an ACCEPT are converted in
    slices. Raises ProtocolViolation if the call has no sequence number.
    """
    name = wire.WhichOneof("call") or "unknown"
    if not wire.seq:
        raise ProtocolViolation(f"{name.upper()} has no sequence number")
    try:
        _check_counts(wire)
        _check_size(wire)
        call = await _call(name, wire, seal)
    except CroupierError as error:
        task_ids = tuple(
            ids.TaskId(each[:255]) for each in islice(_named_tasks(wire), MAX_TASKS_PER_ACCEPT)
        )
        call = calls.Malformed(name, error, task_ids)
    return FrameworkCalled(session, wire.seq, call)


def split_call(event: FrameworkCalled) -> Iterator[FrameworkCalled]:
    """Split a call that names many tasks, so that events of other peers come in between."""
    call = event.call
    if isinstance(call, calls.Acknowledge):
        for updates, more in _parts(call.updates):
            yield replace(event, call=calls.Acknowledge(updates, more))
    elif isinstance(call, calls.Reconcile):
        for task_ids, more in _parts(call.task_ids):
            yield replace(event, call=calls.Reconcile(task_ids, more))
    else:
        yield event


def _parts(named: tuple[T, ...]) -> Iterator[tuple[tuple[T, ...], bool]]:
    """Yield each part, and whether another follows; at least one."""
    for start in range(0, len(named) or 1, PART):
        yield named[start : start + PART], start + PART < len(named)


def _check_counts(wire: pb.Call) -> None:
    """Raise InvalidRequest if a call names too many things, before it is converted."""
    check_count(len(wire.accept.offer_ids), MAX_OFFERS_PER_CALL, "offers in one call")
    check_count(len(wire.accept.operations), MAX_TASKS_PER_ACCEPT, "operations in one ACCEPT")
    tasks = sum(len(tasks) for tasks, _ in _launches(wire.accept))
    check_count(tasks, MAX_TASKS_PER_ACCEPT, "tasks in one ACCEPT")
    check_count(len(wire.submit.tasks), MAX_TASKS_PER_SUBMIT, "tasks in one SUBMIT")
    check_count(len(wire.submit.constraints), MAX_CONSTRAINTS, "constraints")
    check_count(len(wire.withdraw.task_ids), MAX_TASKS_PER_SUBMIT, "tasks in one WITHDRAW")
    check_count(len(wire.decline.offer_ids), MAX_OFFERS_PER_CALL, "offers in one call")
    check_count(len(wire.acknowledge.updates), MAX_NAMED, "tasks are named in one call")
    check_count(len(wire.reconcile.task_ids), MAX_NAMED, "tasks are named in one call")


def _check_size(wire: pb.Call | pb.Subscribe) -> None:
    size = wire.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise InvalidRequest(f"the call is {size} bytes; at most {MAX_MESSAGE_BYTES} are accepted")


async def _call(name: str, wire: pb.Call, seal: Seal) -> calls.Call:
    match name:
        case "accept":
            return await _accept(wire, seal)
        case "submit":
            return await _submit(wire.submit, seal)
        case "withdraw":
            return calls.Withdraw(_task_ids(wire.withdraw.task_ids))
        case "send_message":
            (task_id,) = _task_ids((wire.send_message.task_id,))
            return calls.SendMessage(task_id, check_message(wire.send_message.data))
        case "decline":
            decline = wire.decline
            return calls.Decline(
                tuple(map(ids.OfferId, decline.offer_ids)),
                _refuse_s(decline.filters),
                decline.reason,
            )
        case "update_demand":
            return calls.UpdateDemand(demands_from_wire(wire.update_demand.demands))
        case "suppress" | "revive":
            kind = calls.Suppress if name == "suppress" else calls.Revive
            return kind(_roles(getattr(wire, name).roles))
        case "kill":
            return _kill(wire.kill)
        case "acknowledge":
            updates = await sliced(
                (ids.AgentId(update.agent_id), ids.TaskId(update.task_id), update.sequence)
                for update in wire.acknowledge.updates
            )
            return calls.Acknowledge(tuple(updates))
        case "reconcile":
            return calls.Reconcile(_task_ids(wire.reconcile.task_ids))
        case "release":
            return calls.Release(_hold_ids(wire.release.hold_ids))
        case "teardown":
            return calls.Teardown()
        case _:
            raise InvalidRequest("the call is empty or unknown to this master")


def _kill(wire: pb.Kill) -> calls.Kill:
    if len(wire.task_id) > ids.MAX_ID_BYTES:
        raise InvalidRequest("the task id is too long")
    grace_ms = wire.kill_policy.grace_ms if wire.HasField("kill_policy") else None
    return calls.Kill(ids.TaskId(wire.task_id), grace_ms)


async def _accept(wire: pb.Call, seal: Seal) -> calls.Accept:
    holds: list[calls.MakeHold] = []
    released: list[str] = []
    for operation in wire.accept.operations:
        match operation.WhichOneof("operation"):
            case "launch" | "launch_group":
                pass
            case "hold":
                holds.append(_hold(operation.hold))
            case "release":
                released += operation.release.hold_ids
            case _:
                known = "LAUNCH, LAUNCH_GROUP, HOLD and RELEASE"
                raise InvalidRequest(f"unknown operation; this master knows {known}")
    named = [
        (task, _unit_of(tasks, "group") if is_group else "")
        for tasks, is_group in _launches(wire.accept)
        for task in tasks
    ]
    tasks, malformed = await _parsed(named, seal)
    offer_ids = tuple(map(ids.OfferId, wire.accept.offer_ids))
    refuse_s = _refuse_s(wire.accept.filters)
    releases = _hold_ids(released)
    return calls.Accept(offer_ids, tasks, refuse_s, malformed, tuple(holds), releases)


def _hold(wire: pb.Hold) -> calls.MakeHold:
    hold_id = ids.HoldId(ids.check_id("hold", wire.hold_id))
    resources = resources_from_wire(wire.resources)
    return calls.MakeHold(hold_id, resources, wire.ttl_ms, wire.for_role, wire.volume)


def _hold_ids(named: Sequence[str]) -> tuple[ids.HoldId, ...]:
    check_count(len(named), MAX_TASKS_PER_ACCEPT, "holds are named in one call")
    if any(len(hold_id) > ids.MAX_ID_BYTES for hold_id in named):
        raise InvalidRequest("a hold id is too long")
    return tuple(map(ids.HoldId, named))


async def _submit(wire: pb.Submit, seal: Seal) -> calls.Submit:
    role = ids.check_role(wire.role) if wire.role else None
    placement = Placement(
        check_constraints(map(constraint_from_wire, wire.constraints)),
        wire.max_per_agent if wire.HasField("max_per_agent") else None,
    )
    if wire.group and wire.gang:
        raise InvalidRequest("tasks are one group or one gang, not both")
    kind: _Kind = "gang" if wire.gang else "group"
    unit_id = _unit_of(wire.tasks, kind) if wire.group or wire.gang else ""
    tasks, malformed = await _parsed([(task, unit_id) for task in wire.tasks], seal, kind)
    return calls.Submit(tasks, role, placement, malformed)


async def _parsed(
    wire: Iterable[tuple[task_pb2.TaskInfo, str]], seal: Seal, kind: _Kind = "group"
) -> tuple[tuple[TaskInfo, ...], tuple[calls.MalformedTask, ...]]:
    """Convert tasks in slices, each with the group or gang that it must name; empty: none.

    A malformed one is refused without the others, except those of its group or gang.
    """
    tasks: list[TaskInfo] = []
    malformed: list[calls.MalformedTask] = []
    held = TimeSlice()
    other: _Kind = "gang" if kind == "group" else "group"
    for place, (task, unit_id) in enumerate(wire):
        if held.is_over:
            await held.give_way()
        try:
            _check_unit(task, kind, unit_id)
            _check_unit(task, other, "")
            tasks.append(_task(task, seal))
        except InvalidRequest as error:
            task_id, message = ids.TaskId(task.task_id[: ids.MAX_ID_BYTES]), str(shortened(error))
            malformed.append(
                calls.MalformedTask(place, task_id, message, unit_id[: ids.MAX_ID_BYTES])
            )
    return tuple(tasks), tuple(malformed)


def _task(wire: task_pb2.TaskInfo, seal: Seal) -> TaskInfo:
    """Convert a task; the only place where a master handles plain values from a framework."""
    task = task_from_wire(wire)
    return seal(task, secrets_from_wire(wire)) if wire.command.secrets else task


def _launches(accept: pb.Accept) -> Iterator[tuple[Sequence[task_pb2.TaskInfo], bool]]:
    """Yield the tasks of each operation, and whether they are one group."""
    for operation in accept.operations:
        is_group = operation.HasField("launch_group")
        yield operation.launch_group.tasks if is_group else operation.launch.tasks, is_group


def _unit_of(tasks: Sequence[task_pb2.TaskInfo], kind: _Kind) -> str:
    """Return the id of the group or gang of these tasks, which each of them must name."""
    unit_id = next(filter(None, (_unit_id(task, kind) for task in tasks)), "")
    if not unit_id:
        raise InvalidRequest(f"tasks that are one {kind} must name it, in TaskInfo.{kind}")
    return unit_id


def _check_unit(task: task_pb2.TaskInfo, kind: _Kind, unit_id: str) -> None:
    if unit_id and _unit_id(task, kind) != unit_id:
        raise InvalidRequest(f"it does not name {kind} {unit_id[:80]!r}, as its call does")
    if not unit_id and task.HasField(kind):
        launch = "launch it by LAUNCH_GROUP, or " if kind == "group" else ""
        raise InvalidRequest(f"it is of a {kind}: {launch}submit it with `{kind}` set")


def _unit_id(task: task_pb2.TaskInfo, kind: _Kind) -> str:
    return task.group.group_id if kind == "group" else task.gang.gang_id


def _named_tasks(wire: pb.Call) -> Iterable[str]:
    """Return the ids of the tasks of an ACCEPT, a SUBMIT or a WITHDRAW."""
    yield from (task.task_id for tasks, _ in _launches(wire.accept) for task in tasks)
    yield from (task.task_id for task in wire.submit.tasks)
    yield from wire.withdraw.task_ids


def _task_ids(named: Iterable[str]) -> tuple[ids.TaskId, ...]:
    task_ids = tuple(map(ids.TaskId, named))
    if any(len(task_id) > ids.MAX_ID_BYTES for task_id in task_ids):
        raise InvalidRequest("a task id is too long")
    return task_ids


def _roles(named: Sequence[str]) -> tuple[ids.Role, ...]:
    return ids.check_roles(named) if named else ()


def _refuse_s(filters: pb.Filters) -> float | None:
    return filters.refuse_ms / 1000 if filters.HasField("refuse_ms") else None
