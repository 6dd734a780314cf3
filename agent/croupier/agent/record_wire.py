"""Conversion of the checkpoint's records to the messages of `storage.proto`, and back."""

from __future__ import annotations

from croupier.agent.core import records as r
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.task import Reason
from croupier.v1 import agent_pb2, task_pb2
from croupier.v1 import storage_pb2 as pb
from croupier.wire.store_position import position_from_wire, position_to_wire
from croupier.wire.task import status_from_wire, status_to_wire, task_from_wire, task_to_bytes

_Record = pb.CheckpointRecord


class UnknownRecord(CroupierError):
    """A record of a kind that only a newer release has."""


def record_to_wire(record: r.Record) -> pb.CheckpointRecord:
    """Return the message for `record`."""
    match record:
        case r.TaskRecord():
            task = _Record.Task(
                task=task_to_bytes(record.info),
                role=record.role,
                run=record.run,
                first=status_to_wire(record.first),
                proof=bytes.fromhex(record.proof),
            )
            return _Record(task=task)
        case r.UpdateRecord(status):
            return _Record(update=status_to_wire(status))
        case r.AcknowledgedRecord(framework_id, task_id, sequence):
            acknowledged = agent_pb2.AcknowledgeUpdate(
                framework_id=framework_id, task_id=task_id, sequence=sequence
            )
            return _Record(acknowledged=acknowledged)
        case r.ForgetTask(framework_id, task_id):
            return _Record(forget_task=_Record.TaskKey(framework_id=framework_id, task_id=task_id))
        case r.VoidRecord(framework_id, task_id):
            return _Record(void=_Record.TaskKey(framework_id=framework_id, task_id=task_id))
        case r.KillRecord():
            kill = _Record.Kill(
                framework_id=record.framework_id,
                task_id=record.task_id,
                grace_ms=record.grace_ms,
                reason=task_pb2.Reason.ValueType(record.reason),
            )
            return _Record(kill=kill)
        case r.PositionRecord(position):
            return _Record(position=position_to_wire(position))
        case r.FrameworkRecord(framework_id, epoch):
            return _Record(framework=_Record.Framework(framework_id=framework_id, epoch=epoch))
        case r.ForgetFramework(framework_id):
            return _Record(forget_framework=framework_id)
        case r.AgentRecord():
            agent = _Record.Agent(
                agent_id=record.agent_id,
                boot_id=record.boot_id,
                master_epoch=record.master_epoch,
                incomplete=record.incomplete,
                cluster=record.cluster,
            )
            return _Record(agent=agent)


def record_from_wire(wire: pb.CheckpointRecord) -> r.Record:
    """Return the record in `wire`.

    Raises:
        UnknownRecord: if a newer release wrote it.
        InvalidRequest, ValueError: if a value in it is illegal.
        DecodeError: if the description of a task is damaged.
    """
    kind = wire.WhichOneof("record")
    match kind:
        case "task":
            task = wire.task
            info = task_from_wire(task_pb2.TaskInfo.FromString(task.task))
            first = status_from_wire(task.first)
            return r.TaskRecord(info, Role(task.role), task.run, first, task.proof.hex())
        case "update":
            return r.UpdateRecord(status_from_wire(wire.update))
        case "acknowledged":
            return r.AcknowledgedRecord(*_key(wire.acknowledged), wire.acknowledged.sequence)
        case "forget_task":
            return r.ForgetTask(*_key(wire.forget_task))
        case "void":
            return r.VoidRecord(*_key(wire.void))
        case "kill":
            return r.KillRecord(*_key(wire.kill), wire.kill.grace_ms, Reason(wire.kill.reason))
        case "position":
            return r.PositionRecord(position_from_wire(wire.position))
        case "framework":
            return r.FrameworkRecord(FrameworkId(wire.framework.framework_id), wire.framework.epoch)
        case "forget_framework":
            return r.ForgetFramework(FrameworkId(wire.forget_framework))
        case "agent":
            agent = wire.agent
            return r.AgentRecord(
                AgentId(agent.agent_id),
                agent.boot_id,
                agent.master_epoch,
                agent.incomplete,
                agent.cluster,
            )
        case _:
            raise UnknownRecord("a record of an unknown kind")


def _key(
    wire: agent_pb2.AcknowledgeUpdate | pb.CheckpointRecord.TaskKey | pb.CheckpointRecord.Kill,
) -> tuple[FrameworkId, TaskId]:
    return FrameworkId(wire.framework_id), TaskId(wire.task_id)
