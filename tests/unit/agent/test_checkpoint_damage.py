"""Damage of a checkpoint is refused, or skipped on request."""

from __future__ import annotations

import os
from binascii import b2a_base64
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.agent.checkpoint import NAME, Checkpoint
from croupier.agent.checkpoint_files import MARK_NAME, LogMark
from croupier.agent.core.records import AgentRecord
from croupier.agent.record_lines import heading, line
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import AgentId
from tests.harness.agent_checkpoints import AGENT, EVERYTHING, kept, opened, written
from tests.harness.effort import EFFORT, portion


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
    (tmp_path / NAME).write_bytes(line(1, b'{"croupier-agent-checkpoint":3}'))
    says = "is of format 3; this agent reads up to 2: use the newer release that wrote it"
    with pytest.raises(InvalidRequest, match=says):
        opened(tmp_path, lenient=lenient)


@pytest.mark.parametrize("first", [b"{}", b"[]", b"x", b'{"croupier-agent-checkpoint":"1"}'])
def test_the_log_of_another_program_is_refused(tmp_path: Path, first: bytes) -> None:
    (tmp_path / NAME).write_bytes(line(1, first))
    with pytest.raises(InvalidRequest, match="not a checkpoint of croupier-agent"):
        opened(tmp_path)


@pytest.mark.parametrize("body", [b"/w==", b"CgH/", b"x"])
def test_an_invalid_record_is_damage(tmp_path: Path, body: bytes) -> None:
    (tmp_path / NAME).write_bytes(heading() + line(2, body))
    with pytest.raises(InvalidRequest, match="line 2 is of no known form"):
        opened(tmp_path)


def test_a_record_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    # Field 100 with the text "new".
    (tmp_path / NAME).write_bytes(
        heading() + line(2, b2a_base64(b"\xa2\x06\x03new", newline=False))
    )
    says = r"is of a newer release \(line 2: a record of an unknown kind\): use the release that"
    with pytest.raises(InvalidRequest, match=says):
        opened(tmp_path)
    assert opened(tmp_path, lenient=True)[0] == []


def test_a_line_with_a_huge_number_is_damage(tmp_path: Path) -> None:
    counted = b"9" * 5000 + b" {}"
    (tmp_path / NAME).write_bytes(heading() + b"%08x %s\n" % (crc32(counted), counted))
    with pytest.raises(InvalidRequest, match="line 2 is damaged"):
        Checkpoint.open(tmp_path)


def test_a_pipe_in_place_of_the_log_does_not_block_the_agent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(Unavailable, match="Not a plain file"):
        Checkpoint.open(tmp_path)
