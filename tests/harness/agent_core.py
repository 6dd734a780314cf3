"""The core of one agent, driven in virtual time."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    Checkpoint,
    Effect,
    ForgetRun,
    Moved,
    SendUpdates,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import KillTask, LaunchTask
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskStatus

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

    def do(self, *events: Event) -> list[Effect]:
        """Apply events; return their effects without facts and records."""
        done: list[Effect] = []
        for event in events:
            done += step(self.state, event, Now(self.now, self.wall_ms))
            self.state.check()
        self.effects += done
        return [e for e in done if not isinstance(e, Moved | Acknowledged | Checkpoint | ForgetRun)]

    def sleep(self, seconds: float) -> list[Effect]:
        """Let time pass, and act on every deadline."""
        until = self.now + seconds
        done: list[Effect] = []
        while (at := self.state.next_deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            done += self.do(ev.DeadlinePassed())
        self.now = until
        return done

    def running(self, **more: int) -> World:
        """Add a task that runs as pid 7."""
        self.do(LaunchTask(F, task(**more), DEFAULT_ROLE), ev.Started(KEY, 7))  # type: ignore[arg-type]
        return self

    def status(self) -> TaskStatus:
        """Return the latest update of the task."""
        status = self.state.tasks[KEY].status
        assert status is not None
        return status


def sent(effects: Iterable[Effect]) -> list[tuple[str, int]]:
    """Return state and number of each update in `effects`."""
    return [
        (status.state.name, status.sequence)
        for effect in effects
        if isinstance(effect, SendUpdates)
        for status in effect.statuses
    ]


def kill(grace_ms: int | None = None, reason: Reason = Reason.KILLED_BY_FRAMEWORK) -> KillTask:
    return KillTask(F, T, grace_ms, reason)
