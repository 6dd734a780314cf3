"""Jobs and their runs: a schedule, which of its times are due, and what becomes of each of them.

Rule: a job has at most one run for each of its times, and its tasks have ids that follow from the
job, the time and the attempt. So nothing that is done twice makes a second task.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.job_file.task_spec import DEFAULT_TASK, TaskSpec
from croupier.model.errors import InvalidRequest

MAX_NAME: Final = 64
MAX_QUEUE: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# A time that is seen later than this was missed: cron did not run, or the clock leapt.
LATE_S: Final = 60


class Overlap(StrEnum):
    """What happens at a scheduled time while an earlier run has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class Missed(StrEnum):
    """What happens to times that passed while cron did not run."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class CronJob:
    """A job: when and what it runs.

    Attributes:
        queue: runs that may wait, with the overlap policy `queue`.
        catch_up: runs that the policy `all` makes up for, the latest ones.
        history: ended runs that the state file keeps.
    """

    name: str
    schedule: Schedule
    spec: TaskSpec = DEFAULT_TASK
    overlap: Overlap = Overlap.SKIP
    queue: int = 10
    missed: Missed = Missed.SKIP
    catch_up: int = 10
    history: int = 100


def check_name(name: str) -> str:
    """Return `name` if it can be part of task ids and of file names.

    Raises InvalidRequest if it has other characters than letters, digits, `-` and `_`.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:80]!r} is not a name: letters, digits, - and _ are expected, up to {MAX_NAME}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Due:
    """Times to decide on, oldest first.

    Attributes:
        dropped: missed times that get no run.
        has_more: whether there are earlier ones, too many to count.
        late: missed times that get a run.
        on_time: the others.
    """

    dropped: list[int]
    has_more: bool
    late: list[int]
    on_time: list[int]


def due_times(job: CronJob, after: int, now: float) -> Due:
    """Return the times of `job` after `after`, up to `now`."""
    most = {Missed.SKIP: 0, Missed.ONCE: 1, Missed.ALL: job.catch_up}[job.missed]
    times, has_more = latest(job.schedule, after, int(now), LATE_S + most + 1)
    late = [time for time in times if time <= now - LATE_S]
    first = max(0, len(late) - most)
    return Due(late[:first], has_more, late[first:], times[len(late) :])


def latest(schedule: Schedule, after: int, until: int, most: int) -> tuple[list[int], bool]:
    """Return the last times of (after, until], at most `most`, and whether there are earlier ones.

    Looks backwards in windows that double, so that a year of missed seconds costs little.
    """
    window = 60
    while True:
        start = max(after, until - window)
        found = deque(schedule.times(start, until), maxlen=most + 1)
        if len(found) > most:
            found.popleft()
            return list(found), True
        if start <= after:
            return list(found), False
        window *= 2


class RunState(StrEnum):
    """The state of a run; the texts are those of the state file."""

    WAITING = "waiting"  # for an earlier run, or to be tried again
    PLACING = "placing"  # handed to the cluster
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"  # its agent, or the framework, was lost
    REPLACED = "replaced"  # ended for a later run
    SKIPPED = "skipped"  # by the overlap policy
    MISSED = "missed"  # by the policy for missed times

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the run."""
        return self not in _OPEN

    @property
    def has_task(self) -> bool:
        """Whether the cluster may have a task of the run."""
        return self in (RunState.PLACING, RunState.RUNNING)


_OPEN = frozenset({RunState.WAITING, RunState.PLACING, RunState.RUNNING})


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One scheduled time of a job. Times are seconds since the epoch.

    Attributes:
        attempt: number of its task, from 1. Every task that is handed over has another number.
        failures: attempts that failed.
        not_before: of the next attempt; 0 if it can start at once.
        is_replaced: whether its task is being killed for a later run.
        started: start of the last attempt.
        detail: for people: why it was skipped, how it failed.
    """

    job: str
    scheduled: int
    state: RunState = RunState.WAITING
    attempt: int = 1
    failures: int = 0
    not_before: float = 0.0
    is_replaced: bool = False
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    detail: str = ""

    @property
    def task_id(self) -> str:
        """Id of the task of the present attempt."""
        return f"{self.job}.{stamp(self.scheduled)}.{self.attempt}"

    def end(self, state: RunState, now: float, detail: str = "") -> ScheduledRun:
        """Return the run as ended."""
        assert state.has_ended
        return replace(self, state=state, ended=now, not_before=0.0, detail=detail)


def stamp(instant: int) -> str:
    """Return an instant as it stands in ids: `20260329T003000Z`."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y%m%dT%H%M%SZ")


@dataclass(frozen=True, slots=True)
class _AboutRun:
    run: ScheduledRun


class KeepRun(_AboutRun):
    """Record a run in the state file."""


class LaunchRun(_AboutRun):
    """Hand the task of a run to the cluster, once it is recorded."""


class Kill(_AboutRun):
    """Kill the task of a run."""


@dataclass(frozen=True, slots=True)
class KeepCursor:
    """Record that all times of a job up to `cursor` are decided, with its schedule as text."""

    job: str
    cursor: int
    schedule: str


Effect: TypeAlias = KeepRun | KeepCursor | LaunchRun | Kill
