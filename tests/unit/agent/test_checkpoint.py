"""The checkpoint: durable records are read back in their order."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent import checkpoint as module
from croupier.agent.checkpoint import NAME, Checkpoint, clear
from croupier.agent.core.records import (
    ForgetTask,
    FrameworkRecord,
)
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, TaskId
from tests.harness.agent_checkpoints import (
    AGENT,
    EVERYTHING,
    F,
    ended,
    kept,
    launched,
    opened,
)


async def test_committed_records_are_read_in_order(tmp_path: Path) -> None:
    await kept(tmp_path, EVERYTHING[:3], EVERYTHING[3:])
    assert opened(tmp_path) == (EVERYTHING, [])
    await kept(tmp_path, [ForgetTask(F, TaskId("t1"))])
    assert opened(tmp_path) == ([*EVERYTHING, ForgetTask(F, TaskId("t1"))], [])


async def test_lazy_records_are_written_before_the_next_commit(tmp_path: Path) -> None:
    checkpoint, _ = Checkpoint.open(tmp_path)
    checkpoint.defer(EVERYTHING[:2])
    assert not checkpoint.is_urgent
    assert opened(tmp_path)[0] == []
    assert await checkpoint.commit(EVERYTHING[2:3]) > 0
    assert not checkpoint.is_urgent
    assert await checkpoint.commit() == 0
    checkpoint.defer(EVERYTHING[3:])
    await checkpoint.close()
    assert opened(tmp_path)[0] == EVERYTHING


async def test_a_rewritten_log_keeps_the_order(tmp_path: Path) -> None:
    """The order of two records may matter, even of different subjects."""
    checkpoint, _ = Checkpoint.open(tmp_path)
    renamed = replace(AGENT, agent_id=AgentId("A2"))
    await checkpoint.commit([*EVERYTHING, renamed, launched("t3"), ended("t2")])
    checkpoint._try_to_rewrite()
    await checkpoint.commit([renamed, launched("t4")])
    checkpoint._try_to_rewrite()
    await checkpoint.close()
    expected = [*EVERYTHING[1:], launched("t3"), ended("t2"), renamed, launched("t4")]
    assert opened(tmp_path) == (expected, [])


async def test_the_log_does_not_grow_with_replaced_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLACK_BYTES", 20_000)
    checkpoint, _ = Checkpoint.open(tmp_path)
    checkpoint._rewrite_at = 20_000
    await checkpoint.commit(EVERYTHING)
    largest = 0
    for number in range(500):
        name = f"x{number}"
        await checkpoint.commit([launched(name), ended(name)])
        await checkpoint.commit([ForgetTask(F, TaskId(name)), FrameworkRecord(F, number + 3)])
        largest = max(largest, (tmp_path / NAME).stat().st_size)
    await checkpoint.close()
    assert largest < 30_000
    records, _ = opened(tmp_path)
    assert FrameworkRecord(F, 502) in records
    for record in EVERYTHING:
        assert isinstance(record, FrameworkRecord) or record in records


async def test_a_commit_does_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, _ = Checkpoint.open(tmp_path)
    turns = asyncio.Event()
    loop = asyncio.get_running_loop()
    released = asyncio.run_coroutine_threadsafe

    def slow(fd: int) -> None:
        released(turns.wait(), loop).result(timeout=10)

    monkeypatch.setattr(os, "fdatasync", slow)
    commit = asyncio.create_task(checkpoint.commit(EVERYTHING))
    await asyncio.sleep(0)
    assert not commit.done()
    turns.set()
    await commit
    await checkpoint.close()


async def test_a_cleared_checkpoint_is_empty(tmp_path: Path) -> None:
    await kept(tmp_path, EVERYTHING)
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []
    clear(tmp_path)
    assert opened(tmp_path) == ([], [])


async def test_lines_of_a_killed_agent_are_synced_before_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept(tmp_path, EVERYTHING)
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    opened(tmp_path)
    assert str(tmp_path / NAME) in synced


async def test_a_log_whose_rename_is_not_synced_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept(tmp_path, EVERYTHING)
    checkpoint, _ = Checkpoint.open(tmp_path)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "sync_directory", full)
    with pytest.raises(Unavailable, match="cannot rewrite"):
        checkpoint._try_to_rewrite()
    checkpoint._abandon()
    monkeypatch.undo()
    assert opened(tmp_path) == (EVERYTHING, [])
