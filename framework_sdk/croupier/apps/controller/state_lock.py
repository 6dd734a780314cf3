"""The lock of a command's state, which refuses a second running copy."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from croupier.model.errors import Conflict, Unavailable


def state_directory(command: str) -> Path:
    """Return where a command keeps its state: below `$XDG_STATE_HOME/croupier/`."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "croupier" / command


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at `path`, which the kernel releases when this process ends.

    Makes its directory, for its owner only. `what` names the state for people.

    Raises:
        Conflict: if another process holds it.
        Unavailable: if the file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot make {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            by = f" (process {holder})" if holder.isdigit() else ""
            raise Conflict(f"{what} is in use by another copy{by}") from None
        with suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
