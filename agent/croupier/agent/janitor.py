"""Removes the sandboxes of tasks that the agent has forgotten: sooner on a fuller disk.

Rule: a sandbox is first moved away, in the loop, and then removed. So a task that is launched
under the same id meanwhile keeps its sandbox, and the sandbox of a live task is never touched.

`rm` removes directory trees, not Python: a task's files may be nested deeper than a recursion or a
path may go, number millions, or be in directories without write permission.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from croupier.agent.core.tasks import Key
from croupier.agent.directories import directory
from croupier.agent.sandbox import Sandboxes
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A removal that takes longer continues at the next start.
LIMIT_S = 600.0
# Bytes kept of a command's errors: it may print a line for each of a million files.
LAST_BYTES = 4096
_KILLED_S = 1.0
# Seconds for which a sandbox is kept on an empty disk; proportionally less on a fuller one.
KEEP_S = 7 * 24 * 3600.0
# The free share of the disk below which no sandbox is kept.
HEADROOM = 0.1
# Seconds for which it is kept even on a full disk, so that readers of the output can finish.
LEAST_S = 30.0
# With more sandboxes, the oldest are removed regardless of their age.
MOST_KEPT = 20_000
CLEAN_EVERY_S = 10.0
# The number of sandboxes that one removal takes.
SLICE = 100


async def remove_trees(paths: Sequence[Path]) -> int:
    """Remove files and directories of one directory; return how many were removed.

    No link is followed, not even in place of that directory. Files that cannot be removed are
    logged and stay, as do those that are left when this is cancelled.
    """
    present = [path for path in paths if _is_there(path)]
    if not present:
        return 0
    try:
        with directory(present[0].parent) as parent:
            async with asyncio.timeout(LIMIT_S):
                why = await _remove(present, f"/proc/self/fd/{parent}")
    except TimeoutError:
        why = f"took longer than {LIMIT_S:g} s"
    except OSError as error:
        why = f"{error.filename or 'rm'}: {error.strerror}"
    left = [path for path in present if _is_there(path)]
    for path in left:
        _log.warning("sandbox_not_removed", path=str(path), error=why)
    return len(present) - len(left)


async def _remove(paths: Sequence[Path], parent: str) -> str:
    """Remove `paths`, which are in `parent`; return the last error, or an empty text."""
    await _run(parent, "rm", "-rf", "--", *(path.name for path in paths))
    left = [path.name for path in paths if _is_there(path)]
    if not left:
        return ""
    # The owner may empty directories without write permission by changing it.
    await _run(parent, "chmod", "-R", "u+rwX", "--", *left)
    return await _run(parent, "rm", "-rf", "--", *left)


async def _run(cwd: str, *words: str) -> str:
    """Run a command, killed if this is cancelled; return the last line of its errors."""
    # Independent of the agent's PATH and language.
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    assert process.stderr is not None
    errors = b""
    try:
        while chunk := await process.stderr.read(LAST_BYTES):
            errors = (errors + chunk)[-LAST_BYTES:]
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILLED_S):
                    await process.wait()
    lines = errors.decode(errors="replace").splitlines()
    return lines[-1][:500] if lines else ""


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def used_share(path: Path) -> float:
    """Return the share of the disk of `path` that the agent cannot use, from 0 to 1.

    Raises OSError if the file system fails.
    """
    disk = os.statvfs(path)
    return 1 - disk.f_bavail / disk.f_blocks if disk.f_blocks else 0.0


class Janitor:
    """Keeps and removes the sandboxes without a task.

    Attributes:
        removed: the number of sandboxes removed so far.
        disk_used: the used share of the disk, from 0 to 1; None before the first check.
        allowed_s: seconds for which a sandbox is kept, by the last check of the disk.
    """

    def __init__(
        self,
        sandboxes: Sandboxes,
        clock: Clock,
        keep_s: float = KEEP_S,
        most_kept: int = MOST_KEPT,
        used: Callable[[Path], float] = used_share,
    ) -> None:
        """Keep each for up to `keep_s` seconds after its task, and at most `most_kept`.

        `used` returns the used share of the disk.
        """
        self._sandboxes, self._clock, self._used = sandboxes, clock, used
        self._keep_s, self._most_kept = keep_s, most_kept
        self._retired: deque[tuple[float, Key]] = deque()
        self.removed = 0
        self.allowed_s = keep_s
        self.disk_used: float | None = None

    def __len__(self) -> int:
        return len(self._retired)

    def retire(self, key: Key) -> None:
        """Take over the sandbox of a task that is forgotten; it may never have had one.

        That of a task that wrote nothing is for the next task, or another one of those is kept.
        """
        kept = self._sandboxes.vacate(key)
        if kept is not None:
            self._retired.append((self._clock.now(), kept))

    def adopt(self, live: Collection[Key] = ()) -> None:
        """Take over the sandboxes of an earlier life of the agent. O(sandboxes).

        Those of `live` tasks stay until `retire`. The age of the others counts from their last
        write.
        """
        self._sandboxes.occupied.update(live)
        now, wall_s = self._clock.now(), self._clock.wall_ms() / 1000
        found: list[tuple[float, Key]] = []
        for key, written_s in self._sandboxes.existing():
            if key not in self._sandboxes.occupied:
                found.append((now - max(0.0, wall_s - written_s), key))
        found.sort()
        self._retired.extendleft(reversed(found))

    async def run(self) -> None:
        """Clean at intervals, until cancelled."""
        await remove_trees([self._sandboxes.trash])
        while True:
            await self.clean()
            await asyncio.sleep(CLEAN_EVERY_S)

    async def clean(self) -> None:
        """Remove the sandboxes that are too old or too many."""
        await remove_trees(self._sandboxes.take_replaced())
        allowed_s = self._allow()
        while self._retired and (batch := self._take_slice(allowed_s)):
            self.removed += await remove_trees(batch)
            # The disk may have room by now.
            allowed_s = self._allow()

    def _allow(self) -> float:
        try:
            self.disk_used = self._used(self._sandboxes.root)
        except OSError as error:
            _log.warning("disk_unreadable", error=str(error))
            return self.allowed_s
        free = 1 - self.disk_used
        least_s = min(LEAST_S, self._keep_s)
        self.allowed_s = max(least_s, self._keep_s * (free - HEADROOM))
        return self.allowed_s

    def _take_slice(self, allowed_s: float) -> list[Path]:
        """Move the oldest sandboxes away; return none once none is old enough."""
        batch: list[Path] = []
        now = self._clock.now()
        for _ in range(min(SLICE, len(self._retired))):
            old = now - self._retired[0][0] >= allowed_s
            if not old and len(self._retired) <= self._most_kept:
                break
            batch.extend(self._move(self._retired.popleft()[1]))
        return batch

    def _move(self, key: Key) -> list[Path]:
        if key in self._sandboxes.occupied:
            return []
        try:
            moved = self._sandboxes.move_out(key)
        except InvalidRequest:
            return []
        except OSError as error:
            _log.warning("sandbox_not_removed", path=self._sandboxes.path_of(key), error=str(error))
            return []
        return [] if moved is None else [moved]
