"""Conversion of the store's records to the messages of `storage.proto`, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from croupier.master.core import access_records as a
from croupier.master.core import records as r
from croupier.master.core import usage_records as u
from croupier.master.core.usage_buckets import COLUMNS
from croupier.master.wire.access import rule_from_wire, rule_to_wire, token_from_wire, token_to_wire
from croupier.model.attributes import check_constraints
from croupier.model.demand import Placement
from croupier.model.ids import AgentId, FrameworkId, HoldId, Role
from croupier.model.resources import NOTHING
from croupier.model.secrets import WITHHELD, SealedValue
from croupier.model.task import Reason, TaskInfo
from croupier.v1 import storage_pb2 as pb
from croupier.v1.task_pb2 import Reason as WireReason
from croupier.v1.task_pb2 import TaskInfo as WireTask
from croupier.wire.mapped import TUPLE, Both, many, mapped
from croupier.wire.resources import (
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)
from croupier.wire.roles import settings_from_wire, settings_to_wire
from croupier.wire.task import status_from_wire, status_to_wire, task_from_wire, task_to_bytes

MASTER: Final = mapped(r.MasterRecord, pb.MasterRecord, terms=many(mapped(r.PastTerm, pb.PastTerm)))
AGENT: Final = mapped(
    r.AgentRecord,
    pb.AgentRecord,
    drain=mapped(r.DrainRequest, pb.DrainRequest),
    total=Both(resources_to_wire, resources_from_wire),
)
FRAMEWORK: Final = mapped(r.FrameworkRecord, pb.FrameworkRecord, roles=TUPLE, earlier_clients=TUPLE)
ROLE: Final = mapped(
    r.RoleRecord, pb.RoleRecord, settings=Both(settings_to_wire, settings_from_wire)
)
GROUP: Final = mapped(a.GroupRecord, pb.GroupRecord, members=Both(sorted, frozenset))
RULE: Final = mapped(a.RuleRecord, pb.RuleRecord, rule=Both(rule_to_wire, rule_from_wire))
REVOKED_KEY: Final = mapped(a.RevokedKeyRecord, pb.RevokedKeyRecord)

HOLD: Final = mapped(
    r.HoldRecord, pb.HoldRecord, resources=Both(resources_to_wire, resources_from_wire)
)
RESERVATION: Final = mapped(
    r.ReservationRecord,
    pb.ReservationRecord,
    least=Both(resources_to_wire, resources_from_wire),
    constraints=many(Both(constraint_to_wire, constraint_from_wire)),
    agent_ids=TUPLE,
)

_SUMS: Final = Both(
    lambda sums: {name: str(milli) for name, milli in sums.items()},
    lambda sums: {name: int(text) for name, text in sums.items()},
)
USAGE: Final = mapped(u.UsageRecord, pb.UsageRecord, {}, **dict.fromkeys(COLUMNS, _SUMS))


def _task_to_wire(record: r.TaskRecord) -> pb.TaskRecord:
    wire = pb.TaskRecord(
        framework_id=record.framework_id,
        task=task_to_bytes(record.info),
        agent_id=record.agent_id,
        role=record.role,
        client_id=record.client_id,
        seq=record.seq,
        is_acknowledged=record.is_acknowledged,
    )
    if record.kill is not None:
        grace_ms, reason = record.kill
        wire.kill.reason = WireReason.ValueType(reason)
        if grace_ms is not None:
            wire.kill.grace_ms = grace_ms
    if record.master_status is not None:
        wire.master_status.CopyFrom(status_to_wire(record.master_status))
    if record.queued is not None:
        wire.queued.CopyFrom(_place_to_wire(record.queued))
    if record.hold_id:
        wire.hold_id = record.hold_id
        wire.held.CopyFrom(resources_to_wire(record.held))
    if record.requeue is not None:
        wire.requeue.CopyFrom(_REQUEUE.to_wire(record.requeue))
    for name, value in record.info.command.secrets.items():
        wire.secrets[name].key_id, wire.secrets[name].text = value.key_id, value.text
    return wire


def _place_to_wire(place: r.QueuePlace) -> pb.QueuePlace:
    return pb.QueuePlace(
        constraints=map(constraint_to_wire, place.placement.constraints),
        max_per_agent=place.placement.max_per_agent,
        number=place.number,
        generation=place.generation,
    )


def _task_from_wire(wire: pb.TaskRecord) -> r.TaskRecord:
    return r.TaskRecord(
        FrameworkId(wire.framework_id),
        _info(wire),
        AgentId(wire.agent_id),
        Role(wire.role),
        wire.client_id,
        wire.seq,
        _kill(wire.kill) if wire.HasField("kill") else None,
        status_from_wire(wire.master_status) if wire.HasField("master_status") else None,
        wire.is_acknowledged,
        _place(wire.queued) if wire.HasField("queued") else None,
        HoldId(wire.hold_id),
        resources_from_wire(wire.held) if wire.hold_id else NOTHING,
        _REQUEUE.from_wire(wire.requeue) if wire.HasField("requeue") else None,
    )


def _info(wire: pb.TaskRecord) -> TaskInfo:
    info = task_from_wire(WireTask.FromString(wire.task))
    if not info.command.secrets:
        return info
    sealed = {
        name: SealedValue(wire.secrets[name].key_id, wire.secrets[name].text)
        if name in wire.secrets
        else WITHHELD
        for name in info.command.secrets
    }
    return replace(info, command=replace(info.command, secrets=sealed))


def _kill(wire: pb.KillRequest) -> tuple[int | None, Reason]:
    return wire.grace_ms if wire.HasField("grace_ms") else None, Reason(wire.reason)


def _place(wire: pb.QueuePlace) -> r.QueuePlace:
    placement = Placement(
        check_constraints(map(constraint_from_wire, wire.constraints)),
        wire.max_per_agent if wire.HasField("max_per_agent") else None,
    )
    return r.QueuePlace(placement, wire.number, wire.generation)


def _token_from_wire(wire: pb.TokenRecord) -> a.TokenRecord:
    token = token_from_wire(wire.token, wire.hash)
    return replace(token, created_ms=wire.token.created_ms, created_by=wire.token.created_by)


_REQUEUE: Final = mapped(
    r.Requeue, pb.Requeue, place=Both(_place_to_wire, _place), avoids=Both(tuple, tuple)
)
TASK: Final = Both(_task_to_wire, _task_from_wire)
TOKEN: Final = Both(
    lambda record: pb.TokenRecord(token=token_to_wire(record), hash=bytes.fromhex(record.hash)),
    _token_from_wire,
)
