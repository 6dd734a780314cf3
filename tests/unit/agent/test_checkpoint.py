"""The checkpoint: durable records are read back in their order."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent import checkpoint as module
from croupier.agent import checkpoint_files
from croupier.agent.checkpoint import NAME, Checkpoint, clear
from croupier.agent.core.records import ForgetTask, FrameworkRecord
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, TaskId
from tests.harness.agent_checkpoints import AGENT, EVERYTHING, F, ended, kept, launched, opened


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


# A checkpoint on a disk that is full, or whose directory was removed.


class TestAFullDisk:
    async def test_releases_its_reserve_when_a_record_does_not_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        full = Full(tmp_path, monkeypatch)
        checkpoint, _ = Checkpoint.open(tmp_path)
        rooms = [checkpoint.has_room]
        assert (
            tmp_path / checkpoint_files.RESERVE_NAME
        ).stat().st_size == checkpoint_files.RESERVE_BYTES
        await checkpoint.commit(EVERYTHING[:2])
        full.fill()
        await checkpoint.commit(EVERYTHING[2:5])
        rooms.append(checkpoint.has_room)
        await checkpoint.commit(EVERYTHING[5:])
        full.free()
        await checkpoint.commit([FrameworkRecord(F, 9)])
        assert [*rooms, checkpoint.has_room] == [True, False, True]
        await checkpoint.close()
        assert opened(tmp_path)[0] == [*EVERYTHING, FrameworkRecord(F, 9)]

    async def test_without_a_reserve_ends_the_agent_and_keeps_durable_records(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        full = Full(tmp_path, monkeypatch)
        checkpoint, _ = Checkpoint.open(tmp_path)
        await checkpoint.commit(EVERYTHING[:2])
        (tmp_path / checkpoint_files.RESERVE_NAME).unlink()
        full.fill()
        with pytest.raises(Unavailable, match=r"No space left on device; the tasks keep running"):
            await checkpoint.commit(EVERYTHING[2:])
        await checkpoint.close()
        full.free()
        assert opened(tmp_path)[0] == EVERYTHING[:2]


class TestARemovedDirectory:
    async def test_is_reported_and_commits_still_succeed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint, _ = Checkpoint.open(_made(tmp_path))
        assert await checkpoint.check() == []
        shutil.rmtree(tmp_path / "work")
        (problem,) = await checkpoint.check()
        assert problem.part == "checkpoint"
        assert "was removed or replaced" in problem.message
        monkeypatch.setattr(module, "SLACK_BYTES", 0)
        checkpoint._rewrite_at = 0
        await checkpoint.commit(EVERYTHING)
        await checkpoint.close()
        assert not (tmp_path / "work").exists()

    async def test_the_records_of_another_agent_there_are_not_touched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, _ = Checkpoint.open(_made(tmp_path))
        shutil.rmtree(tmp_path / "work")
        second, _ = Checkpoint.open(_made(tmp_path))
        monkeypatch.setattr(module, "SLACK_BYTES", 0)
        first._rewrite_at = 0
        first._reserve.has_room = False
        await second.commit(EVERYTHING[:2])
        before = {path: path.stat().st_ino for path in (tmp_path / "work").iterdir()}
        await first.commit(EVERYTHING)
        assert (await first.check())[0].part == "checkpoint"
        assert {path: path.stat().st_ino for path in (tmp_path / "work").iterdir()} == before
        await first.close()
        await second.close()
        assert opened(tmp_path / "work")[0] == EVERYTHING[:2]


async def test_a_disk_short_of_space_stops_new_tasks_before_the_reserve_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = checkpoint_files.LEAST_FREE_BYTES
    free = 10 * least
    real = os.fstatvfs(0)

    def disk(_: int) -> os.statvfs_result:
        blocks = (1 << 20, free // 4096, free // 4096)
        return os.statvfs_result((4096, 4096, *blocks, *real[5:]))

    monkeypatch.setattr(os, "fstatvfs", disk)
    checkpoint, _ = Checkpoint.open(tmp_path)
    rooms = []
    # It has space again with twice the minimum.
    for now in (2 * least, least, least - 4096, least, 2 * least - 4096, 2 * least):
        free = now
        rooms.append(not await checkpoint.check())
        assert (tmp_path / checkpoint_files.RESERVE_NAME).exists()
    assert rooms == [True, True, False, False, False, True]
    free = least - 4096
    await checkpoint.commit(EVERYTHING[:1])
    assert not checkpoint.has_room
    await checkpoint.close()


def _made(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


class Full:
    """A disk that may be full: it has ten bytes left, and the reserve if that is released."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reserve = path / checkpoint_files.RESERVE_NAME
        self._room: int | None = None
        self._was_reserved = False
        write, allocate = os.write, os.posix_fallocate

        def limited(fd: int, data: bytes) -> int:
            if self._room is None:
                return write(fd, data)
            if self._was_reserved and not self._reserve.exists():
                self._was_reserved = False
                self._room += checkpoint_files.RESERVE_BYTES
            if not self._room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done = write(fd, bytes(data)[: self._room])
            self._room -= done
            return done

        def refuse(fd: int, offset: int, size: int) -> None:
            if self._room is not None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            allocate(fd, offset, size)

        monkeypatch.setattr(os, "write", limited)
        monkeypatch.setattr(os, "posix_fallocate", refuse)

    def fill(self) -> None:
        """Leave space for ten bytes."""
        self._was_reserved = self._reserve.exists()
        self._room = 10

    def free(self) -> None:
        """Free the disk."""
        self._room = None
