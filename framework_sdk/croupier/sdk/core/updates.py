"""Which status updates the framework has handled.

Rule: of each task the updates are shown in order, and each is shown again until the
handler returns; an acknowledgement covers all earlier updates of its task, so what comes
after a failed one is held back until that one was handled.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from croupier.model.task import TaskStatus

ENDED_LIMIT = 100_000


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
        self._failed: dict[str, int] = {}

    def judge(self, status: TaskStatus) -> Judgement:
        """What to do with `status`, which has just come to its turn."""
        if not status.needs_acknowledgement:
            return Judgement.SHOW
        if status.sequence <= self.last_handled(status.task_id):
            return Judgement.ACKNOWLEDGE
        failed = self._failed.get(status.task_id)
        if failed is not None and status.sequence > failed:
            return Judgement.HOLD
        return Judgement.SHOW

    def last_handled(self, task_id: str) -> int:
        """Sequence number of the latest update handled; 0 if there is none."""
        return self._live.get(task_id, 0) or self._ended.get(task_id, 0)

    def on_handled(self, status: TaskStatus) -> None:
        """The handler returned: the update is done with."""
        task_id = status.task_id
        last = max(status.sequence, self.last_handled(task_id))
        if last >= self._failed.get(task_id, 0) or status.state.is_terminal:
            self._failed.pop(task_id, None)
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
        if status.needs_acknowledgement:
            self._failed[status.task_id] = status.sequence

    def check(self) -> None:
        """Assert every invariant; O(tasks)."""
        assert not self._live.keys() & self._ended.keys()
        assert len(self._ended) <= self._ended_limit
        assert all(sequence > 0 for sequence in self._live.values())
        for task_id, failed in self._failed.items():
            assert failed > self.last_handled(task_id)
