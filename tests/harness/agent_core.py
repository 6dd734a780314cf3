"""The core of one agent, driven in virtual time."""

from __future__ import annotations

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Effect
from croupier.agent.core.events import Event, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo

F = FrameworkId("F1")
T = TaskId("t1")
KEY: Key = (F, T)
TOTAL = Resources.parse("cpus:4;mem:1GB;ports:[1-10]")


def task(task_id: str = T, resources: str = "cpus:1;mem:100MB", grace_ms: int = 3000) -> TaskInfo:
    return TaskInfo(
        TaskId(task_id), Command(argv=("true",)), Resources.parse(resources), grace_ms=grace_ms
    )


class World:
    """The core of an agent, a clock that the test sets, and all effects so far."""

    def __init__(self, registered: bool = True) -> None:
        self.state = AgentState.of(TOTAL)
        self.now, self.wall_ms = 100.0, 5000
        self.effects: list[Effect] = []
        if registered:
            self.do(ev.Connected(1), ev.Registered(AgentId("A1")))
            self.effects.clear()

    def do(self, *events: Event) -> None:
        """Apply events, and check all invariants."""
        for event in events:
            self.effects += step(self.state, event, Now(self.now, self.wall_ms))
            self.state.check()

    def sleep(self, seconds: float) -> None:
        """Let time pass, and act on every deadline."""
        until = self.now + seconds
        while (at := self.state.next_deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.do(ev.DeadlinePassed())
        self.now = until

    def running(self) -> World:
        """Add a task that runs as pid 7."""
        self.do(LaunchTask(F, task(), DEFAULT_ROLE), ev.Started(KEY, 7))
        return self
