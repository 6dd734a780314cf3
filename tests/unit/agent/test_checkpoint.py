"""The checkpoint: durable records are read back, and damage is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.agent import checkpoint as module
from croupier.agent import disk_reserve
from croupier.agent.checkpoint import NAME, Checkpoint, clear
from croupier.agent.checkpoint_mark import NAME as MARK_NAME
from croupier.agent.checkpoint_mark import LogMark
from croupier.agent.core.records import (
    AcknowledgedRecord,
    AgentRecord,
    ForgetTask,
    FrameworkRecord,
    KillRecord,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.record_lines import body_of, heading, line
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskState, TaskStatus
from tests.harness.effort import EFFORT, portion

F = FrameworkId("F1")


def status(task_id: str, sequence: int, state: TaskState) -> TaskStatus:
    return TaskStatus(F, TaskId(task_id), AgentId("A1"), state, sequence=sequence, time_ms=5)


def launched(task_id: str, words: str = "true") -> TaskRecord:
    info = TaskInfo(
        TaskId(task_id),
        Command((words,), environment={"X": "ü\udcff"}),
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


def test_a_wrong_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    whole = written(EVERYTHING)
    flips = (0x01, 0x80, 0x2A)
    for at in range(len(whole)):
        for flip in flips if EFFORT >= 100 else (flips[at % 3],):
            damaged = bytearray(whole)
            damaged[at] ^= flip
            (tmp_path / NAME).write_bytes(damaged)
            try:
                records, _ = opened(tmp_path)
            except InvalidRequest as error:
                assert NAME in str(error)  # noqa: PT017 - either of the two is right
            else:
                assert records == EVERYTHING, f"byte {at}"
                assert at == len(whole) - 1


def test_a_truncated_log_gives_its_complete_lines(tmp_path: Path) -> None:
    whole = written(EVERYTHING)
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    near = {end + step for end in (0, *ends) for step in range(-2, 3)} & {*range(len(whole))}
    for size in sorted(near | {*range(0, len(whole), 1 if EFFORT >= 100 else 5)}):
        (tmp_path / NAME).write_bytes(whole[:size])
        if size < ends[0]:
            with pytest.raises(InvalidRequest, match="line 1 is not that of a checkpoint"):
                opened(tmp_path)
            continue
        records, _ = opened(tmp_path)
        assert records == EVERYTHING[: sum(end <= size for end in ends) - 1]
        assert opened(tmp_path)[0] == records
        assert (tmp_path / NAME).read_bytes() == written(records)


@settings(max_examples=portion(60), deadline=None)
@given(data=st.data())
def test_missing_doubled_and_swapped_lines_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = written(EVERYTHING).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 2))
    match data.draw(st.sampled_from(["missing", "doubled", "swapped"])):
        case "missing":
            del lines[at]
        case "doubled":
            lines.insert(at, lines[at])
        case _:
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
    path = tmp_path_factory.mktemp("log")
    (path / NAME).write_bytes(b"".join(lines))
    with pytest.raises(InvalidRequest, match="--recover=best-effort"):
        opened(path)


async def test_missing_last_lines_are_refused(tmp_path: Path) -> None:
    await kept(tmp_path, EVERYTHING)
    lines = written(EVERYTHING).splitlines(keepends=True)
    for size in range(1, len(lines)):
        (tmp_path / NAME).write_bytes(b"".join(lines[:size]))
        missing = f"its last {len(lines) - size} lines are missing"
        with pytest.raises(InvalidRequest, match=missing):
            opened(tmp_path)
    records, damaged = opened(tmp_path, lenient=True)
    assert (records, damaged) == (EVERYTHING[:-1], ["its last 1 lines are missing"])
    # The log itself now records the loss.
    assert opened(tmp_path) == ([*records, replace(AGENT, incomplete=True)], [])


async def test_an_older_copy_of_the_log_is_refused(tmp_path: Path) -> None:
    checkpoint, _ = Checkpoint.open(tmp_path)
    await checkpoint.commit(EVERYTHING)
    before = (tmp_path / NAME).read_bytes()
    await checkpoint.commit([replace(AGENT, master_epoch=4)])
    checkpoint._try_to_rewrite()
    await checkpoint.close()
    assert len(opened(tmp_path)[0]) == len(EVERYTHING)
    (tmp_path / NAME).write_bytes(before)
    with pytest.raises(InvalidRequest, match="line 9 differs from the one that was written"):
        opened(tmp_path)


async def test_a_deleted_log_is_refused(tmp_path: Path) -> None:
    await kept(tmp_path, EVERYTHING)
    (tmp_path / NAME).unlink()
    with pytest.raises(InvalidRequest, match=r"checkpoint.log is lost\. .*--recover=best-effort"):
        opened(tmp_path)
    assert opened(tmp_path, lenient=True) == ([], ["the whole log is lost"])
    assert opened(tmp_path) == ([AgentRecord(AgentId(""), "", 0, incomplete=True)], [])


@pytest.mark.parametrize("content", [b"", b"x" * 64, b"\0" * 64, b"00000000 5 deadbeef"])
async def test_an_empty_mark_refuses_nothing(tmp_path: Path, content: bytes) -> None:
    await kept(tmp_path, EVERYTHING)
    (tmp_path / MARK_NAME).write_bytes(content)
    assert opened(tmp_path) == (EVERYTHING, [])


class TestTheMark:
    """The mark is never ahead of the log, whenever the agent is killed."""

    async def test_is_written_after_the_log_is_durable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: list[str] = []
        sync, write = os.fdatasync, os.pwrite

        def note_sync(fd: int) -> None:
            done.append("sync")
            sync(fd)

        def note_mark(fd: int, data: bytes, offset: int) -> int:
            done.append("mark")
            return write(fd, data, offset)

        checkpoint, _ = Checkpoint.open(tmp_path)
        monkeypatch.setattr(os, "fdatasync", note_sync)
        monkeypatch.setattr(os, "pwrite", note_mark)
        await checkpoint.commit(EVERYTHING)
        assert done == ["sync", "mark"]
        await checkpoint.close()

    @pytest.mark.parametrize("step", ["clear", "write"])
    async def test_is_cleared_before_the_log_is_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        class KilledError(BaseException):
            pass

        def kill(*arguments: object) -> None:
            raise KilledError

        checkpoint, _ = Checkpoint.open(tmp_path)
        await checkpoint.commit([*EVERYTHING, *EVERYTHING])
        with monkeypatch.context() as patched:
            patched.setattr(LogMark, step, kill)
            with pytest.raises(KilledError):
                checkpoint._rewrite()
        checkpoint._abandon()
        assert opened(tmp_path)[1] == []


def test_best_effort_skips_damaged_lines_and_reports_them(tmp_path: Path) -> None:
    lines = written(EVERYTHING).splitlines(keepends=True)
    lines[3] = b"x" + lines[3][1:]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    expected = EVERYTHING[:2] + EVERYTHING[3:]
    records, damaged = opened(tmp_path, lenient=True)
    assert (records, damaged) == (expected, ["line 4 is damaged"])
    # The log is intact again, and records that it was not.
    again, damaged = opened(tmp_path)
    assert (again, damaged) == ([*expected, replace(AGENT, incomplete=True)], [])


@pytest.mark.parametrize("size", [0, 5])
def test_best_effort_accepts_another_file_as_an_empty_log(tmp_path: Path, size: int) -> None:
    (tmp_path / NAME).write_bytes(heading()[:size])
    assert opened(tmp_path, lenient=True)[0] == []
    assert opened(tmp_path) == ([AgentRecord(AgentId(""), "", 0, incomplete=True)], [])


@pytest.mark.parametrize("lenient", [False, True])
def test_a_later_format_is_refused_by_name_in_every_mode(tmp_path: Path, lenient: bool) -> None:
    (tmp_path / NAME).write_bytes(line(1, b'{"croupier-agent-checkpoint":2}'))
    says = "is of format 2; this agent reads only 1: use the newer release that wrote it"
    with pytest.raises(InvalidRequest, match=says):
        opened(tmp_path, lenient=lenient)


@pytest.mark.parametrize("first", [b"{}", b"[]", b"x", b'{"croupier-agent-checkpoint":"1"}'])
def test_the_log_of_another_program_is_refused(tmp_path: Path, first: bytes) -> None:
    (tmp_path / NAME).write_bytes(line(1, first))
    with pytest.raises(InvalidRequest, match="not a checkpoint of croupier-agent"):
        opened(tmp_path)


@pytest.mark.parametrize("body", [b'{"kind":"AgentRecord"}', b"[]", b"x"])
def test_an_invalid_record_is_damage(tmp_path: Path, body: bytes) -> None:
    (tmp_path / NAME).write_bytes(heading() + line(2, body))
    with pytest.raises(InvalidRequest, match="line 2 is of no known form"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"Planet"}',
        b'{"kind":"FrameworkRecord","framework_id":"f","epoch":1,"planet":2}',
        b'{"kind":"KillRecord","framework_id":"f","task_id":"t","grace_ms":1,"reason":"PLANET"}',
    ],
)
def test_a_record_of_a_newer_release_is_refused_by_name(tmp_path: Path, body: bytes) -> None:
    (tmp_path / NAME).write_bytes(heading() + line(2, body))
    says = r"is of a newer release \(line 2: .*'(Planet|planet|PLANET)'.*\): use the release that"
    with pytest.raises(InvalidRequest, match=says):
        opened(tmp_path)
    assert opened(tmp_path, lenient=True)[0] == []


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


class TestAFullDisk:
    async def test_releases_its_reserve_when_a_record_does_not_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        full = Full(tmp_path, monkeypatch)
        checkpoint, _ = Checkpoint.open(tmp_path)
        rooms = [checkpoint.has_room]
        assert (tmp_path / disk_reserve.NAME).stat().st_size == disk_reserve.RESERVE_BYTES
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
        (tmp_path / disk_reserve.NAME).unlink()
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
    least = disk_reserve.LEAST_FREE_BYTES
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
        assert (tmp_path / disk_reserve.NAME).exists()
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
        self._reserve = path / disk_reserve.NAME
        self._room: int | None = None
        self._was_reserved = False
        write, allocate = os.write, os.posix_fallocate

        def limited(fd: int, data: bytes) -> int:
            if self._room is None:
                return write(fd, data)
            if self._was_reserved and not self._reserve.exists():
                self._was_reserved = False
                self._room += disk_reserve.RESERVE_BYTES
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


def test_a_line_with_a_huge_number_is_damage(tmp_path: Path) -> None:
    counted = b"9" * 5000 + b" {}"
    (tmp_path / NAME).write_bytes(heading() + b"%08x %s\n" % (crc32(counted), counted))
    with pytest.raises(InvalidRequest, match="line 2 is damaged"):
        Checkpoint.open(tmp_path)


def test_a_pipe_in_place_of_the_log_does_not_block_the_agent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(Unavailable, match="Not a plain file"):
        Checkpoint.open(tmp_path)


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
