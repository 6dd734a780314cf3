"""The agent's checkpoint: an append-only log of records, `checkpoint.log`.

Rule: records are durable when `commit` returns. One thread writes whole batches. A batch that
cannot be written leaves the log as it was, and the agent ends. The log is rewritten without
replaced records once they are most of it, so its size is bounded by the size of the state.

Beside the log are `checkpoint.mark`, which detects a truncated log, and `checkpoint.reserve`,
which is released when the disk is full: terminal updates and acknowledgements can still be
written, but no new task is started.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.checkpoint_files import FULL, LOST, MARK_NAME, RESERVE_NAME, LogMark, Reserve
from croupier.agent.core.on_health import DISK_FULL
from croupier.agent.core.records import Place, PositionRecord, Record, place_of
from croupier.agent.core.recovery import incomplete
from croupier.agent.record_lines import (
    FORMAT,
    CurrentRecords,
    Damaged,
    OtherFormat,
    Reading,
    Span,
    body_in,
    body_of,
    heading,
    line,
    read_lines,
    record_in,
)
from croupier.agent.work_dir import RESTART
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.health import CHECKPOINT, DISK, Problem
from croupier.process.durable_files import replace_file, sync_directory, write_all
from croupier.process.writer_thread import WriterThread

NAME = "checkpoint.log"
# Bytes of replaced records that make a rewrite worthwhile.
SLACK_BYTES = 4 * 1024 * 1024
LINES_AT_ONCE = 100
# Records of a commit that takes about as long as one of a single record.
SHORT = 16
# Lazy records that are deferred at most.
MOST_LAZY = 1000

# Advice for an operator whose agent has lost records.
WHAT_TO_DO = (
    "Tasks keep running. To continue without the lost records, start with --recover=best-effort;"
    " to end all tasks of this agent and forget it, run with --recover=cleanup"
)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


@dataclass(slots=True)
class Loaded:
    """The records of a checkpoint, in order, and descriptions of those that are lost."""

    records: list[Record]
    damaged: list[str]


class Checkpoint:
    """The log, open for writing; `commit` and `look` need a running event loop."""

    def __init__(self, path: Path, fd: int, mark: LogMark) -> None:
        """Use `open` instead."""
        self.path, self._fd, self._mark = path, fd, mark
        self._reserve = Reserve(path.with_name(RESERVE_NAME))
        self._current = CurrentRecords()
        self._size = self._lines = 0
        self._rewrite_at, self._format = SLACK_BYTES, FORMAT
        self._lazy: list[Record] = []
        self._is_broken = False
        self._thread = WriterThread("checkpoint")

    @classmethod
    def open(cls, directory: Path, *, lenient: bool = False) -> tuple[Checkpoint, Loaded]:
        """Open or create the log in a directory that the caller has locked.

        With `lenient`, damaged lines are left out, and missing lines are accepted.

        Raises:
            InvalidRequest: if it is damaged, unless `lenient`, or of another format.
            Unavailable: if it cannot be read or written.
        """
        path = directory / NAME
        try:
            mark = LogMark(directory)
            is_lost = not path.exists() and mark.read() is not None
            if is_lost and not lenient:
                mark.close()
                raise InvalidRequest(f"{path} is lost. {WHAT_TO_DO}")
            if not path.exists():
                mark.clear()
                replace_file(path, heading())
            elif path.is_fifo():
                # Reading a pipe could block forever.
                raise OSError(errno.EINVAL, "Not a plain file")
            self = cls(path, os.open(path, _APPEND), mark)
        except OSError as error:
            raise Unavailable(f"cannot use {path}: {error.strerror}") from error
        try:
            loaded = self._load(["the whole log is lost"] if is_lost else [], lenient=lenient)
            self._reserve.take(self._fd)
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError):
                raise Unavailable(f"cannot use {path}: {error.strerror}") from error
            raise
        return self, loaded

    @property
    def has_room(self) -> bool:
        """Return whether the disk has space for new tasks."""
        return self._reserve.has_room

    def defer(self, records: Iterable[Record]) -> None:
        """Queue lazy records, to be written before those of the next `commit`."""
        self._lazy.extend(records)

    @property
    def is_urgent(self) -> bool:
        """Return whether so many lazy records are pending that they should be written."""
        return len(self._lazy) >= MOST_LAZY

    async def commit(self, records: Sequence[Record] = ()) -> int:
        """Make lazy records and then `records` durable; return the number of bytes written.

        Raises:
            Unavailable: if writing fails. The records may be durable or not, so the agent must end.
        """
        batch, self._lazy = _with_one_position([*self._lazy, *records]), []
        if not batch:
            return 0
        return await self._thread.run(lambda: self._commit(batch), is_short=len(batch) <= SHORT)

    async def check(self) -> list[Problem]:
        """Check that the log is still at its path, and that the disk has space."""
        return await self._thread.run(self._check)

    def mark_incomplete(self) -> None:
        """Mark the log as incomplete for the next start."""
        self._mark.write(self._lines + 1, LOST)

    async def close(self) -> None:
        """Write lazy records if possible, and close the files."""
        with suppress(Unavailable):
            if not self._is_broken:
                await self.commit()
        self._abandon()

    def _abandon(self) -> None:
        self._thread.shutdown()
        os.close(self._fd)
        self._mark.close()

    def _load(self, lost: list[str], *, lenient: bool) -> Loaded:
        """Read the log; `lost` describes losses that are already known."""
        data = self.path.read_bytes()
        try:
            reading = read_lines(data, lenient=lenient)
        except Damaged as error:
            raise InvalidRequest(f"{self.path} is damaged: {error}. {WHAT_TO_DO}") from None
        except OtherFormat as error:
            raise InvalidRequest(f"{self.path} is {error}") from None
        for record, span in reading.found:
            self._current.add(record, span)
        self._size, self._format = len(data), reading.format
        self._lines = len(reading.found) + 1
        lost = lost + [str(each) for each in reading.damaged]
        if not lost and (missing := self._missing(reading, data)):
            lost.append(missing)
            if not lenient:
                raise InvalidRequest(f"{self.path} is incomplete: {missing}. {WHAT_TO_DO}")
        if lost or reading.format < FORMAT:
            # The rewritten log shows no damage, so it records that it is incomplete.
            more = [incomplete(record for record, _ in reading.found)] if lost else []
            self._rewrite(*more)
        elif len(data) != reading.size or not reading.is_ended:
            os.ftruncate(self._fd, reading.size - 1)
            write_all(self._fd, b"\n")
            self._size = reading.size
        # A killed agent may have written lines that have not reached the disk.
        os.fsync(self._fd)
        if not lost and reading.format == FORMAT:
            begin = reading.found[-1][1].begin if reading.found else 0
            self._mark.write(self._lines, data[begin:])
        return Loaded([record for record, _ in reading.found], lost)

    def _missing(self, reading: Reading, data: bytes) -> str:
        """Describe the lines that an intact log lacks according to the mark; empty if none."""
        last = self._mark.read()
        if last is None:
            return ""
        number, crc = last
        if crc == LOST:
            return "lines at its end were found missing at an earlier start"
        if number > self._lines:
            return f"its last {number - self._lines} lines are missing"
        begin = reading.found[number - 2][1].begin if number > 1 else 0
        if data[begin:].startswith(crc):
            return ""
        return f"line {number} differs from the one that was written"

    def _commit(self, batch: list[Record]) -> int:
        lines = [line(self._lines + n, body_of(each)) for n, each in enumerate(batch, start=1)]
        data = b"".join(lines)
        try:
            self._append(data)
            os.fdatasync(self._fd)
        except OSError as error:
            self._is_broken = True
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise Unavailable(
                f"cannot write {self.path}: {error.strerror}; the tasks keep running, and the"
                " next agent on this work dir adopts them"
            ) from error
        begin = self._size
        for record, text in zip(batch, lines, strict=True):
            self._current.add(record, Span(begin, begin + len(text) - 1))
            begin += len(text)
        self._size = begin
        self._lines += len(batch)
        self._mark.write(self._lines, lines[-1])
        if self.has_room or self._is_in_place():
            self._reserve.update(self._fd)
        if self._size >= self._rewrite_at + 2 * self._current.size:
            self._try_to_rewrite()
        return len(data)

    def _append(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if self._is_in_place():
                self._reserve.release()
            os.ftruncate(self._fd, self._size)
            write_all(self._fd, data)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def _check(self) -> list[Problem]:
        if not self._is_in_place():
            return [Problem(CHECKPOINT, f"{self.path} was removed or replaced. {RESTART}")]
        self._reserve.update(self._fd)
        return [] if self.has_room else [Problem(DISK, DISK_FULL)]

    def _try_to_rewrite(self) -> None:
        """Rewrite the log if there is space; otherwise retry later."""
        if not self._is_in_place():
            self._rewrite_at += SLACK_BYTES
            return
        try:
            self._rewrite()
            self._rewrite_at = SLACK_BYTES
        except OSError as error:
            if error.errno not in FULL:
                raise Unavailable(f"cannot rewrite {self.path}: {error.strerror}") from error
            self._rewrite_at += SLACK_BYTES

    def _rewrite(self, *more: Record) -> None:
        scratch = self.path.with_suffix(".new")
        fd = os.open(scratch, _APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            kept, lines, size, last = self._copy(fd, more)
            os.fsync(fd)
            self._mark.clear()
            scratch.replace(self.path)
        except BaseException:
            os.close(fd)
            scratch.unlink(missing_ok=True)
            raise
        # The old log is unlinked: nothing may be written to it.
        os.close(self._fd)
        self._fd, self._current, self._lines, self._size = fd, kept, lines, size
        self._format = FORMAT
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise Unavailable(f"cannot rewrite {self.path}: {error.strerror}") from error
        self._mark.write(lines, last)

    def _copy(self, fd: int, more: Sequence[Record]) -> tuple[CurrentRecords, int, int, bytes]:
        """Copy current records in order; return index, lines, size, and the last line."""
        kept, lines, text = CurrentRecords(), 1, heading()
        size, pending = len(text), [text]
        for place, body in self._current_lines(more):
            lines += 1
            text = line(lines, body)
            kept.put(place, Span(size, size + len(text) - 1))
            size += len(text)
            pending.append(text)
            if len(pending) >= LINES_AT_ONCE:
                write_all(fd, b"".join(pending))
                pending = []
        write_all(fd, b"".join(pending))
        return kept, lines, size, text

    def _current_lines(self, more: Sequence[Record]) -> Iterator[tuple[Place, bytes]]:
        for place, (begin, end) in self._current.in_order():
            body = body_in(os.pread(self._fd, end - begin, begin))
            if self._format < FORMAT:
                body = body_of(record_in(body, self._format))
            yield place, body
        for record in more:
            yield place_of(record), body_of(record)


def _with_one_position(batch: list[Record]) -> list[Record]:
    """Return `batch` with its newest position in place of the first."""
    positions = [record for record in batch if isinstance(record, PositionRecord)]
    if len(positions) < 2:
        return batch
    first = batch.index(positions[0])
    rest = [record for record in batch[first:] if not isinstance(record, PositionRecord)]
    return [*batch[:first], positions[-1], *rest]


def clear(directory: Path) -> None:
    """Delete the checkpoint in a directory that the caller has locked.

    Raises OSError if a file cannot be deleted.
    """
    # The mark first: without a log, it would report lost records.
    for name in (MARK_NAME, NAME, RESERVE_NAME):
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)
