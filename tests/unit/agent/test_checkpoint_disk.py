"""A checkpoint on a disk that is full, or whose directory was removed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from croupier.agent import checkpoint as module
from croupier.agent import checkpoint_files
from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import (
    FrameworkRecord,
)
from croupier.model.errors import Unavailable
from tests.harness.agent_checkpoints import (
    EVERYTHING,
    F,
    opened,
)


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
