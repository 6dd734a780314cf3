"""Which status updates the framework has handled.

Rule: of each task the updates are shown in order, and each is shown again until the
handler returns. An acknowledgement covers all earlier updates of its task, so once one has
failed, whatever comes after it is held back until all before it were handled. An end that
the master tells waits for nothing: the agent that would send what came before is no more.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from croupier.model.task import MASTER_SEQUENCE, TaskState, TaskStatus

ENDED_LIMIT = 100_000
# An agent may say the latest twice when it registers, but no more often without all the rest.
LOST_AFTER = 3


class Judgement(Enum):
    """What to do with an update."""

    SHOW = "show"
    ACKNOWLEDGE = "acknowledge"  # handled before; the agent has not heard of it
    HOLD = "hold"  # neither; the agent sends it again


class UpdateBook:
    """The last handled update of each task; of ended tasks, the latest 100,000."""

    def __init__(self, ended_limit: int = ENDED_LIMIT) -> None:
        """Remember at most `ended_limit` tasks that have ended."""
        self._ended_limit = ended_limit
        self._live: dict[str, int] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()
        # What has come and was not handled, by task: how often since anything before it came.
        # Never empty.
        self._owed: dict[str, dict[int, int]] = {}

    def judge(self, status: TaskStatus) -> Judgement:
        """What to do with `status`, which has just come to its turn."""
        is_over = status.task_id in self._ended
        if is_over and not status.state.is_terminal and status.state is not TaskState.UNKNOWN:
            return Judgement.ACKNOWLEDGE
        is_new = status.sequence > self.last_handled(status.task_id)
        is_end = status.state.is_terminal
        if not status.needs_acknowledgement or (status.is_reconciled and (is_end or not is_new)):
            return Judgement.SHOW
        if not is_new:
            return Judgement.ACKNOWLEDGE
        if status.sequence == MASTER_SEQUENCE:
            # Nobody is left who could send what came before; but a task ends once.
            return Judgement.ACKNOWLEDGE if is_over else Judgement.SHOW
        owed = self._owed.get(status.task_id)
        if owed is None:
            return Judgement.SHOW
        return self._judge_after_failure(owed, status.sequence)

    def _judge_after_failure(self, owed: dict[int, int], sequence: int) -> Judgement:
        """Hold an update back for earlier ones, unless these are lost."""
        for later in [number for number in owed if number > sequence]:
            owed[later] = 0
        earlier = [number for number in owed if number < sequence]
        if not earlier:
            return Judgement.SHOW
        times = owed.get(sequence, 0) + 1
        if times < LOST_AFTER:
            owed[sequence] = times
            return Judgement.HOLD
        for number in earlier:
            del owed[number]
        return Judgement.SHOW

    def last_handled(self, task_id: str) -> int:
        """Sequence number of the latest update handled; 0 if there is none."""
        return self._live.get(task_id, 0) or self._ended.get(task_id, 0)

    def on_handled(self, status: TaskStatus) -> None:
        """The handler returned: the update is done with."""
        task_id = status.task_id
        last = max(status.sequence, self.last_handled(task_id))
        owed = self._owed.pop(task_id, None)
        if owed is not None and not status.state.is_terminal:
            self._owe(task_id, {number: times for number, times in owed.items() if number > last})
        if status.state.is_terminal:
            self._live.pop(task_id, None)
            self._ended[task_id] = last
            self._ended.move_to_end(task_id)
            if len(self._ended) > self._ended_limit:
                self._ended.popitem(last=False)
        elif status.needs_acknowledgement:
            self._ended.pop(task_id, None)
            self._live[task_id] = last

    def on_failed(self, status: TaskStatus) -> None:
        """The handler raised: hold back what comes after, until the agent sends it again."""
        if status.sequence > self.last_handled(status.task_id):
            owed = self._owed.get(status.task_id, {})
            self._owe(status.task_id, {**owed, status.sequence: 1})

    def _owe(self, task_id: str, owed: dict[int, int]) -> None:
        if owed:
            self._owed[task_id] = owed

    def check(self) -> None:
        """Assert every invariant; O(tasks)."""
        assert not self._live.keys() & self._ended.keys()
        assert len(self._ended) <= self._ended_limit
        assert all(sequence > 0 for sequence in self._live.values())
        for task_id, owed in self._owed.items():
            assert min(owed) > self.last_handled(task_id)
