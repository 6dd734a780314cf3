"""A task's status updates, numbered from 1, each kept until it is acknowledged.

Rule: what waits is always the last numbers without a gap, for an acknowledgement covers
everything up to its number.
"""

from __future__ import annotations

from collections import deque

from croupier.model.task import TaskStatus

FIRST_RESEND_S = 10.0
LAST_RESEND_S = 600.0


class PendingUpdates:
    """What one task has told its framework, as far as the agent cannot be sure that it knows."""

    __slots__ = ("_resend_s", "sequence", "waiting")

    def __init__(self) -> None:
        """Begin with nothing said."""
        self.waiting: deque[TaskStatus] = deque()
        """Oldest first."""
        self.sequence = 0
        """The number of the latest update."""
        self._resend_s = FIRST_RESEND_S

    def add(self, status: TaskStatus) -> None:
        """Keep the next update."""
        assert status.sequence == self.sequence + 1
        self.sequence = status.sequence
        self.waiting.append(status)

    def restore(self, status: TaskStatus) -> None:
        """Keep the next update of an earlier life; after a gap, what came before is lost."""
        if status.sequence != self.sequence + 1:
            self.waiting.clear()
        self.sequence = status.sequence
        self.waiting.append(status)

    def acknowledge(self, sequence: int) -> int:
        """Forget everything up to and with `sequence`; the number of updates that was."""
        before = len(self.waiting)
        while self.waiting and self.waiting[0].sequence <= sequence:
            self.waiting.popleft()
        return before - len(self.waiting)

    def restart_resending(self) -> float:
        """Somebody listens (again): seconds until the coming resend, the shortest wait."""
        self._resend_s = FIRST_RESEND_S
        return self._resend_s

    def put_off_resending(self) -> float:
        """It was sent once more: seconds until the coming resend, twice the last wait."""
        self._resend_s = min(self._resend_s * 2, LAST_RESEND_S)
        return self._resend_s

    def check(self) -> None:
        """Assert the rule."""
        numbers = [status.sequence for status in self.waiting]
        assert numbers == list(range(self.sequence - len(numbers) + 1, self.sequence + 1))
        assert FIRST_RESEND_S <= self._resend_s <= LAST_RESEND_S
