"""Jobs: a schedule, which of its times are due, and what to do where times meet or were missed."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.job_file import Backoff
from croupier.model.errors import InvalidRequest

MAX_NAME: Final = 64
MAX_QUEUE: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


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
    """A job as its policies see it.

    Attributes:
        queue: runs that may wait, with the overlap policy `queue`.
        catch_up: runs that the policy `all` makes up for, the latest ones.
        retries: attempts after a failed one.
        history: ended runs that the state file keeps.
    """

    name: str
    schedule: Schedule
    overlap: Overlap = Overlap.SKIP
    queue: int = 10
    missed: Missed = Missed.SKIP
    catch_up: int = 10
    retries: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    history: int = 100


def check_name(name: str) -> str:
    """Return `name` if it can be part of task ids and of file names.

    Raises:
        InvalidRequest: if it has other characters than letters, digits, `-` and `_`.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:80]!r} is not a name: letters, digits, - and _ are expected, up to {MAX_NAME}"
        )
    return name


# A time that is seen later than this was missed: cron did not run, or the clock leapt.
LATE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Due:
    """Times to decide on, oldest first.

    Attributes:
        missed: the last time that gets no run; None if every time gets one.
        missed_count: the number of such times; None if there are too many to count.
        late: missed times that get a run.
        on_time: the others.
    """

    missed: int | None = None
    missed_count: int | None = 0
    late: tuple[int, ...] = ()
    on_time: tuple[int, ...] = ()

    @property
    def last(self) -> int | None:
        """The last of all these times."""
        return next(iter((*self.on_time[-1:], *self.late[-1:])), self.missed)


def due_times(job: CronJob, after: int, now: float) -> Due:
    """Return the times of `job` after `after`, up to `now`."""
    most = {Missed.SKIP: 0, Missed.ONCE: 1, Missed.ALL: job.catch_up}[job.missed]
    times, has_more = latest(job.schedule, after, int(now), LATE_S + most + 1)
    late = [time for time in times if time <= now - LATE_S]
    on_time = times[len(late) :]
    made_up, dropped = late[len(late) - min(most, len(late)) :], late[: max(0, len(late) - most)]
    if not dropped:
        return Due(None, 0, tuple(made_up), tuple(on_time))
    count = None if has_more else len(dropped)
    return Due(dropped[-1], count, tuple(made_up), tuple(on_time))


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
