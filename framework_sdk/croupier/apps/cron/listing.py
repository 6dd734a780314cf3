"""`croupier cron next` and `croupier cron history`."""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from croupier.apps.cron.cli import FileArgument, StateFlag
from croupier.apps.cron.core.job import CronJob, RunState, ScheduledRun, check_name
from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.cron.cron_file import CronFile, read_cron_file
from croupier.apps.cron.state_file import opened, state_path
from croupier.apps.job_file.section import SUFFIXES
from croupier.cli.flags import JsonListFlag
from croupier.cli.table import Table, number, print_table, text
from croupier.model.durations import duration_text
from croupier.model.errors import NotFound

# Times of jobs whose time zone is not known are shown in UTC.
_UTC: Final = Schedule("@daily")
CountFlag = Annotated[
    int,
    Parameter(
        name=["--count", "-n"],
        validator=Number(gte=1, lte=10_000),
        help="Number of entries to show.",
    ),
]


def first_line(jobs: Collection[CronJob], now: int) -> str:
    """Return the line that says which job runs next."""
    count = f"running {len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    times = [(at, job) for job in jobs if (at := job.schedule.next_after(now)) is not None]
    if not times:
        return f"{count}; none has a time to come"
    at, job = min(times, key=lambda found: (found[0], found[1].name))
    return f"{count}; the next is {job.name} at {job.schedule.shown(at)}"


def line_of(run: ScheduledRun, schedule: Schedule | None) -> str:
    """Return a line about a run's new state."""
    shown = str(run.scheduled) if schedule is None else schedule.shown(run.scheduled)
    return f"{run.job} of {shown}: {_text(run)}"


def result_of(run: ScheduledRun) -> str:
    """Return the detail of a run, and its exit code where that says more."""
    if run.state is RunState.FINISHED or not run.detail:
        return "" if run.exit_code in (0, None) else f"exit code {run.exit_code}"
    return run.detail


def _text(run: ScheduledRun) -> str:
    match run.state:
        case RunState.WAITING if run.attempt > 1:
            return f"{run.detail or 'failed'}; it is tried again"
        case RunState.WAITING:
            return "waits for an earlier run"
        case RunState.PLACING if run.is_replaced:
            return "is being replaced"
        case RunState.PLACING:
            return "placing" + (f", attempt {run.attempt}" if run.attempt > 1 else "")
        case RunState.RUNNING:
            return "is being replaced" if run.is_replaced else "runs"
        case RunState.FINISHED if run.started is not None and run.ended is not None:
            return f"finished after {duration_text(run.ended - run.started)}"
        case _:
            return f"{run.state}" + (f": {run.detail}" if run.detail else "")


JOBS: Final = Table(
    (
        text("JOB", "job", is_id=True),
        text("SCHEDULE", "schedule"),
        text("OVERLAP", "overlap"),
        text("MISSED", "missed"),
        text("NEXT", "shown", is_id=True),
    ),
    "no jobs",
)
NEXT: Final = Table(
    (text("TIME", "shown", is_id=True), text("JOB", "job", is_id=True), text("IN", "in")),
    "no job runs within 50 years",
)
HISTORY: Final = Table(
    (
        text("TIME", "shown", is_id=True),
        text("JOB", "job", is_id=True),
        text("STATE", "state"),
        number("ATTEMPT", "attempt"),
        text("TOOK", "took"),
        text("DETAIL", "detail"),
    ),
    "no runs yet",
)


def print_jobs(file: CronFile) -> None:
    """Print the jobs of a file, with the next time of each."""
    now, views = int(time.time()), []
    for job in file.jobs.values():
        at = job.schedule.next_after(now)
        view = {"job": job.name, "schedule": job.schedule.text, "shown": ""}
        view |= {"overlap": str(job.overlap), "missed": str(job.missed)}
        views.append(view | ({} if at is None else {"shown": job.schedule.shown(at)}))
    print_table(JOBS, views, sys.stdout)


def print_next(
    file: FileArgument,
    job: str | None = None,
    /,
    *,
    count: CountFlag = 10,
    as_json: JsonListFlag = False,
) -> None:
    """Show the next times of the jobs of a file, or of one job.

    Args:
        job: The name of a job.
    """
    read = read_cron_file(file)
    jobs = [each for name, each in read.jobs.items() if job in (None, name)]
    if not jobs:
        raise NotFound(f"{file} has no job {job!r}")
    now = time.time()
    times = heapq.merge(*(_times(each, int(now)) for each in jobs), key=lambda found: found[:2])
    views = [
        {
            "time": _iso(at),
            "shown": each.schedule.shown(at),
            "job": each.name,
            "in": duration_text(at - now),
        }
        for (at, _, each), _ in zip(times, range(count), strict=False)
    ]
    _print(NEXT, views, as_json=as_json)


def print_history(
    file_or_name: str,
    job: str | None = None,
    /,
    *,
    count: CountFlag = 20,
    as_json: JsonListFlag = False,
    state: StateFlag = None,
) -> None:
    """Show the last runs of the jobs of a file, or of one job. It works while cron runs, too.

    Args:
        file_or_name: The cron file, or its name.
        job: The name of a job.
    """
    zones = {}
    if file_or_name.lower().endswith(SUFFIXES):
        file = read_cron_file(Path(file_or_name))
        name, zones = file.name, {key: each.schedule for key, each in file.jobs.items()}
    else:
        name = check_name(file_or_name)
    with opened(state_path(name, state), may_create=False) as stored:
        runs = stored.history(job, count)
    views = [_view(run, zones.get(run.job, _UTC).shown(run.scheduled)) for run in runs]
    _print(HISTORY, views, as_json=as_json)


def _times(job: CronJob, now: int) -> Iterator[tuple[int, str, CronJob]]:
    at = job.schedule.next_after(now)
    while at is not None:
        yield at, job.name, job
        at = job.schedule.next_after(at)


def _view(run: ScheduledRun, shown: str) -> dict[str, Any]:
    took_s = run.ended - run.started if run.started and run.ended else None
    return {
        "time": _iso(run.scheduled),
        "shown": shown,
        "job": run.job,
        "state": str(run.state),
        "attempt": run.attempt,
        "failures": run.failures,
        "task_id": run.task_id,
        "took": "" if took_s is None else duration_text(took_s),
        "took_s": took_s,
        "exit_code": run.exit_code,
        "detail": result_of(run),
    }


def _print(table: Table, views: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{k: v for k, v in view.items() if k != "shown"} for view in views]))
    else:
        print_table(table, views, sys.stdout)


def _iso(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat()
