"""Conversion of the store's records to the messages of `storage.proto`, and back."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core import access_records as a
from croupier.master.core import records as r
from croupier.master.wire.access import rule_from_wire, rule_to_wire, token_from_wire, token_to_wire
from croupier.model.access import KeyId
from croupier.model.attributes import check_constraints
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.placement import Placement
from croupier.model.principal import PrincipalName
from croupier.model.secrets import WITHHELD, SealedValue
from croupier.model.task import Reason, TaskInfo
from croupier.v1 import storage_pb2 as pb
from croupier.v1.task_pb2 import Reason as WireReason
from croupier.v1.task_pb2 import TaskInfo as WireTask
from croupier.wire.resources import (
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)
from croupier.wire.roles import settings_from_wire, settings_to_wire
from croupier.wire.task import status_from_wire, status_to_wire, task_from_wire, task_to_bytes


def master_to_wire(record: r.MasterRecord) -> pb.MasterRecord:
    """Return the message for `record`."""
    return pb.MasterRecord(
        cluster=record.cluster,
        epoch=record.epoch,
        secret=record.secret,
        generation=record.generation,
        terms=[pb.PastTerm(epoch=t.epoch, name=t.name, commits=t.commits) for t in record.terms],
    )


def master_from_wire(wire: pb.MasterRecord) -> r.MasterRecord:
    """Return the record in `wire`."""
    terms = tuple(r.PastTerm(each.epoch, each.name, each.commits) for each in wire.terms)
    return r.MasterRecord(wire.cluster, wire.epoch, wire.secret, wire.generation, terms)


def agent_to_wire(record: r.AgentRecord) -> pb.AgentRecord:
    """Return the message for `record`."""
    return pb.AgentRecord(
        agent_id=record.agent_id,
        hostname=record.hostname,
        deactivated=record.deactivated,
        drain=pb.DrainRequest(grace_ms=record.drain.grace_ms) if record.drain else None,
        gone=record.gone,
        unreachable=record.unreachable,
        total=resources_to_wire(record.total),
        is_authenticated=record.is_authenticated,
    )


def agent_from_wire(wire: pb.AgentRecord) -> r.AgentRecord:
    """Return the record in `wire`."""
    drain = wire.drain
    return r.AgentRecord(
        AgentId(wire.agent_id),
        wire.hostname,
        wire.deactivated,
        r.DrainRequest(drain.grace_ms if drain.HasField("grace_ms") else None)
        if wire.HasField("drain")
        else None,
        wire.gone,
        wire.unreachable,
        resources_from_wire(wire.total),
        wire.is_authenticated,
    )


def framework_to_wire(record: r.FrameworkRecord) -> pb.FrameworkRecord:
    """Return the message for `record`."""
    return pb.FrameworkRecord(
        framework_id=record.framework_id,
        name=record.name,
        roles=record.roles,
        failover_timeout_s=record.failover_timeout_s,
        removed=record.removed,
        client_id=record.client_id,
        epoch=record.epoch,
        is_unrecorded=record.is_unrecorded,
        earlier_clients=record.earlier_clients,
        owner=record.owner,
    )


def framework_from_wire(wire: pb.FrameworkRecord) -> r.FrameworkRecord:
    """Return the record in `wire`."""
    return r.FrameworkRecord(
        FrameworkId(wire.framework_id),
        wire.name,
        tuple(map(Role, wire.roles)),
        wire.failover_timeout_s,
        wire.removed,
        wire.client_id,
        wire.epoch,
        wire.is_unrecorded,
        tuple(wire.earlier_clients),
        PrincipalName(wire.owner),
    )


def role_to_wire(record: r.RoleRecord) -> pb.RoleRecord:
    """Return the message for `record`."""
    return pb.RoleRecord(role=record.role, settings=settings_to_wire(record.settings))


def role_from_wire(wire: pb.RoleRecord) -> r.RoleRecord:
    """Return the record in `wire`."""
    return r.RoleRecord(Role(wire.role), settings_from_wire(wire.settings))


def task_record_to_wire(record: r.TaskRecord) -> pb.TaskRecord:
    """Return the message for `record`."""
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
        _add_place(wire.queued, record.queued)
    for name, value in record.info.command.secrets.items():
        wire.secrets[name].key_id, wire.secrets[name].text = value.key_id, value.text
    return wire


def _add_place(wire: pb.QueuePlace, place: r.QueuePlace) -> None:
    wire.number, wire.generation = place.number, place.generation
    wire.constraints.extend(map(constraint_to_wire, place.placement.constraints))
    if place.placement.max_per_agent is not None:
        wire.max_per_agent = place.placement.max_per_agent
    wire.SetInParent()


def task_record_from_wire(wire: pb.TaskRecord) -> r.TaskRecord:
    """Return the record in `wire`."""
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


def group_to_wire(record: a.GroupRecord) -> pb.GroupRecord:
    """Return the message for `record`."""
    return pb.GroupRecord(name=record.name, members=sorted(record.members))


def group_from_wire(wire: pb.GroupRecord) -> a.GroupRecord:
    """Return the record in `wire`."""
    return a.GroupRecord(wire.name, frozenset(wire.members))


def rule_record_to_wire(record: a.RuleRecord) -> pb.RuleRecord:
    """Return the message for `record`."""
    return pb.RuleRecord(rule=rule_to_wire(record.rule))


def rule_record_from_wire(wire: pb.RuleRecord) -> a.RuleRecord:
    """Return the record in `wire`."""
    return a.RuleRecord(rule_from_wire(wire.rule))


def token_record_to_wire(record: a.TokenRecord) -> pb.TokenRecord:
    """Return the message for `record`."""
    return pb.TokenRecord(token=token_to_wire(record), hash=bytes.fromhex(record.hash))


def token_record_from_wire(wire: pb.TokenRecord) -> a.TokenRecord:
    """Return the record in `wire`."""
    token = token_from_wire(wire.token, wire.hash)
    return replace(token, created_ms=wire.token.created_ms, created_by=wire.token.created_by)


def revoked_to_wire(record: a.RevokedKeyRecord) -> pb.RevokedKeyRecord:
    """Return the message for `record`."""
    return pb.RevokedKeyRecord(key_id=record.key_id, description=record.description)


def revoked_from_wire(wire: pb.RevokedKeyRecord) -> a.RevokedKeyRecord:
    """Return the record in `wire`."""
    return a.RevokedKeyRecord(KeyId(wire.key_id), wire.description)
