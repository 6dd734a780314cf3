"""The files of a log: the newest is PATH, older files are PATH.000001 and so on.

A new number is higher than all numbers in use, so the order of numbers is the order in time.
"""

from __future__ import annotations

import re
from pathlib import Path

DIGITS = 6
_NUMBERED = re.compile(r"(?P<base>.+)\.(?P<number>\d{6,12})\Z", re.ASCII)


def older(path: Path) -> list[Path]:
    """Return the older files of the log at `path`, oldest first; raises OSError."""
    found = []
    for each in path.parent.iterdir():
        match = _NUMBERED.match(each.name)
        if match and match["base"] == path.name:
            found.append((int(match["number"]), each))
    return [each for _, each in sorted(found)]


def next_older(path: Path) -> Path:
    """Return the name for `path` when a newer file replaces it; raises OSError."""
    before = older(path)
    number = int(before[-1].name.rpartition(".")[2]) + 1 if before else 1
    return path.with_name(f"{path.name}.{number:0{DIGITS}d}")


def make_room(path: Path, most: int) -> None:
    """Rename the newest file, and delete the oldest of more than `most`; raises OSError."""
    if path.exists():
        path.rename(next_older(path))
    for each in older(path)[: -(most - 1) or None]:
        each.unlink()


def all_of(path: Path) -> list[Path]:
    """Return all files of the log that has the file `path`, oldest first; raises OSError."""
    match = _NUMBERED.match(path.name)
    base = path.with_name(match["base"]) if match else path
    found = older(base)
    return [*found, base] if base.exists() else found
