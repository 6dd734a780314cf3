"""Jobs: a schedule, and what to do where times meet or were missed."""

from __future__ import annotations

import re
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
    """What a time does while an earlier run of its job has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class Missed(StrEnum):
    """What is done about times that passed while cron did not run."""

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
