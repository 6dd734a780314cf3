"""Read the lines of one run of a master from the files of its log."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from croupier.master.eventlog import files
from croupier.master.eventlog.codec import read_line
from croupier.master.eventlog.lines import Head, Line, LogEntry
from croupier.model.codec import Undecodable
from croupier.model.errors import CroupierError

# A line is one event, which is one message of a peer.
MAX_LINE = 64 * 1024 * 1024


class BadLog(CroupierError):
    """A log that cannot be read; the message names the place."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a line; lines are counted from 1."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


class Reader:
    """One run of a master: from its start, or from its oldest remaining file.

    Attributes:
        paths: the files, oldest first.
        first: the head of the oldest.
        other_runs: the number of other runs with files in the same log.
        notes: remarks for the user; complete when all lines were read.
    """

    def __init__(self, path: Path) -> None:
        """Find the files of the run of `path`; raises BadLog if it is no log, or one is missing."""
        named = _head(path)
        heads = {each: named if each == path else _head_or_none(each) for each in _siblings(path)}
        mine = {
            each: head
            for each, head in heads.items()
            if head is not None and head.master_id == named.master_id
        }
        self.paths = sorted(mine, key=lambda each: mine[each].part)
        self.first = mine[self.paths[0]]
        for number, each in enumerate(self.paths, self.first.part):
            if mine[each].part != number:
                raise BadLog(f"{each}: part {number} of the log of {named.master_id} is missing")
        runs = {head.master_id for head in heads.values() if head is not None}
        self.other_runs = len(runs) - 1
        self.notes: list[str] = []

    @property
    def has_beginning(self) -> bool:
        """Whether the log has the beginning of the run."""
        return self.first.part == 1

    def lines(self, progress: Callable[[float], None]) -> Iterator[tuple[LogPlace, Line]]:
        """Yield all lines in order, and the part read to `progress`; raises BadLog if malformed."""
        total = sum(path.stat().st_size for path in self.paths) or 1
        before, latest = 0, self.first.at
        for path in self.paths:
            is_last = path == self.paths[-1]
            for place, line, size in self._file(path, is_last):
                if isinstance(line, LogEntry):
                    if line.at < latest:
                        raise BadLog(f"{place}: an event before the one that precedes it")
                    latest = line.at
                before += size
                if place.line % 1024 == 0:
                    progress(before / total)
                yield place, line

    def _file(self, path: Path, is_last: bool) -> Iterator[tuple[LogPlace, Line, int]]:
        with _opened(path) as file:
            number = 0
            while text := file.readline(MAX_LINE + 1):
                number += 1
                place = LogPlace(path, number)
                if len(text) > MAX_LINE:
                    raise BadLog(f"{place}: a line of more than {MAX_LINE >> 20} MiB")
                try:
                    line = read_line(text)
                except Undecodable as error:
                    if is_last and not text.endswith(b"\n"):
                        self.notes.append(f"{place} is cut off, and was left out")
                        return
                    raise BadLog(f"{place}: {error}") from None
                if isinstance(line, Head) != (number == 1):
                    raise BadLog(f"{place}: a head must be the first line of a file, and no other")
                yield place, line, len(text)


def _siblings(path: Path) -> list[Path]:
    try:
        return [each for each in files.all_of(path) if each.is_file()]
    except OSError as error:
        raise BadLog(f"{path.parent}: {error.strerror}") from None


def _head_or_none(path: Path) -> Head | None:
    try:
        return _head(path)
    except BadLog:
        return None


def _head(path: Path) -> Head:
    with _opened(path) as file:
        text = file.readline(MAX_LINE + 1)
    if not text:
        raise BadLog(f"{path} is empty")
    try:
        line = read_line(text)
    except Undecodable as error:
        raise BadLog(f"{path}, line 1: {error}") from None
    if not isinstance(line, Head) or line.part < 1:
        raise BadLog(f"{path}, line 1: not the head of an event log")
    return line


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the regular file at `path`."""
    try:
        # A pipe without a writer must not block.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadLog(f"{path} is not a regular file")
            yield file
    except OSError as error:
        raise BadLog(f"{path}: {error.strerror or error}") from None
