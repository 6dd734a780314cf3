"""Lines about runs, for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.apps.cron.core.job import CronJob
from croupier.apps.cron.core.run import RunState, ScheduledRun
from croupier.model.durations import duration_text


def first_line(jobs: Sequence[CronJob], now: int) -> str:
    """Return the line that says which job runs next."""
    count = f"running {len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    times = [(at, job) for job in jobs if (at := job.schedule.next_after(now)) is not None]
    if not times:
        return f"{count}; none has a time to come"
    at, job = min(times, key=lambda found: (found[0], found[1].name))
    return f"{count}; the next is {job.name} at {job.schedule.shown(at)}"


def line_of(run: ScheduledRun, shown: str) -> str | None:
    """Return a line about a run's new state; None if there is nothing to say.

    `shown` is its time as people see it.
    """
    text = _text(run)
    return text and f"{run.job} of {shown}: {text}"


def result_of(run: ScheduledRun) -> str:
    """Return the detail of a run, and its exit code where that says more."""
    if run.state is RunState.FINISHED or not run.detail:
        return "" if run.exit_code in (0, None) else f"exit code {run.exit_code}"
    return run.detail


def _text(run: ScheduledRun) -> str | None:
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
