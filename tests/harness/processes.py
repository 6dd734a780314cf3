"""Looking at processes of this machine."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def descriptors(pid: int) -> dict[int, str]:
    """What each open descriptor of a process stands for."""
    folder = Path(f"/proc/{pid}/fd")
    return {int(entry.name): str(entry.readlink()) for entry in folder.iterdir()}


def read_pid(path: Path) -> int | None:
    """The pid that a task wrote to a file; None before it is there."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None
