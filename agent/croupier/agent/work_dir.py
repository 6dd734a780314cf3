"""The directory that is an agent's own: its lock, its id, its sandboxes."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.ids import AgentId, check_id

# The watchdog of an agent that was killed holds the lock until its tasks are gone.
LOCK_WAIT_S = 3.0
_LOCK_POLL_S = 0.05


class WorkDir:
    """A work dir that this process holds the lock of, until `close`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Use `open` instead."""
        self.path, self.lock_fd = path, lock_fd

    @classmethod
    async def open(cls, path: Path) -> WorkDir:
        """Make the directory if need be, and lock it.

        Raises:
            Unavailable: if it cannot be made or written to.
            Conflict: if another agent still uses it after 3 s.
        """
        path, fd = _prepare(path)
        try:
            await _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd)

    @property
    def sandboxes(self) -> Path:
        """Where the sandboxes are."""
        return self.path / "sandboxes"

    def load_agent_id(self) -> AgentId:
        """The id that a master gave this agent; empty if none has.

        Raises:
            InvalidRequest: if what is kept is not an id.
        """
        path = self.path / "agent_id"
        try:
            kept = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return AgentId("")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read the agent's id in {path}: {error}") from error
        try:
            return AgentId(check_id("agent", kept.removesuffix("\n")))
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{path} is damaged ({error}); remove it to register as a new agent"
            ) from error

    def keep_agent_id(self, agent_id: AgentId) -> None:
        """Keep the id, durably and whole or not at all; an empty one: keep none.

        Raises:
            Unavailable: if it cannot be written.
        """
        path = self.path / "agent_id"
        try:
            if agent_id:
                _replace(path, f"{agent_id}\n")
            else:
                path.unlink(missing_ok=True)
            _sync_directory(self.path)
        except OSError as error:
            raise Unavailable(f"cannot keep the agent's id in {path}: {error.strerror}") from error

    def close(self) -> None:
        """Let another agent use the directory."""
        os.close(self.lock_fd)


def _prepare(path: Path) -> tuple[Path, int]:
    """Make what is missing; the absolute path, and a descriptor of the lock file."""
    path = path.expanduser().resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "sandboxes").mkdir(mode=0o711, exist_ok=True)
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(f"cannot use the work dir {path}: {why}") from error
    if not os.access(path / "sandboxes", os.W_OK | os.X_OK):
        os.close(fd)
        raise Unavailable(f"cannot use the work dir {path}: sandboxes is not writable")
    return path, fd


async def _lock(fd: int, path: Path) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOCK_WAIT_S):
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                await asyncio.sleep(_LOCK_POLL_S)
    raise Conflict(f"another agent uses the work dir {path}")


def _replace(path: Path, text: str) -> None:
    scratch = path.with_suffix(".new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
