"""What preemption may do with a task, and when: the wishes of its framework, and their bounds."""

from __future__ import annotations

from typing import Final

from croupier.model.durations import parse_duration, to_milliseconds
from croupier.model.errors import InvalidRequest
from croupier.model.value import value

MAX_MIN_RUN_MS: Final = 24 * 3600 * 1000


@value
class TaskPreemption:
    """The rules of a task that is taken back for a starving framework.

    Attributes:
        min_run_ms: it is not preempted before it has run for so long.
        requeue: whether it goes back to the front of its queue, if it was submitted.
    """

    min_run_ms: int = 0
    requeue: bool = False

    def check(self) -> None:
        """Raise InvalidRequest if a value is out of range."""
        check_min_run(self.min_run_ms)


NO_PREEMPTION: Final = TaskPreemption()


def check_min_run(min_run_ms: int) -> None:
    """Raise InvalidRequest if `min_run_ms` cannot be a minimum run time."""
    if not 0 <= min_run_ms <= MAX_MIN_RUN_MS:
        raise InvalidRequest("the minimum run time must be between 0 and 24 hours")


def parse_min_run(text: str) -> int | None:
    """Return the milliseconds of a role's minimum run time; None for `inherit`.

    Raises InvalidRequest if `text` is no such time.
    """
    if text == "inherit":
        return None
    min_run_ms = to_milliseconds("the minimum run time", parse_duration(text))
    check_min_run(min_run_ms)
    return min_run_ms
