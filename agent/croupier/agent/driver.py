"""The one task that owns the state: decide, then do.

Whatever comes in while it works is decided in the next turn, and all updates of a turn
leave in one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from signal import SIGKILL, SIGTERM
from typing import Protocol, assert_never

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    Adopt,
    Checkpoint,
    Dismiss,
    Effect,
    Force,
    Forget,
    Introduce,
    Moved,
    Outdated,
    SendUpdates,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import AgentRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.agent.launcher import CannotLaunch, Launcher
from croupier.agent.link import Link
from croupier.agent.supervisor import Supervisor
from croupier.model.clock import Clock
from croupier.model.ids import AgentId
from croupier.model.task import TaskStatus
from croupier.rpc.inbox import Inbox

# To start a process stops the loop for about half a millisecond. After so many seconds of
# it everybody else has a turn.
SPAWN_BUDGET_S = 0.005
BATCH = 1000

_SIGNALS = {Force.ASK: SIGTERM, Force.MAKE: SIGKILL}


class Watcher(Protocol):
    """Who measures the driver at work; times are in seconds."""

    def moved(self, status: TaskStatus) -> None:
        """A task is in a new state."""

    def sent(self, count: int, again: bool) -> None:
        """Updates were sent, for the first time or again."""

    def acknowledged(self, count: int) -> None:
        """Updates need not be kept any longer."""

    def launched(self, seconds: float) -> None:
        """A process runs, so long after its task was ordered."""

    def launch_failed(self, step: str) -> None:
        """There is no process: for lack of what."""

    def stepped(self, seconds: float) -> None:
        """A turn was made; the loop stood still for it."""


class Keeper(Protocol):
    """What outlives a task or the agent."""

    def keep_agent_id(self, agent_id: AgentId) -> None:
        """Remember the agent's id."""


class Driver:
    """Feeds events to the core for ever."""

    def __init__(
        self,
        state: AgentState,
        inbox: Inbox[Event],
        link: Link,
        launcher: Launcher,
        supervisor: Supervisor,
        keeper: Keeper,
        retire: Callable[[Key], None],
        watcher: Watcher,
        clock: Clock,
    ) -> None:
        """Own `state` from now on; `retire` is told of tasks that are no more."""
        self.state = state
        self._inbox, self._link, self._launcher = inbox, link, launcher
        self._supervisor, self._keeper, self._retire = supervisor, keeper, retire
        self._watcher, self._clock = watcher, clock
        self._spawns: deque[tuple[Key, float]] = deque()
        self._updates: list[TaskStatus] = []
        self._updates_session = 0
        self.all_ended = asyncio.Event()
        """Set once the agent was asked to stop and no task has a process any more."""

    async def run(self) -> None:
        """Drive until cancelled. An error of the core's ends it."""
        while True:
            await self._inbox.wait(self._patience())
            started = self._clock.now()
            self._decide()
            self._spawn()
            self._flush()
            if self.state.stopping and self.state.is_idle:
                self.all_ended.set()
            self._watcher.stepped(self._clock.now() - started)

    def _patience(self) -> float | None:
        """How long to wait for an event: not at all while processes are to be started."""
        if self._spawns:
            return 0.0
        deadline = self.state.next_deadline()
        return None if deadline is None else deadline - self._clock.now()

    def _decide(self) -> None:
        for event in self._inbox.take(BATCH):
            self._step(event)
        deadline = self.state.next_deadline()
        if deadline is not None and deadline <= self._clock.now():
            self._step(ev.Due())

    def _step(self, event: Event) -> None:
        now = Now(self._clock.now(), self._clock.wall_ms())
        for effect in step(self.state, event, now):
            self._perform(effect)

    def _spawn(self) -> None:
        """Start some of the processes that are wanted."""
        until = self._clock.now() + SPAWN_BUDGET_S
        while self._spawns and self._clock.now() < until:
            key, asked_at = self._spawns.popleft()
            if not self.state.wants_process(key):
                self._step(ev.NotStarted(key))
                continue
            framework_id, _ = key
            try:
                info = self.state.tasks[key].info
                pid = self._launcher.launch(self.state.agent_id, framework_id, info)
            except CannotLaunch as error:
                self._watcher.launch_failed(error.step)
                self._step(ev.LaunchFailed(key, error.message))
            else:
                self._step(ev.Started(key, pid))
                self._watcher.launched(self._clock.now() - asked_at)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendUpdates(session, statuses, again):
                if session != self._updates_session:
                    self._flush()
                    self._updates_session = session
                self._updates.extend(statuses)
                self._watcher.sent(len(statuses), again)
            case Moved(status):
                self._watcher.moved(status)
            case Spawn(key, _):
                self._spawns.append((key, self._clock.now()))
            case Acknowledged(number):
                self._watcher.acknowledged(number)
            case Forget(key):
                self._retire(key)
            case Signal(key, _, force):
                self._supervisor.signal(key, _SIGNALS[force])
            case Introduce(session):
                self._flush()
                self._link.introduce(session, self.state)
            case Checkpoint(AgentRecord(agent_id)):
                self._keeper.keep_agent_id(agent_id)
            case Checkpoint() | Dismiss() | Outdated() | Adopt():
                pass
            case _:
                assert_never(effect)

    def _flush(self) -> None:
        if self._updates:
            self._link.send(self._updates_session, self._updates)
            self._updates = []
