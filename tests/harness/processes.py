"""Queries of this machine's processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def parent_of(pid: int) -> int:
    """Return the pid of the parent; 0 if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def running_as(command: str) -> list[int]:
    """Return the processes whose arguments, joined by blanks, are `command`."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b" ".join(words) == command.encode() and is_running(int(entry.name)):
            found.append(int(entry.name))
    return found


def working_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is `folder` or below it."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder.resolve()):
                found.append(int(entry.name))
    return found


def descriptors(pid: int) -> dict[int, str]:
    """Return the target of each open descriptor of a process."""
    folder = Path(f"/proc/{pid}/fd")
    return {int(entry.name): str(entry.readlink()) for entry in folder.iterdir()}


def read_pid(path: Path) -> int | None:
    """Return the pid that a task wrote to a file; None while there is none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None
