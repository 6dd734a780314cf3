"""The journal of a framework: each action is written before it is taken.

Rule: a line is written by one call before anything follows from it, so it survives kill -9 of the
framework. A crash may leave half a line at the end, which counts as not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, get_args


@dataclass(frozen=True, slots=True)
class Begun:
    """The program started."""

    pid: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The master gave the framework this id."""

    framework_id: str


@dataclass(frozen=True, slots=True)
class Asked:
    """An ACCEPT or a SUBMIT with these tasks will be sent next, at `time_s` since the epoch."""

    task_ids: tuple[str, ...]
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The master's verdict on one task, as of `time_s` since the epoch.

    Attributes:
        error: why it was refused; empty if it was launched or queued.
    """

    task_id: str
    error: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Void:
    """RECONCILE answered that a task without a verdict does not exist."""

    task_id: str


@dataclass(frozen=True, slots=True)
class KillAsked:
    """A KILL will be sent next."""

    task_id: str


@dataclass(frozen=True, slots=True)
class KillAnswered:
    """The master's verdict on a KILL; `error` is empty if it was accepted."""

    task_id: str
    error: str


@dataclass(frozen=True, slots=True)
class Update:
    """A status update reached the handler.

    Attributes:
        handled: False if an earlier run of the program had handled it already.
        is_reconciled: whether it answers RECONCILE: it is the latest one, maybe ahead of others.
        time_s: when it did, in seconds since the epoch.
    """

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
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """An ACCEPT with this hold of an agent will be sent next."""

    hold_id: str
    agent_id: str


@dataclass(frozen=True, slots=True)
class HoldAnswered:
    """The master's verdict on a hold; `error` is empty if it was made."""

    hold_id: str
    error: str


@dataclass(frozen=True, slots=True)
class HoldOffered:
    """The unused part of this hold was offered."""

    hold_id: str


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """A RELEASE of this hold will be sent next."""

    hold_id: str


@dataclass(frozen=True, slots=True)
class ReleaseAnswered:
    """The master's verdict on a RELEASE; `error` is empty if the hold was there."""

    hold_id: str
    error: str


@dataclass(frozen=True, slots=True)
class MessageAsked:
    """Message `number` to an executor will be sent next."""

    executor_id: str
    number: int


@dataclass(frozen=True, slots=True)
class MessageHeard:
    """An executor's answer to message `number` arrived."""

    executor_id: str
    number: int


Entry = (
    Begun | Subscribed | Asked | Answered | Void | KillAsked | KillAnswered | Update
    | HoldAsked | HoldAnswered | HoldOffered | ReleaseAsked | ReleaseAnswered
    | MessageAsked | MessageHeard
)  # fmt: skip
_KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in get_args(Entry)}


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
        self._file.write(
            json.dumps({"kind": type(entry).__name__, **asdict(entry)}).encode() + b"\n"
        )

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
