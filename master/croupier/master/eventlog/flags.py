"""Flags of a master for its event log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest
from croupier.model.scalar import format_scalar, parse_scalar
from croupier.process.cli import read_by


@dataclass(frozen=True, slots=True)
class FileSize:
    """Size limit of a file, in bytes."""

    bytes: int

    @classmethod
    def parse(cls, text: str) -> FileSize:
        """Read `64MB`.

        Raises:
            InvalidRequest: if it is not a size, or not between 0.1MB and 64GB.
        """
        milli_mib = parse_scalar("disk", text)
        size = milli_mib * 1024 * 1024 // 1000
        if not 1024**2 // 10 <= size <= 64 * 1024**3:
            raise InvalidRequest("the size of a file must be between 0.1MB and 64GB")
        return cls(size)

    def __str__(self) -> str:
        return format_scalar("disk", self.bytes * 1000 // (1024 * 1024))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogFlags:
    """Where a master records events, and how much of it is kept.

    Raises:
        InvalidRequest: if the number of files is out of bounds.
    """

    event_log: Path | None = None
    """File for a log of all events, for `croupier replay`; older files are kept beside it."""

    event_log_size: Annotated[FileSize, read_by(FileSize.parse)] = FileSize(64 * 1024**2)
    """Size at which the event log begins a new file, such as 64MB."""

    event_log_files: int = 8
    """Number of event log files that are kept, the newest included."""

    def __post_init__(self) -> None:
        if not 2 <= self.event_log_files <= 1000:
            raise InvalidRequest("--event-log-files must be between 2 and 1000")
