"""Finds out whether the agent could launch a task: looks at its work dir, off the loop.

Rule: what the core asks for is answered once, and a disk that does not answer is a problem as
well. Nothing is decided here; `core.on_health` does that.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.effects import CheckHealth
from croupier.agent.core.events import HealthChecked
from croupier.agent.core.on_health import DISK_FULL
from croupier.agent.directories import open_beneath, unlink_beneath
from croupier.agent.disk_reserve import FULL
from croupier.agent.shim.build import Shim
from croupier.agent.shim.run_file import SIZE
from croupier.agent.work_dir import RESTART, WorkDir
from croupier.model.clock import Clock
from croupier.model.health import DISK, LAUNCH, WORK_DIR, Problem

# A disk that takes longer than this to look at counts as broken.
ANSWER_S = 30.0
TRIAL_S = 10.0
# Written to and removed again in each directory that a launch writes to; with a random end.
TRIAL = ".trial"
# Directories that a launch writes to, with the modes in which they are made again.
_WRITTEN = {"sandboxes": 0o711, "runs": 0o700}


class HealthCheck:
    """Checks the agent when the core asks for it."""

    def __init__(
        self,
        work_dir: WorkDir,
        checkpoint: Checkpoint,
        shim: Shim,
        report: Callable[[HealthChecked], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Report each check to `report`, in the loop. Nothing happens before `run`."""
        self._work_dir, self._checkpoint, self._shim = work_dir, checkpoint, shim
        self._report, self._clock, self._rng = report, clock, rng
        self._thread = ThreadPoolExecutor(1, "health")
        # The first check is made without being asked for.
        self._asked: tuple[float, bool] | None = (clock.now(), False)
        self._news = asyncio.Event()

    def ask(self, wanted: CheckHealth) -> None:
        """Plan a check in place of the one that waits, if any does."""
        share = self._rng.uniform(0.5, 1.0) if wanted.is_thorough else 1.0
        self._asked = (self._clock.now() + wanted.within_s * share, wanted.is_thorough)
        self._news.set()

    async def run(self) -> None:
        """Check for ever, whenever a check is due."""
        try:
            while True:
                await self._answer(await self._due())
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _due(self) -> bool:
        """Wait until the check that was asked for is due; whether it is a thorough one."""
        while True:
            self._news.clear()
            left_s = None if self._asked is None else self._asked[0] - self._clock.now()
            if self._asked is not None and left_s is not None and left_s <= 0:
                is_thorough = self._asked[1]
                self._asked = None
                return is_thorough
            try:
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _answer(self, is_thorough: bool) -> None:
        loop = asyncio.get_running_loop()
        looks = [
            asyncio.ensure_future(self._checkpoint.look()),
            loop.run_in_executor(self._thread, self._look, is_thorough),
        ]
        _, late = await asyncio.wait(looks, timeout=ANSWER_S)
        if late:
            problem = does_not_answer(self._work_dir.path)
            self._report(HealthChecked((problem,), is_thorough))
            await asyncio.wait(looks)
        else:
            found = [problem for look in looks for problem in look.result()]
            # Of one part the first problem counts; the others come to light once it is mended.
            problems = {problem.part: problem for problem in reversed(found)}
            self._report(HealthChecked(tuple(problems.values()), is_thorough))

    def _look(self, is_thorough: bool) -> list[Problem]:
        """Look at the work dir; blocks."""
        try:
            if not self._work_dir.is_in_place():
                message = f"{self._work_dir.path} was removed or replaced. {RESTART}"
                return [Problem(WORK_DIR, message)]
        except OSError as error:
            return [_of(error, self._work_dir.path)]
        found = list(self._look_at_parts(is_thorough))
        if is_thorough and not found:
            found += self._try_shim()
        return found

    def _look_at_parts(self, is_thorough: bool) -> Iterator[Problem]:
        for part, mode in _WRITTEN.items():
            path = self._work_dir.path / part
            try:
                if is_thorough:
                    path.mkdir(mode, exist_ok=True)
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    yield Problem(WORK_DIR, f"{path} is not a directory")
                    continue
                _write_trial(path)
            except OSError as error:
                yield _of(error, path)

    def _try_shim(self) -> Iterator[Problem]:
        """Start the program of the shim; without words it only says what it is."""
        try:
            subprocess.run(
                self._shim.argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRIAL_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            yield Problem(LAUNCH, f"the shim cannot be started: {error}")


def does_not_answer(path: Path) -> Problem:
    """The problem of a disk that has taken too long."""
    return Problem(WORK_DIR, f"{path} does not answer for over {ANSWER_S:g} s")


def _write_trial(directory: Path) -> None:
    """Make, fill and remove a file such as each run has, under a name that no task can know.

    What an agent that is killed meanwhile leaves counts as no run and as no sandbox.

    Raises:
        OSError: if that fails, as on a full or read-only disk.
    """
    path = directory / f"{TRIAL}-{secrets.token_hex(8)}"
    fd = open_beneath(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, b" " * SIZE)
    finally:
        os.close(fd)
        unlink_beneath(path)


def _of(error: OSError, path: Path) -> Problem:
    if error.errno in FULL:
        return Problem(DISK, DISK_FULL)
    return Problem(WORK_DIR, f"cannot write in {path}: {error.strerror}")
