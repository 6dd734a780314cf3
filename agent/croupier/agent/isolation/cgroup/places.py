"""Where the groups of an agent are: recorded in its work dir, in `cgroup.json`.

An agent may be started from another group than the one before it, such as another login. Its
groups are then in another place, while tasks of the earlier one are in theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.process.durable_files import replace_file

FILE: Final = "cgroup.json"


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of groups.

    Attributes:
        version: 1 or 2.
        directories: paths, by controller in version 1; in version 2 the only one, by "all".
    """

    version: int
    directories: Mapping[str, str]


def read_places(work_dir: Path, name: str) -> list[Place]:
    """Return the recorded places whose directories have this name, the latest first."""
    try:
        read = json.loads((work_dir / FILE).read_text())
        found = [Place(int(each["version"]), dict(each["directories"])) for each in read]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [
        place
        for place in found
        if all(Path(str(path)).name == name for path in place.directories.values())
    ]


def write_places(work_dir: Path, places: Sequence[Place]) -> None:
    """Record the places, the latest first.

    Raises:
        OSError: if they cannot be written.
    """
    text = json.dumps(
        [{"version": each.version, "directories": dict(each.directories)} for each in places]
    )
    replace_file(work_dir / FILE, text.encode())


def forget_places(work_dir: Path) -> None:
    """Remove the record."""
    with suppress(FileNotFoundError):
        (work_dir / FILE).unlink()
