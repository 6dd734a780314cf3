"""Running a job on the cluster: from the job to the exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any, Final, TypeVar

from croupier.apps.controller.process import Crew, run_application
from croupier.apps.controller.waiting import WaitWatch
from croupier.apps.run.addresses import Addresses
from croupier.apps.run.job import Job
from croupier.apps.run.launcher import Launcher
from croupier.apps.run.limits import Limits, limit_over
from croupier.apps.run.links import Links
from croupier.apps.run.output import Outputs
from croupier.cli.flags import TIMED_OUT, Target
from croupier.cli.printer import OutputClosed, Printer
from croupier.cli.signals import SIGNAL_BASE, EndSignals
from croupier.cli.terminal import print_lines
from croupier.model.errors import (
    CroupierError,
    PermissionDenied,
    Unavailable,
)
from croupier.model.ids import DEFAULT_ROLE

# Limit for the end of tasks after Ctrl-C; their grace period is 3 s.
KILL_S: Final = 8.0
PATIENCE_S: Final = 2.0
_ADVICE: Final = " (--wait-for-resources TIME gives up)"

T = TypeVar("T")


def run_job(job: Job, target: Target, limits: Limits) -> int:
    """Run `job`; return its exit code.

    The code is 124 if a limit passed, and 128 + N if signal N ended this process.

    Raises:
        CroupierError: if the master refuses the job, or ends its session.
    """
    return run_application(target, lambda: _run(job, target, limits))


def role_hint(job: Job, refusal: str) -> str:
    """Return the advice to name a role, if the master refuses the default one; else nothing."""
    is_default = job.role == DEFAULT_ROLE and f"role:{DEFAULT_ROLE}" in refusal
    return "; --role names the role to run in" if is_default else ""


async def _run(job: Job, target: Target, limits: Limits) -> int:
    printer = Printer(sys.stdout.buffer, sys.stderr.buffer, prefixed=job.count > 1)
    try:
        addresses = Addresses(target)
        links = Links(target)
        async with Outputs(printer, addresses, links, _print, target.security) as outputs:
            launcher = Launcher(job, target, outputs, addresses, _print)
            return await Run(target, launcher, outputs).to_the_end(limits)
    except PermissionDenied as error:
        raise PermissionDenied(f"{error}{role_hint(job, str(error))}") from None
    finally:
        printer.close()


class Run:
    """One run: the framework, and the tasks that watch it."""

    def __init__(self, target: Target, launcher: Launcher, outputs: Outputs) -> None:
        self._target, self._launcher, self._outputs = target, launcher, outputs
        self._crew = Crew()
        self._signals = EndSignals()

    async def to_the_end(self, limits: Limits) -> int:
        """Run until the job, a signal, a limit or an error ends it; return the exit code."""
        session = self._crew.own(self._launcher.run())
        watch = WaitWatch(self._launcher, self._target, _print, PATIENCE_S)
        advice = "" if limits.bounds_waiting else _ADVICE
        watching = self._crew.own(watch.run(advice=advice, checks_master=True))
        interrupt = self._crew.own(self._signals.first())
        limit = self._crew.own(limit_over(limits, self._launcher, watch.reason))
        try:
            await self._first(session, watching, interrupt, limit, self._launcher.over)
            if interrupt.done():
                await self._interrupted()
                return SIGNAL_BASE + interrupt.result()
            for ended in (session, watching, self._launcher.over):
                if ended.done():
                    ended.result()
            if session.done():
                raise Unavailable("the session with the master ended")
            if limit.done() and not self._launcher.over.done():
                _print(limit.result())
                await self._interrupted()
                return TIMED_OUT
            finished = self._crew.own(self._outputs.finished())
            await self._first(interrupt, limit, finished)
            if interrupt.done():
                return SIGNAL_BASE + interrupt.result()
            if not finished.done():
                _print(limit.result())
                return TIMED_OUT
            return self._launcher.progress.exit_code
        except OutputClosed:
            return SIGNAL_BASE + signal.SIGPIPE
        finally:
            watching.cancel()
            await self._tear_down(session)
            self._signals.close()

    async def _interrupted(self) -> None:
        """Kill the tasks and print their last output; a second signal ends the wait."""
        self._launcher.give_up()
        again = self._crew.own(self._signals.second())
        ending = self._crew.own(self._end_tasks())
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await self._first(again, ending)

    async def _end_tasks(self) -> None:
        self._launcher.kill_all()
        await asyncio.wait({self._launcher.over})
        await self._outputs.finished()

    async def _tear_down(self, session: asyncio.Task[None]) -> None:
        """Remove the framework, and with it every task that is left."""
        self._launcher.give_up()
        try:
            if not session.done():
                await self._launcher.stop(teardown=self._launcher.framework_id is not None)
        except CroupierError as error:
            if not self._launcher.progress.is_over:
                _print(f"tasks may keep running for a minute: {error}")
        finally:
            self._launcher.end()
            await self._crew.end(self._launcher.over)

    async def _first(self, *futures: asyncio.Future[Any]) -> None:
        """Wait for one of `futures`; raise an error of the output."""
        failed = self._outputs.failed
        await asyncio.wait((*futures, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()


def _print(line: str) -> None:
    print_lines(f"croupier run: {line}", file=sys.stderr)
