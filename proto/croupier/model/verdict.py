"""The master's answer to a framework's call."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.errors import CroupierError


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The answer to one task of an ACCEPT; `error` is why it was not launched, or None."""

    task_id: str
    error: CroupierError | None = None

    @property
    def ok(self) -> bool:
        """Whether the task was launched."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class OperationVerdict:
    """The answer to one operation on a hold.

    Attributes:
        id: of the hold.
        error: why it was not made or released; None if it was.
    """

    id: str
    error: CroupierError | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation was carried out."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one call.

    Attributes:
        error: why the call was refused; None if it was not.
        tasks: one per task of an ACCEPT, in order.
        operations: one per hold that an ACCEPT makes, then one per hold that it releases.
    """

    seq: int
    error: CroupierError | None = None
    tasks: tuple[TaskVerdict, ...] = ()
    operations: tuple[OperationVerdict, ...] = ()

    @property
    def launched(self) -> tuple[int, ...]:
        """Positions of the tasks that the call launched."""
        return tuple(n for n, task in enumerate(self.tasks) if task.ok and not self.error)
