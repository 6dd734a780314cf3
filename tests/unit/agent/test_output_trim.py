"""The output of tasks is bounded without moving a byte, and parts of it are found by offset."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.output_trim import OutputTrim, first_kept
from croupier.agent.sandbox import Sandboxes
from croupier.agent.served_files import PartRequest, last_lines, requested_part
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.output_bound import OutputBound, format_output_size, parse_output_size
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo

KEY = (FrameworkId("F1"), TaskId("t1"))
KB = 1024
BOUND = OutputBound(64 * KB, 2)
INFO = TaskInfo(TaskId("t1"), Command(("true",)), Resources.parse("cpus:1"))


async def test_the_oldest_output_is_freed_and_the_rest_keeps_its_offsets(
    sandboxes: Sandboxes,
) -> None:
    now, live = [0.0], [True]
    trim = OutputTrim(sandboxes, BOUND, lambda _: live[0], lambda: now[0])
    lines = b"".join(b"%015d\n" % number for number in range(40_000))
    with sandboxes.create(KEY) as sandbox, sandbox.streams() as (stdout, stderr):
        trim.add(KEY, INFO)
        for begin in range(0, len(lines), 50_000):
            os.write(stdout, lines[begin : begin + 50_000])
            now[0] += 10
            await trim.check()
            fd = sandboxes.open_output(KEY, "stdout")
            first, size = first_kept(fd), min(begin + 50_000, len(lines))
            assert first == BOUND.cut(size)
            assert os.pread(fd, 10**6, first) == lines[first:size]
            assert os.fstat(fd).st_blocks * 512 <= 128 * KB + 8192
            os.close(fd)
        assert first > 0
        os.write(stderr, b"few")
    live[0] = False
    await trim.check()
    assert len(trim) == 0
    fd = sandboxes.open_output(KEY, "stderr")
    assert (first_kept(fd), os.read(fd, 9)) == (0, b"few")
    os.close(fd)


async def test_a_task_may_ask_for_its_own_bound_and_files_that_are_not_its_own_are_left(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    trim = OutputTrim(sandboxes, OutputBound(0, 8), lambda _: False)
    trim.add(KEY, INFO)
    assert len(trim) == 0
    with sandboxes.create(KEY) as sandbox, sandbox.streams():
        trim.add(KEY, replace(INFO, output=BOUND))
        for name in ("stdout", "stderr"):
            (Path(sandbox.path) / name).unlink()
        other = tmp_path / "other"
        other.write_bytes(b"x" * 10**6)
        (Path(sandbox.path) / "stdout").symlink_to(other)
        (Path(sandbox.path) / "stderr").hardlink_to(other)
    await trim.check()
    assert len(trim) == 0
    assert other.read_bytes() == b"x" * 10**6


def test_a_bound_counts_whole_files() -> None:
    bound = OutputBound(100_000, 3)
    assert [bound.cut(n) for n in (0, 299_999, 300_000, 400_000)] == [0, 0, 98_304, 196_608]
    assert OutputBound().cut(10**9) == 0
    assert OutputBound(1).or_else(OutputBound(2, 3)) == OutputBound(1, 3)
    with pytest.raises(InvalidRequest, match="at least 64KB"):
        OutputBound(1).check()
    with pytest.raises(InvalidRequest, match="between 2 and"):
        OutputBound(0, 1).check()
    assert format_output_size(parse_output_size("64MB")) == "64MB"
    with pytest.raises(InvalidRequest, match="not a size"):
        parse_output_size("much")


@pytest.mark.parametrize(
    ("text", "lines", "begin"),
    [
        (b"", 3, 0),
        (b"a\nb\nc\n", 2, 2),
        (b"a\nb\nc", 2, 2),
        (b"a\nb\nc\n", 9, 0),
        (b"\n\n\n", 1, 2),
        (b"x" * 100_000 + b"\n" + b"y" * 70_000 + b"\nz\n", 2, 100_001),
    ],
)
def test_the_last_lines_are_found_from_the_end(
    tmp_path: Path, text: bytes, lines: int, begin: int
) -> None:
    (tmp_path / "f").write_bytes(text)
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    assert last_lines(fd, lines, 0, len(text)) == begin
    os.close(fd)


def test_ranges() -> None:
    assert requested_part({}, "bytes=5-9") == PartRequest(5, 5, is_range=True)
    assert requested_part({}, "bytes=5-") == PartRequest(5, None, is_range=True)
    assert requested_part({}, "bytes=-4") == PartRequest(None, tail_bytes=4, is_range=True)
    assert requested_part({}, "bytes=0-1,4-5") == requested_part({}, None) == PartRequest()
    part, headers = PartRequest(5, 5, is_range=True).settled(5, 8)
    assert (part.limit, headers["Content-Range"]) == (3, "bytes 5-7/8")
    part, headers = PartRequest(9, None, is_range=True).settled(9, 8)
    assert (part.limit, headers["Content-Range"]) == (0, "bytes */8")
    with pytest.raises(InvalidRequest, match="only one"):
        requested_part({"tail": "1", "offset": "1"}, None)
    with pytest.raises(InvalidRequest, match="number of lines"):
        requested_part({"tail": "-1"}, None)
