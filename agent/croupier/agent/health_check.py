"""Checks whether the agent could launch a task: writes to its work dir, off the loop.

Rule: each request of the core gets one answer, and a disk that hangs is a problem too. All
decisions are in `core.on_health`.
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
from contextlib import suppress
from math import inf
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.checkpoint_files import FULL
from croupier.agent.core.effects import CheckHealth
from croupier.agent.core.events import HealthChecked
from croupier.agent.core.on_health import DISK_FULL
from croupier.agent.directories import open_beneath, unlink_beneath
from croupier.agent.shim.build import Shim
from croupier.agent.shim.compiling import print_version
from croupier.agent.shim.run_file import SIZE
from croupier.agent.work_dir import RESTART, WorkDir
from croupier.model.clock import Clock
from croupier.model.health import DISK, LAUNCH, WORK_DIR, Problem

# A disk that takes longer than this to answer is a problem.
ANSWER_S = 30.0
TRIAL_S = 10.0
# The prefix of files that a check writes and removes in each directory that a launch writes to.
TRIAL = ".trial"
# The directories that a launch writes to, and their modes.
_WRITTEN = {"sandboxes": 0o711, "runs": 0o700}

_NOT_PLANNED = (inf, False)


class HealthCheck:
    """Checks the agent when the core requests it."""

    def __init__(
        self,
        work_dir: WorkDir,
        checkpoint: Checkpoint,
        shim: Shim,
        report: Callable[[HealthChecked], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Pass each result to `report`, in the loop."""
        self._work_dir, self._checkpoint, self._shim = work_dir, checkpoint, shim
        self._report, self._clock, self._rng = report, clock, rng
        self._thread = ThreadPoolExecutor(1, "health")
        # The first check needs no request.
        self._planned = (clock.now(), False)
        self._requested = asyncio.Event()

    def ask(self, wanted: CheckHealth) -> None:
        """Plan a check; it replaces a planned one."""
        share = self._rng.uniform(0.5, 1.0) if wanted.is_thorough else 1.0
        self._planned = (self._clock.now() + wanted.within_s * share, wanted.is_thorough)
        self._requested.set()

    async def run(self) -> None:
        """Run each check when it is due, until cancelled."""
        try:
            while True:
                await self._answer(await self._due())
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _due(self) -> bool:
        """Wait until the planned check is due; return whether it is a thorough one."""
        while True:
            self._requested.clear()
            at, is_thorough = self._planned
            left_s = at - self._clock.now()
            if left_s <= 0:
                self._planned = _NOT_PLANNED
                return is_thorough
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s if left_s < inf else None):
                    await self._requested.wait()

    async def _answer(self, is_thorough: bool) -> None:
        loop = asyncio.get_running_loop()
        checks = [
            asyncio.ensure_future(self._checkpoint.check()),
            loop.run_in_executor(self._thread, self._check, is_thorough),
        ]
        _, late = await asyncio.wait(checks, timeout=ANSWER_S)
        if late:
            problem = does_not_answer(self._work_dir.path)
            self._report(HealthChecked((problem,), is_thorough))
            await asyncio.wait(checks)
        else:
            found = [problem for check in checks for problem in check.result()]
            # The first problem of each part counts. The next check finds the others.
            problems = {problem.part: problem for problem in reversed(found)}
            self._report(HealthChecked(tuple(problems.values()), is_thorough))

    def _check(self, is_thorough: bool) -> list[Problem]:
        """Check the work dir. Blocks."""
        try:
            if not self._work_dir.is_in_place():
                message = f"{self._work_dir.path} was removed or replaced. {RESTART}"
                return [Problem(WORK_DIR, message)]
        except OSError as error:
            return [_problem_of(error, self._work_dir.path)]
        found = list(self._check_directories(is_thorough))
        if is_thorough and not found:
            try:
                # Without arguments it only prints its version.
                print_version(self._shim.argv, TRIAL_S)
            except (OSError, subprocess.SubprocessError) as error:
                found.append(Problem(LAUNCH, f"the shim cannot be started: {error}"))
        return found

    def _check_directories(self, is_thorough: bool) -> Iterator[Problem]:
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
                yield _problem_of(error, path)


def does_not_answer(path: Path) -> Problem:
    """Return the problem of a disk that hangs."""
    return Problem(WORK_DIR, f"{path} does not answer for over {ANSWER_S:g} s")


def _write_trial(directory: Path) -> None:
    """Create, write and remove a file of the size of a run file, under a random name.

    If the agent is killed meanwhile, the file counts neither as a run nor as a sandbox.
    """
    path = directory / f"{TRIAL}-{secrets.token_hex(8)}"
    fd = open_beneath(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, b" " * SIZE)
    finally:
        os.close(fd)
        unlink_beneath(path)


def _problem_of(error: OSError, path: Path) -> Problem:
    if error.errno in FULL:
        return Problem(DISK, DISK_FULL)
    return Problem(WORK_DIR, f"cannot write in {path}: {error.strerror}")
