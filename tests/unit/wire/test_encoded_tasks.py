"""A task's description keeps the bytes as which it came, and nobody writes it again."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core.records import TaskRecord
from croupier.master.store.rows import decode, encode
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.secrets import SecretValues
from croupier.model.task import MAX_TAGS, Command, TaskInfo
from croupier.v1.storage_pb2 import TaskRecord as WireRecord
from croupier.v1.task_pb2 import TaskInfo as WireTask
from croupier.wire.task import task_from_wire, task_to_bytes, task_to_wire

INFO = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse("cpus:1"))
# Field 100 with the text "new", of a newer release.
NEWER = b"\xa2\x06\x03new"


def newer_task() -> TaskInfo:
    return task_from_wire(WireTask.FromString(task_to_bytes(INFO) + NEWER))


def test_fields_of_a_newer_release_reach_ledger_and_order() -> None:
    info = newer_task()
    assert info == INFO
    assert task_to_bytes(info).endswith(NEWER)
    assert task_to_wire(info).SerializeToString().endswith(NEWER)
    row = encode(TaskRecord(FrameworkId("F"), info, AgentId("A"), Role("r")))
    assert row.body is not None
    assert WireRecord.FromString(row.body).task.endswith(NEWER)
    again = decode("task", row.body)
    assert isinstance(again, TaskRecord)
    assert again.info.encoded == info.encoded


def test_a_changed_copy_is_written_anew() -> None:
    other = replace(newer_task(), name="other")
    assert other.encoded == b""
    assert task_to_wire(other).name == "other"


def test_bytes_that_hold_secrets_or_much_that_nobody_knows_are_not_kept() -> None:
    values = SecretValues({"KEY": "x"})
    command = Command(("true",), secrets=values.withheld())
    secret = task_from_wire(task_to_wire(replace(INFO, command=command), values))
    assert secret.encoded == b""
    padding = NEWER * (MAX_TAGS // len(NEWER) + 1)
    assert task_from_wire(WireTask.FromString(task_to_bytes(INFO) + padding)).encoded == b""


def test_tasks_of_one_shape_share_its_resources() -> None:
    assert newer_task().resources is newer_task().resources
