"""The one task that owns the state: decide, make durable, then do.

Whatever comes in while it works is decided in the next turn: its records are committed
together, off the loop, and all updates of a turn leave in one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from signal import SIGKILL, SIGTERM
from typing import Protocol, assert_never

from croupier.agent import health_check
from croupier.agent.checkpoint import Checkpoint as Log
from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    Adopt,
    CheckHealth,
    Checkpoint,
    Dismiss,
    Effect,
    Force,
    Forget,
    HealthChanged,
    Introduce,
    Moved,
    Outdated,
    RefuseLaunch,
    SendUpdates,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.agent.launcher import CannotLaunch, Launcher
from croupier.agent.link import Link
from croupier.agent.supervisor import Supervisor
from croupier.agent.wire import Refused
from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.model.health import Problem
from croupier.model.task import TaskStatus
from croupier.process.inbox import Inbox

# To start a process stops the loop for about half a millisecond. After so many seconds of
# it everybody else has a turn.
SPAWN_BUDGET_S = 0.005
BATCH = 1000
# What need not be durable at once is by then.
LAZY_S = 0.1

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

    def outdated(self, order: Outdated) -> None:
        """An order of an older run of its framework was refused."""

    def refused(self) -> None:
        """A launch was refused since the agent is unhealthy."""

    def health_changed(self, problems: tuple[Problem, ...]) -> None:
        """The agent cannot launch tasks for these reasons; empty: it can again."""

    def adopted(self, key: Key, run: str, answer: Event) -> None:
        """It is known what became of a task of an earlier life."""

    def committed(self, seconds: float, size: int) -> None:
        """So many bytes of records are durable, after so long."""

    def stepped(self, seconds: float) -> None:
        """A turn was made, in so many seconds."""


class Driver:
    """Feeds events to the core for ever."""

    def __init__(
        self,
        state: AgentState,
        inbox: Inbox[Event],
        log: Log,
        link: Link,
        launcher: Launcher,
        supervisor: Supervisor,
        retire: Callable[[Key], None],
        check_health: Callable[[CheckHealth], None],
        watcher: Watcher,
        clock: Clock,
    ) -> None:
        """Own `state` from now on.

        `retire` is told of tasks that are no more, `check_health` to have the agent checked.
        """
        self.state = state
        self._inbox, self._log, self._link, self._launcher = inbox, log, link, launcher
        self._supervisor, self._retire = supervisor, retire
        self._check_health = check_health
        self._watcher, self._clock = watcher, clock
        self._effects: list[Effect] = []
        self._spawns: deque[Spawn] = deque()
        self._adoptions: deque[Adopt] = deque()
        self._ordered_at: dict[Key, float] = {}
        self._lazy_since: float | None = None
        self._updates: list[TaskStatus] = []
        self._updates_session = 0
        self._refused: list[Refused] = []
        self._refused_session = 0
        self.all_ended = asyncio.Event()
        """Set once the agent was asked to stop and no task has a process any more."""

    async def run(self) -> None:
        """Drive until cancelled.

        Raises:
            Unavailable: if what was decided cannot be made durable.
        """
        self._step(ev.Begun())
        while True:
            began = self._clock.now()
            self._decide()
            effects, self._effects = self._effects, []
            decided = self._clock.now()
            await self._commit(effects)
            committed = self._clock.now()
            for effect in effects:
                self._perform(effect)
            self._adopt()
            self._spawn()
            self._flush()
            if self.state.stopping and self.state.is_idle:
                self.all_ended.set()
            self._watcher.stepped(decided - began + self._clock.now() - committed)
            await self._inbox.wait(self._patience())

    def _patience(self) -> float | None:
        """How long to wait for an event: not at all while there is something to be done."""
        if self._spawns or self._adoptions or self._effects:
            return 0.0
        deadline = self.state.next_deadline()
        if self._lazy_since is not None:
            lazy = self._lazy_since + LAZY_S
            deadline = lazy if deadline is None else min(deadline, lazy)
        return None if deadline is None else deadline - self._clock.now()

    def _decide(self) -> None:
        for event in self._inbox.take(BATCH):
            if isinstance(event, ev.Started | ev.LaunchFailed | ev.NotStarted):
                ordered_at = self._ordered_at.pop(event.key, None)
                if ordered_at is not None and isinstance(event, ev.Started):
                    self._watcher.launched(self._clock.now() - ordered_at)
            if isinstance(event, ev.Launch) and self._has_sandbox(event):
                event = replace(event, has_sandbox=True)
            self._step(event)
        deadline = self.state.next_deadline()
        if deadline is not None and deadline <= self._clock.now():
            self._step(ev.Due())

    def _has_sandbox(self, order: ev.Launch) -> bool:
        """Look for the task's sandbox, unless the launch is refused anyway: the disk may hang."""
        is_refused = not self.state.health.is_healthy and self.state.takes_refusals
        return not is_refused and self._launcher.has_sandbox(order)

    def _step(self, event: Event) -> None:
        now = Now(self._clock.now(), self._clock.wall_ms())
        self._effects += step(self.state, event, now)

    async def _commit(self, effects: list[Effect]) -> None:
        """Make durable what has to be before anything else is done."""
        checkpoints = [effect for effect in effects if isinstance(effect, Checkpoint)]
        records = [each.record for each in checkpoints]
        now = self._clock.now()
        is_due = self._lazy_since is not None and now >= self._lazy_since + LAZY_S
        if all(each.lazy for each in checkpoints) and not is_due and not self._log.is_urgent:
            self._log.put_off(records)
            if records and self._lazy_since is None:
                self._lazy_since = now
            return
        self._lazy_since = None
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(health_check.ANSWER_S, self._tell_of_stall)
        try:
            size = await self._log.commit(records)
        finally:
            alarm.cancel()
        self._watcher.committed(self._clock.now() - now, size)
        if not self._log.has_room:
            # Before any launch that waits in the inbox.
            self._step(ev.OutOfRoom())

    def _tell_of_stall(self) -> None:
        """Become unhealthy while a commit waits for the disk; the health check cannot get in.

        What follows from this has no records, so it does not have to wait for them.
        """
        problem = health_check.does_not_answer(self._log.path.parent)
        now = Now(self._clock.now(), self._clock.wall_ms())
        for effect in step(self.state, ev.HealthChecked((problem,)), now):
            self._perform(effect)

    def _adopt(self) -> None:
        """Look for some of what an earlier life has left."""
        until = self._clock.now() + SPAWN_BUDGET_S
        while self._adoptions and self._clock.now() < until:
            wanted = self._adoptions.popleft()
            key, run = wanted.key, wanted.run
            try:
                answer = self._supervisor.adopt(key, run)
                if isinstance(answer, ev.Vanished) and answer.never_started:
                    # It may be started now, as the same run.
                    self._supervisor.forget(run)
            except OSError as error:
                raise Unavailable(f"cannot look at run {run} of task {key[1]}: {error}") from error
            self._watcher.adopted(key, run, answer)
            self._inbox.put_now(answer)

    def _spawn(self) -> None:
        """Start some of the processes that are wanted."""
        until = self._clock.now() + SPAWN_BUDGET_S
        while self._spawns and self._clock.now() < until:
            wanted = self._spawns.popleft()
            key = wanted.key
            if not self.state.wants_process(key):
                self._inbox.put_now(ev.NotStarted(key))
                continue
            info = self.state.tasks[key].info
            try:
                self._launcher.launch(
                    self.state.agent_id, key[0], info, wanted.run, again=wanted.again
                )
            except CannotLaunch as error:
                self._watcher.launch_failed(error.step)
                self._inbox.put_now(ev.LaunchFailed(key, error.message, cause=error.cause))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Checkpoint():
                pass
            case SendUpdates(session, statuses, again):
                if session != self._updates_session:
                    self._flush()
                    self._updates_session = session
                self._updates.extend(statuses)
                self._watcher.sent(len(statuses), again)
            case RefuseLaunch(session, key, message):
                if session != self._refused_session:
                    self._flush()
                    self._refused_session = session
                self._refused.append((key, message))
                self._watcher.refused()
            case Moved(status):
                self._watcher.moved(status)
            case Spawn(key):
                self._ordered_at[key] = self._clock.now()
                self._spawns.append(effect)
            case Acknowledged(number):
                self._watcher.acknowledged(number)
            case Signal(key, _, force):
                self._supervisor.signal(key, _SIGNALS[force])
            case Introduce(session):
                self._flush()
                self._link.introduce(session, self.state)
            case _:
                self._perform_rare(effect)

    def _perform_rare(
        self, effect: Adopt | Dismiss | Forget | Outdated | HealthChanged | CheckHealth
    ) -> None:
        match effect:
            case HealthChanged(session):
                # A stall of the commit that this effect waited for was told before it.
                problems = self.state.health.problems
                self._flush()
                self._link.tell_health(session, problems)
                self._watcher.health_changed(problems)
            case CheckHealth():
                self._check_health(effect)
            case Dismiss(_, run):
                # What is left of it now is removed when the agent starts again.
                with suppress(OSError):
                    self._supervisor.forget(run)
            case Forget(key):
                self._retire(key)
            case Adopt():
                self._adoptions.append(effect)
            case Outdated():
                self._watcher.outdated(effect)
            case _:
                assert_never(effect)

    def _flush(self) -> None:
        if self._updates:
            self._link.send(self._updates_session, self._updates)
            self._updates = []
        if self._refused:
            self._link.refuse(self._refused_session, self._refused)
            self._refused = []
