"""A framework, as the master knows it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from croupier.master.core.effects import SessionId
from croupier.master.core.messages import Verdict
from croupier.master.core.offers import Offer
from croupier.master.core.tasks import Task
from croupier.model.errors import Conflict
from croupier.model.ids import FrameworkId, OfferId, Role, TaskId


class FrameworkState(Enum):
    """Where a framework stands. A REMOVED one only waits for its tasks to end."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    REMOVED = "removed"


TRANSITIONS: dict[FrameworkState, frozenset[FrameworkState]] = {
    FrameworkState.CONNECTED: frozenset(FrameworkState),
    FrameworkState.DISCONNECTED: frozenset({FrameworkState.CONNECTED, FrameworkState.REMOVED}),
    FrameworkState.REMOVED: frozenset(),
}


@dataclass(slots=True)
class Framework:
    """A framework that subscribed, until it is removed and its tasks have ended.

    Attributes:
        roles: those it subscribes to now; a task stays in the role that it was launched in.
        client_id: the run of its program; call numbers start again with each.
        last_seq: the number of the last call that was decided.
        verdicts: answers that may not have arrived yet, by call number.
        spent: ids of tasks that have ended, oldest first; none may be used again.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    state: FrameworkState = FrameworkState.DISCONNECTED
    session: SessionId | None = None
    client_id: str = ""
    hostname: str = ""
    webui_url: str = ""
    offer_lease_s: float = 10.0
    last_heard: float = 0.0
    last_seq: int = 0
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    spent: OrderedDict[TaskId, None] = field(default_factory=OrderedDict)

    def move(self, state: FrameworkState) -> None:
        """Go to `state`.

        Raises:
            Conflict: if a framework cannot go there from where it is.
        """
        if state not in TRANSITIONS[self.state]:
            raise Conflict(f"framework {self.framework_id} cannot go from {self.state} to {state}")
        self.state = state

    def has_used(self, task_id: TaskId) -> bool:
        """Whether a task of this id runs or has run."""
        return task_id in self.tasks or task_id in self.spent

    def spend(self, task_id: TaskId, limit: int) -> None:
        """Remember that the id was used; of more than `limit` the oldest is forgotten."""
        self.spent[task_id] = None
        if len(self.spent) > limit:
            self.spent.popitem(last=False)

    def verdicts_arrived(self, seq: int) -> None:
        """Forget the answers up to `seq`."""
        while self.verdicts and (first := next(iter(self.verdicts))) <= seq:
            del self.verdicts[first]
