"""Checkpoints of agents: some records, written and read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import (
    AcknowledgedRecord,
    AgentRecord,
    FrameworkRecord,
    KillRecord,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.record_lines import body_of, heading, line
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskState, TaskStatus

F = FrameworkId("F1")


def status(task_id: str, sequence: int, state: TaskState) -> TaskStatus:
    return TaskStatus(F, TaskId(task_id), AgentId("A1"), state, sequence=sequence, time_ms=5)


def launched(task_id: str, words: str = "true") -> TaskRecord:
    info = TaskInfo(
        TaskId(task_id),
        Command((words,), environment={"X": "ü"}),
        Resources.parse("cpus:1;ports:[1-2,5]"),
        labels=(("a", "b"),),
    )
    return TaskRecord(info, Role("r"), f"1-{task_id}", status(task_id, 1, TaskState.STARTING))


def ended(task_id: str) -> UpdateRecord:
    return UpdateRecord(status(task_id, 2, TaskState.FINISHED))


AGENT = AgentRecord(AgentId("A1"), "boot", 3)
EVERYTHING: list[Record] = [
    AGENT,
    FrameworkRecord(F, 2),
    launched("t1"),
    launched("t2"),
    KillRecord(F, TaskId("t2"), 500, Reason.KILLED_BY_FRAMEWORK),
    ended("t1"),
    AcknowledgedRecord(F, TaskId("t1"), 1),
    VoidRecord(F, TaskId("t2")),
]


def opened(path: Path, *, lenient: bool = False) -> tuple[list[Record], list[str]]:
    """Open the checkpoint as a new agent; return its records and damage."""
    checkpoint, loaded = Checkpoint.open(path, lenient=lenient)
    checkpoint._abandon()
    return loaded.records, loaded.damaged


async def kept(path: Path, *batches: Sequence[Record]) -> None:
    checkpoint, _ = Checkpoint.open(path)
    for batch in batches:
        await checkpoint.commit(batch)
    await checkpoint.close()


def written(records: Sequence[Record]) -> bytes:
    return heading() + b"".join(line(n, body_of(each)) for n, each in enumerate(records, 2))
