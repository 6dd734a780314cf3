"""Conversion of the checkpoint's records to the messages of `storage.proto`, and back."""

from __future__ import annotations

from typing import Final, cast

from croupier.agent.core import records as r
from croupier.model.errors import CroupierError
from croupier.model.ids import Role
from croupier.model.task import Reason
from croupier.v1 import agent_pb2, task_pb2
from croupier.v1.storage_pb2 import CheckpointRecord
from croupier.wire.mapped import Both, mapped
from croupier.wire.store_position import position_from_wire, position_to_wire
from croupier.wire.task import status_from_wire, status_to_wire, task_from_wire, task_to_bytes


class UnknownRecord(CroupierError):
    """A record of a kind that only a newer release has."""


def _task_to_wire(record: r.TaskRecord) -> CheckpointRecord.Task:
    return CheckpointRecord.Task(
        task=task_to_bytes(record.info),
        role=record.role,
        run=record.run,
        first=status_to_wire(record.first),
        proof=bytes.fromhex(record.proof),
    )


def _task_from_wire(wire: CheckpointRecord.Task) -> r.TaskRecord:
    info = task_from_wire(task_pb2.TaskInfo.FromString(wire.task))
    first = status_from_wire(wire.first)
    return r.TaskRecord(info, Role(wire.role), wire.run, first, wire.proof.hex())


# By the fields of the message.
_KINDS: Final[dict[str, tuple[type, Both]]] = {
    "agent": (r.AgentRecord, mapped(r.AgentRecord, CheckpointRecord.Agent)),
    "position": (
        r.PositionRecord,
        Both(
            lambda record: position_to_wire(record.position),
            lambda wire: r.PositionRecord(position_from_wire(wire)),
        ),
    ),
    "framework": (r.FrameworkRecord, mapped(r.FrameworkRecord, CheckpointRecord.Framework)),
    "forget_framework": (
        r.ForgetFramework, Both(lambda record: record.framework_id, r.ForgetFramework)
    ),
    "task": (r.TaskRecord, Both(_task_to_wire, _task_from_wire)),
    "update": (
        r.UpdateRecord,
        Both(
            lambda record: status_to_wire(record.status),
            lambda wire: r.UpdateRecord(status_from_wire(wire)),
        ),
    ),
    "kill": (r.KillRecord, mapped(r.KillRecord, CheckpointRecord.Kill, reason=Both(int, Reason))),
    "acknowledged": (
        r.AcknowledgedRecord, mapped(r.AcknowledgedRecord, agent_pb2.AcknowledgeUpdate)
    ),
    "void": (r.VoidRecord, mapped(r.VoidRecord, CheckpointRecord.TaskKey)),
    "forget_task": (r.ForgetTask, mapped(r.ForgetTask, CheckpointRecord.TaskKey)),
}  # fmt: skip
_NAMES: Final = {cls: (name, both) for name, (cls, both) in _KINDS.items()}


def record_to_wire(record: r.Record) -> CheckpointRecord:
    """Return the message for `record`."""
    name, both = _NAMES[type(record)]
    return CheckpointRecord(**{name: both.to_wire(record)})


def record_from_wire(wire: CheckpointRecord) -> r.Record:
    """Return the record in `wire`.

    Raises:
        UnknownRecord: if a newer release wrote it.
        InvalidRequest, ValueError: if a value in it is illegal.
        DecodeError: if the description of a task is damaged.
    """
    kind = wire.WhichOneof("record")
    if kind is None:
        raise UnknownRecord("a record of an unknown kind")
    return cast("r.Record", _KINDS[kind][1].from_wire(getattr(wire, kind)))
