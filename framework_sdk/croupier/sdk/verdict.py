"""Answers of the master, and what it says of lost agents."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.errors import CroupierError


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What became of one task of an `accept`.

    Attributes:
        error: why the task was not launched; None if it was.
    """

    task_id: str
    error: CroupierError | None = None

    @property
    def ok(self) -> bool:
        """Whether the task was launched."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one call.

    Attributes:
        error: why the call was not taken; None if it was.
        tasks: for an `accept`, one per task, in order.
    """

    seq: int
    error: CroupierError | None = None
    tasks: tuple[TaskVerdict, ...] = ()

    @property
    def launched(self) -> tuple[int, ...]:
        """Which of its tasks the call launched, by their place in it."""
        return tuple(n for n, task in enumerate(self.tasks) if task.ok and not self.error)


@dataclass(frozen=True, slots=True)
class Failure:
    """An agent is lost. Status updates say what became of each of its tasks."""

    agent_id: str
    hostname: str = ""
    message: str = ""
