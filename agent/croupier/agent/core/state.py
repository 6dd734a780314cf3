"""Everything an agent knows. Only `step` changes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from croupier.agent.core.tasks import Key, Task
from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

NO_AGENT_ID = AgentId("")

Deadline = tuple[Literal["resend", "kill"], Key]


@dataclass(slots=True)
class AgentState:
    """The agent's tasks, what they leave free, and who is to be told of them.

    Attributes:
        total: what the agent has.
        free: what its live tasks leave of that.
        agent_id: empty until a master has given one.
        session: the session that has had REGISTER; updates go there. None: nobody listens.
        joining: a session that is open and waits for REGISTER.
        live: how many of `tasks` are live.
        voided: tasks that a removal made void, with the pid of each; their processes are
            being killed, and nobody is told how that went.
        stopping: whether the daemon is ending, so that nothing new is started.
    """

    total: Resources
    free: Resources
    agent_id: AgentId = NO_AGENT_ID
    session: int | None = None
    joining: int | None = None
    tasks: dict[Key, Task] = field(default_factory=dict)
    live: int = 0
    voided: dict[Key, int] = field(default_factory=dict)
    stopping: bool = False
    deadlines: Deadlines[Deadline] = field(default_factory=Deadlines)

    @classmethod
    def of(cls, total: Resources, agent_id: AgentId = NO_AGENT_ID) -> AgentState:
        """An agent without tasks."""
        return cls(total, total, agent_id)

    @property
    def is_idle(self) -> bool:
        """Whether no process runs or is about to."""
        return not self.live and not self.voided

    def is_live(self, key: Key) -> bool:
        """Whether the task has not ended; False if it is not known."""
        task = self.tasks.get(key)
        return task is not None and task.is_live

    def wants_process(self, key: Key) -> bool:
        """Whether the task is still to be started."""
        task = self.tasks.get(key)
        return task is not None and task.is_live and not task.pid

    def next_deadline(self) -> float | None:
        """When `Due` is to happen, on the agent's monotonic clock; None: not before else does."""
        return self.deadlines.next()

    def check(self) -> None:
        """Assert every invariant. O(tasks)."""
        held = self.free
        live = 0
        for key, task in self.tasks.items():
            assert key == task.key
            task.check()
            assert key not in self.voided
            if task.is_live:
                live += 1
                held = held + task.info.resources
            resends = self.session is not None and bool(task.updates.waiting)
            assert (("resend", key) in self.deadlines) == resends
            assert task.is_live or ("kill", key) not in self.deadlines
        assert held == self.total, "a unit is in two places, or in none"
        assert live == self.live
        assert self.session is None or self.joining is None
        assert self.session is None or not self.voided
        for _, key in self.deadlines:
            assert key in self.tasks
