"""Running the jobs of a file until a signal."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

from croupier.apps.controller.process import first, run_application
from croupier.apps.controller.state_lock import locked, state_directory
from croupier.apps.controller.waiting import WaitWatch
from croupier.apps.cron.core.run import ScheduledRun
from croupier.apps.cron.cron_file import CronFile
from croupier.apps.cron.framework import CronFramework
from croupier.apps.cron.lines import first_line, line_of
from croupier.apps.cron.state_file import StateFile, opened
from croupier.cli.flags import Target
from croupier.cli.signals import EndSignals
from croupier.cli.terminal import print_lines
from croupier.model.errors import Conflict
from croupier.process.logging import replace_standard_error
from croupier.sdk import Removed

PATIENCE_S = 5.0


def state_path(name: str, chosen: Path | None) -> Path:
    """Return the state file of a cron file's name, or the one that was chosen."""
    return chosen or state_directory("cron") / f"{name}.db"


def run_cron(file: CronFile, target: Target, chosen: Path | None) -> int:
    """Run the jobs of `file` until a signal; return the exit code.

    Raises:
        Conflict: if another copy runs, or another file has this name.
        InvalidRequest: if the state is damaged.
        CroupierError: if the master refuses, or the state cannot be written.
    """
    replace_standard_error(lambda lost: _print(f"{lost} lines could not be written"))
    path = state_path(file.name, chosen)
    with (
        locked(path.with_name(path.name + ".lock"), f"the state {path} of {file.path}"),
        opened(path, may_create=True) as state,
    ):
        _claim(state, file)
        return run_application(target, lambda: _run(file, target, state))


def _claim(state: StateFile, file: CronFile) -> None:
    """Refuse the state of another file of the same name that still exists."""
    own, known = str(file.path.resolve()), state.fact("file")
    if known and known != own and Path(known).exists():
        raise Conflict(
            f"the name {file.name} is that of {known}: give {file.path} another `name`, or --state"
        )
    if known != own:
        state.keep(file=own)


async def _run(file: CronFile, target: Target, state: StateFile) -> int:
    zones = {job.name: job.schedule for job in file.jobs}

    def tell(run: ScheduledRun) -> None:
        schedule = zones.get(run.job)
        line = line_of(
            run, str(run.scheduled) if schedule is None else schedule.shown(run.scheduled)
        )
        if line:
            _print(line)

    _print(first_line(file.jobs, int(time.time())))
    with closing(EndSignals()) as signals:
        while True:
            framework = CronFramework(file, target, state, tell, _print)
            framework.load()
            try:
                await _serve(framework, target, signals)
            except Removed:
                framework.forsake()
                _print("the master had removed the framework: beginning a new one")
                continue
            return 0


async def _serve(framework: CronFramework, target: Target, signals: EndSignals) -> None:
    """Run a framework until a signal or an error."""
    watch = WaitWatch(framework, target, _print, PATIENCE_S)
    async with framework.serving(framework.keep_time(), watch.run(tells_soon=False)):
        await first(framework.over, framework.own(signals.first()))
        if framework.over.done():
            framework.over.result()


def _print(line: str) -> None:
    print_lines(f"croupier cron: {line}", file=sys.stderr)
