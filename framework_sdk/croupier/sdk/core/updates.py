"""The status updates that the framework has handled.

Rule: the updates of a task are shown in order, and each is shown again until the handler returns.
An acknowledgement covers all earlier updates of its task. So once the handler failed on one, later
ones are held back until all before them were handled. An end that the master reports is not held
back: the agent that would send the earlier updates is gone.

A task that has ended may be queued again after an operator restored an older copy of the master's
store. It must not run again, so it is withdrawn once the framework hears of it.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from croupier.model.task import MASTER_SEQUENCE, TaskState, TaskStatus

ENDED_LIMIT = 100_000
# An agent may send its latest update twice when it registers, but not more often without all the
# earlier ones.
LOST_AFTER = 3


class UpdateDecision(Enum):
    """The decision about an update."""

    SHOW = "show"
    ACKNOWLEDGE = "acknowledge"  # handled before; the acknowledgement was lost
    HOLD = "hold"  # the agent sends it again
    WITHDRAW = "withdraw"  # a task that has ended is queued again


class UpdateBook:
    """The last handled update of each live task, and of the latest 100,000 ended ones."""

    def __init__(self, ended_limit: int = ENDED_LIMIT) -> None:
        """Remember at most `ended_limit` tasks that have ended."""
        self._ended_limit = ended_limit
        self._live: dict[str, int] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()
        # By task: its unhandled updates, and how often each arrived since any earlier one did. No
        # inner mapping is empty.
        self._unhandled: dict[str, dict[int, int]] = {}

    def decide(self, status: TaskStatus) -> UpdateDecision:
        """Return what to do with `status`, which is next in the inbox."""
        is_over = status.task_id in self._ended
        if is_over and status.state is TaskState.QUEUED:
            return UpdateDecision.WITHDRAW
        if is_over and not status.state.is_terminal and status.state is not TaskState.UNKNOWN:
            return UpdateDecision.ACKNOWLEDGE
        is_new = status.sequence > self.last_handled(status.task_id)
        is_end = status.state.is_terminal
        if not status.needs_acknowledgement or (status.is_reconciled and (is_end or not is_new)):
            return UpdateDecision.SHOW
        if not is_new:
            # A master with an older store may have launched the task again; it ends once.
            return UpdateDecision.SHOW if is_end and not is_over else UpdateDecision.ACKNOWLEDGE
        if status.sequence == MASTER_SEQUENCE:
            # The agent with the earlier updates is gone; but a task ends once.
            return UpdateDecision.ACKNOWLEDGE if is_over else UpdateDecision.SHOW
        unhandled = self._unhandled.get(status.task_id)
        if unhandled is None:
            return UpdateDecision.SHOW
        return self._decide_after_failure(unhandled, status.sequence)

    def _decide_after_failure(self, unhandled: dict[int, int], sequence: int) -> UpdateDecision:
        """Hold an update back for earlier ones, unless these are lost."""
        for later in [number for number in unhandled if number > sequence]:
            unhandled[later] = 0
        earlier = [number for number in unhandled if number < sequence]
        if not earlier:
            return UpdateDecision.SHOW
        times = unhandled.get(sequence, 0) + 1
        if times < LOST_AFTER:
            unhandled[sequence] = times
            return UpdateDecision.HOLD
        for number in earlier:
            del unhandled[number]
        return UpdateDecision.SHOW

    def last_handled(self, task_id: str) -> int:
        """Return the sequence number of the latest update handled; 0 if there is none."""
        return self._live.get(task_id, 0) or self._ended.get(task_id, 0)

    def on_handled(self, status: TaskStatus) -> None:
        """Record that the handler returned."""
        task_id = status.task_id
        last = max(status.sequence, self.last_handled(task_id))
        unhandled = self._unhandled.pop(task_id, {})
        if status.state.is_terminal:
            self._live.pop(task_id, None)
            self._ended[task_id] = last
            self._ended.move_to_end(task_id)
            if len(self._ended) > self._ended_limit:
                self._ended.popitem(last=False)
            return
        if left := {number: times for number, times in unhandled.items() if number > last}:
            self._unhandled[task_id] = left
        if status.needs_acknowledgement:
            self._ended.pop(task_id, None)
            self._live[task_id] = last

    def on_failed(self, status: TaskStatus) -> None:
        """Record that the handler raised: hold later updates until this one is handled."""
        if status.sequence > self.last_handled(status.task_id):
            self._unhandled.setdefault(status.task_id, {})[status.sequence] = 1

    def check(self) -> None:
        """Assert every invariant; O(tasks)."""
        assert not self._live.keys() & self._ended.keys()
        assert len(self._ended) <= self._ended_limit
        assert all(sequence > 0 for sequence in self._live.values())
        for task_id, unhandled in self._unhandled.items():
            assert min(unhandled) > self.last_handled(task_id)
