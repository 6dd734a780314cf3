"""Running a job on the cluster: from the job to the exit code, within limits of time."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from croupier.apps.controller.process import first
from croupier.apps.controller.waiting import WaitWatch
from croupier.apps.run.job import Job
from croupier.apps.run.launcher import Launcher
from croupier.apps.run.output import Outputs
from croupier.apps.run.output_sources import OutputSources
from croupier.cli.flags import TIMED_OUT, Target
from croupier.cli.printer import OutputClosed, Printer
from croupier.cli.signals import SIGNAL_BASE, EndSignals
from croupier.cli.terminal import print_lines
from croupier.model.errors import CroupierError, InvalidRequest, PermissionDenied
from croupier.model.ids import DEFAULT_ROLE

# The time in which the master may tell what tasks wait for.
REASON_S: Final = 2.0
# Limit for the end of tasks after Ctrl-C; their grace period is 3 s.
KILL_S: Final = 8.0
PATIENCE_S: Final = 2.0
_ADVICE: Final = " (--wait-for-resources TIME gives up)"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds; None means no limit.

    Attributes:
        whole_s: the limit of the whole run.
        waiting_s: the limit of a time in which tasks wait and none starts.
    """

    whole_s: float | None = None
    waiting_s: float | None = None

    @property
    def bounds_waiting(self) -> bool:
        """Whether a run without resources ends."""
        return self.whole_s is not None or self.waiting_s is not None

    def __post_init__(self) -> None:
        for flag, limit in (("timeout", self.whole_s), ("wait-for-resources", self.waiting_s)):
            if limit is not None and not limit > 0:
                raise InvalidRequest(f"--{flag} must be more than 0")


async def limit_over(
    limits: Limits, launcher: Launcher, waits_for: Callable[[], Awaitable[str]]
) -> str:
    """Wait until a limit passes, for ever if there is none; return a message.

    `waits_for` returns what tasks wait for.
    """
    loop = asyncio.get_running_loop()
    whole = loop.time() + _or_never(limits.whole_s)
    while True:
        now = loop.time()
        waiting = launcher.moved_at + _or_never(limits.waiting_s)
        if now >= whole:
            return f"not done after {limits.whole_s:g} s (--timeout); the tasks are killed"
        if launcher.progress.pending and now >= waiting:
            text = f"no task could be started for {limits.waiting_s:g} s (--wait-for-resources)"
            with suppress(TimeoutError):
                async with asyncio.timeout(REASON_S):
                    text += f": {await waits_for()}"
            return text
        # Tasks may start meanwhile, and wait again.
        due = min(whole, max(waiting, now + 0.1))
        await asyncio.sleep(min(due - now, 3600.0))


def _or_never(limit: float | None) -> float:
    return math.inf if limit is None else limit


def role_hint(job: Job, refusal: str) -> str:
    """Return the advice to name a role, if the master refuses the default one; else nothing."""
    is_default = job.role == DEFAULT_ROLE and f"role:{DEFAULT_ROLE}" in refusal
    return "; --role names the role to run in" if is_default else ""


async def run_job(job: Job, target: Target, limits: Limits) -> int:
    """Run `job`; return its exit code.

    The code is 124 if a limit passed, and 128 + N if signal N ended this process. Raises
    CroupierError if the master refuses the job, or ends its session.
    """
    printer = Printer(sys.stdout.buffer, sys.stderr.buffer, prefixed=job.count > 1)
    try:
        sources = OutputSources(target)
        async with Outputs(printer, sources, _print, target.security) as outputs:
            launcher = Launcher(job, target, outputs, _print)
            with closing(EndSignals()) as signals:
                return await Run(target, launcher, outputs, signals).to_the_end(limits)
    except PermissionDenied as error:
        raise PermissionDenied(f"{error}{role_hint(job, str(error))}") from None


class Run:
    """One run: the framework, and the tasks that watch it."""

    def __init__(
        self, target: Target, launcher: Launcher, outputs: Outputs, signals: EndSignals
    ) -> None:
        self._target, self._launcher, self._outputs = target, launcher, outputs
        self._signals = signals

    async def to_the_end(self, limits: Limits) -> int:
        """Run until the job, a signal, a limit or an error ends it; return the exit code."""
        launcher = self._launcher
        watch = WaitWatch(launcher, self._target, _print, PATIENCE_S)
        advice = "" if limits.bounds_waiting else _ADVICE
        watching = watch.run(advice=advice, checks_master=True)
        async with launcher.serving():
            watched = launcher.own(watching)
            try:
                return await self._watched(limits, watch)
            except OutputClosed:
                return SIGNAL_BASE + signal.SIGPIPE
            finally:
                watched.cancel()
                await self._tear_down()

    async def _watched(self, limits: Limits, watch: WaitWatch) -> int:
        launcher = self._launcher
        interrupt = launcher.own(self._signals.first())
        limit = launcher.own(limit_over(limits, launcher, watch.reason))
        await self._first(interrupt, limit, launcher.over)
        if interrupt.done():
            await self._interrupted()
            return SIGNAL_BASE + interrupt.result()
        if launcher.over.done():
            launcher.over.result()
            finished = launcher.own(self._outputs.finished())
            await self._first(interrupt, limit, finished)
            if interrupt.done():
                return SIGNAL_BASE + interrupt.result()
            if finished.done():
                return launcher.progress.exit_code
            _print(limit.result())
            return TIMED_OUT
        _print(limit.result())
        await self._interrupted()
        return TIMED_OUT

    async def _interrupted(self) -> None:
        """Kill the tasks and print their last output; a second signal ends the wait."""
        self._launcher.give_up()
        again = self._launcher.own(self._signals.second())
        ending = self._launcher.own(self._end_tasks())
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await self._first(again, ending)

    async def _end_tasks(self) -> None:
        self._launcher.kill_all()
        await asyncio.wait({self._launcher.over})
        await self._outputs.finished()

    async def _tear_down(self) -> None:
        """Remove the framework, and with it every task that is left."""
        self._launcher.give_up()
        try:
            if self._launcher.has_session:
                await self._launcher.stop(teardown=self._launcher.framework_id is not None)
        except CroupierError as error:
            if not self._launcher.progress.is_over:
                _print(f"tasks may keep running for a minute: {error}")

    async def _first(self, *futures: asyncio.Future[Any]) -> None:
        """Wait for one of `futures`; raise an error of the output."""
        failed = self._outputs.failed
        await first(*futures, failed)
        if failed.done():
            failed.result()


def _print(line: str) -> None:
    print_lines(f"croupier run: {line}", file=sys.stderr)
