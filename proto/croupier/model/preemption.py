"""What preemption may do with a task, and when: the wishes of its framework, and their bounds."""

from __future__ import annotations

from typing import Final

from croupier.model.durations import parse_duration, to_milliseconds
from croupier.model.errors import InvalidRequest
from croupier.model.value import value

MAX_MIN_RUN_MS: Final = 24 * 3600 * 1000
# By their numbers on Linux, which are those of the wire.
CHECKPOINT_SIGNALS: Final = {10: "SIGUSR1", 12: "SIGUSR2", 1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}


@value
class TaskPreemption:
    """The rules of a task that is taken back for a starving framework.

    Attributes:
        min_run_ms: it is not preempted before it has run for so long.
        requeue: whether it goes back to the front of its queue, if it was submitted.
        checkpoint_signal: the number of the signal that it gets at the beginning of its grace, to
            save its state; 0: none.
    """

    min_run_ms: int = 0
    requeue: bool = False
    checkpoint_signal: int = 0

    @property
    def needs_agent(self) -> bool:
        """Whether its agent has to know these rules."""
        return self.requeue or bool(self.checkpoint_signal)

    def check(self) -> None:
        """Raise InvalidRequest if a value is out of range."""
        check_min_run(self.min_run_ms)
        if self.checkpoint_signal and self.checkpoint_signal not in CHECKPOINT_SIGNALS:
            raise _no_signal(str(self.checkpoint_signal))


NO_PREEMPTION: Final = TaskPreemption()


def check_min_run(min_run_ms: int) -> None:
    """Raise InvalidRequest if `min_run_ms` cannot be a minimum run time."""
    if not 0 <= min_run_ms <= MAX_MIN_RUN_MS:
        raise InvalidRequest("the minimum run time must be between 0 and 24 hours")


def parse_checkpoint_signal(text: str) -> int:
    """Return the number of a signal such as `SIGUSR1` or `USR1`; 0 for an empty text.

    Raises InvalidRequest if it is no signal that a task may get to save its state.
    """
    name = "SIG" + text.upper().removeprefix("SIG")
    found = next((number for number, known in CHECKPOINT_SIGNALS.items() if known == name), 0)
    if text and not found:
        raise _no_signal(repr(text[:80]))
    return found


def _no_signal(given: str) -> InvalidRequest:
    known = ", ".join(CHECKPOINT_SIGNALS.values())
    return InvalidRequest(f"{given} is no signal for a checkpoint; there are {known}")


def parse_min_run(text: str) -> int | None:
    """Return the milliseconds of a role's minimum run time; None for `inherit`.

    Raises InvalidRequest if `text` is no such time.
    """
    if text == "inherit":
        return None
    min_run_ms = to_milliseconds("the minimum run time", parse_duration(text))
    check_min_run(min_run_ms)
    return min_run_ms
