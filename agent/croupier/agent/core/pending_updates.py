"""A task's status updates, numbered from 1, each kept until it is acknowledged.

Rule: an acknowledgement covers all updates up to its number, so the unacknowledged updates are
the last ones, without a gap.
"""

from __future__ import annotations

from collections import deque

from croupier.model.task import TaskStatus

FIRST_RESEND_S = 10.0
LAST_RESEND_S = 600.0


class PendingUpdates:
    """The unacknowledged updates of one task."""

    __slots__ = ("_resend_s", "sequence", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[TaskStatus] = deque()
        """Unacknowledged updates, oldest first."""
        self.sequence = 0
        """The number of the latest update."""
        self._resend_s = FIRST_RESEND_S

    def add(self, status: TaskStatus) -> None:
        """Add the next update."""
        assert status.sequence == self.sequence + 1
        self.sequence = status.sequence
        self.waiting.append(status)

    def restore(self, status: TaskStatus) -> None:
        """Add an update of an earlier life; a gap means that the updates before it are lost."""
        if status.sequence != self.sequence + 1:
            self.waiting.clear()
        self.sequence = status.sequence
        self.waiting.append(status)

    def acknowledge(self, sequence: int) -> int:
        """Drop all updates up to `sequence`; return how many there were."""
        before = len(self.waiting)
        while self.waiting and self.waiting[0].sequence <= sequence:
            self.waiting.popleft()
        return before - len(self.waiting)

    def restart_resending(self) -> float:
        """Return the shortest wait until the coming resend, in seconds."""
        self._resend_s = FIRST_RESEND_S
        return self._resend_s

    def put_off_resending(self) -> float:
        """Return twice the last wait until the coming resend, in seconds."""
        self._resend_s = min(self._resend_s * 2, LAST_RESEND_S)
        return self._resend_s

    def check(self) -> None:
        """Assert the rule."""
        numbers = [status.sequence for status in self.waiting]
        assert numbers == list(range(self.sequence - len(numbers) + 1, self.sequence + 1))
        assert FIRST_RESEND_S <= self._resend_s <= LAST_RESEND_S
