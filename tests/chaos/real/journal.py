"""The journal of a framework: each action is written before it is taken.

Rule: a line is written by one call before anything follows from it, so it survives kill -9 of the
framework. A crash may leave half a line at the end, which counts as not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, ClassVar


@dataclass(frozen=True, slots=True)
class Begun:
    """The program started."""

    kind: ClassVar[str] = "begun"
    pid: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The master gave the framework this id."""

    kind: ClassVar[str] = "subscribed"
    framework_id: str


@dataclass(frozen=True, slots=True)
class Asked:
    """An ACCEPT or a SUBMIT with these tasks will be sent next."""

    kind: ClassVar[str] = "asked"
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The master's verdict on one task, as of `time_s` since the epoch.

    Attributes:
        error: why it was refused; empty if it was launched or queued.
    """

    kind: ClassVar[str] = "answered"
    task_id: str
    error: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Void:
    """RECONCILE answered that a task without a verdict does not exist."""

    kind: ClassVar[str] = "void"
    task_id: str


@dataclass(frozen=True, slots=True)
class KillAsked:
    """A KILL will be sent next."""

    kind: ClassVar[str] = "kill_asked"
    task_id: str


@dataclass(frozen=True, slots=True)
class KillAnswered:
    """The master's verdict on a KILL; `error` is empty if it was accepted."""

    kind: ClassVar[str] = "kill_answered"
    task_id: str
    error: str


@dataclass(frozen=True, slots=True)
class Update:
    """A status update reached the handler.

    Attributes:
        handled: False if an earlier run of the program had handled it already.
        is_reconciled: whether it answers RECONCILE: it is the latest one, maybe ahead of others.
    """

    kind: ClassVar[str] = "update"
    task_id: str
    agent_id: str
    state: str
    sequence: int
    reason: str
    exit_code: int | None
    signal: int | None
    pid: int
    message: str
    handled: bool
    is_reconciled: bool = False


Entry = Begun | Subscribed | Asked | Answered | Void | KillAsked | KillAnswered | Update
_KINDS: dict[str, type[Entry]] = {
    kind.kind: kind
    for kind in (Begun, Subscribed, Asked, Answered, Void, KillAsked, KillAnswered, Update)
}


class Journal:
    """A file of entries."""

    def __init__(self, path: Path) -> None:
        """Append to `path`, after ending a half line that a crash may have left."""
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        self._file: IO[bytes] = path.open("ab", buffering=0)
        if torn:
            self._file.write(b"\n")

    def write(self, entry: Entry) -> None:
        """Write an entry that survives this process."""
        self._file.write(json.dumps({"kind": entry.kind, **asdict(entry)}).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_entries(path: Path) -> list[Entry]:
    """Return the entries in `path`."""
    return parse_entries(path.read_text().split("\n")) if path.exists() else []


def parse_entries(lines: Iterable[str]) -> list[Entry]:
    """Parse entries from lines; skip half-written ones."""
    entries = []
    for line in lines:
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue
        entry = _KINDS[fields.pop("kind")]
        if entry is Asked:
            fields["task_ids"] = tuple(fields["task_ids"])
        entries.append(entry(**fields))
    return entries
