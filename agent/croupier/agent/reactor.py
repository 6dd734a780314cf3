"""The synchronous part of the agent's driver: it steps the core and performs the effects.

A driver owns one `Reactor` and repeats, in real time (driver.py) or in virtual time:

    reactor.decide(AgentStarted())                 # once, before the first turn
    while True:
        for event in events that arrived:
            reactor.decide(event)
        batch = reactor.end_batch()
        if batch.is_urgent:
            make the deferred records and then batch.records durable
        else:
            defer batch.records
        reactor.send(batch)
        reactor.perform(batch)
        wait for an event, at most until reactor.wake_at()

`decide` may be called while the records of a batch are being written: its effects belong to the
next batch. The reactor reads the time from its clock, reaches the outside through `Session` and
`Machine` only, and never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from signal import Signals
from typing import Protocol, assert_never

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import Record
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import GroupKey, Key
from croupier.model.agent_orders import ExecutorMessage, LaunchGroup, LaunchTask, SetVolume
from croupier.model.clock import Clock
from croupier.model.health import Problem
from croupier.model.task import TaskStatus

# A launch blocks the loop for about half a millisecond. Launches and adoptions stop after this
# time and continue in the next turn.
LAUNCH_BUDGET_S = 0.005
# The longest time for which lazy records are deferred.
LAZY_S = 0.1
# The longest time for which updates that may wait are held: those of a short task leave with its
# end, in one message and after one commit.
HOLD_S = 0.02


Message = (
    fx.SendRegister
    | fx.SendUpdates
    | fx.RefuseLaunch
    | fx.ReturnTasks
    | fx.HealthChanged
    | fx.SendMessage
)


class Session(Protocol):
    """The connection to the master. Calls for a session that has ended have no effect."""

    def send_register(self, session: int, state: AgentState) -> None:
        """Send REGISTER."""

    def send_updates(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        """Send status updates."""

    def send_refusals(self, session: int, refused: Sequence[tuple[Key, str]]) -> None:
        """Report launches that the agent refused, with the reasons."""

    def send_returned(self, session: int, keys: Sequence[Key]) -> None:
        """Report lined-up tasks that will not start."""

    def send_message(self, session: int, message: ExecutorMessage) -> None:
        """Send a message of an executor to its framework, once."""

    def send_health(self, session: int | None, problems: tuple[Problem, ...]) -> None:
        """Report the problems that prevent launches."""


class Machine(Protocol):
    """The processes and sandboxes of this machine."""

    def has_sandbox(self, order: LaunchTask) -> bool:
        """Return whether the task has a sandbox already."""

    def launch(self, state: AgentState, spawn: fx.Spawn) -> ev.LaunchFailed | None:
        """Start a task's process. `Started` or `LaunchFailed` follows unless this returns one.

        If the task's image has to be fetched first, `Prepared` or `LaunchFailed` follows.
        """

    def cancel(self, key: Key) -> bool:
        """Forget a launch that waits for an image; return whether there was one."""

    def adopt(self, key: Key, run: str) -> ev.Adopted | ev.Exited | ev.LaunchFailed | ev.Vanished:
        """Determine the state of a run of an earlier agent. A live one is watched from now on.

        Raises Unavailable if that fails; the agent must end.
        """

    def signal(self, key: Key, number: Signals) -> None:
        """Signal a task's processes; no effect if they have ended."""

    def forget_run(self, run: str) -> None:
        """Remove the files of a run."""

    def retire(self, key: Key) -> None:
        """Release the sandbox of a task that the agent has forgotten."""

    def forget_group(self, group: GroupKey) -> None:
        """Remove the directory that the tasks of a group shared."""

    def set_volume(self, order: SetVolume) -> None:
        """Make the directory of a volume, if there is none, or remove it."""

    def to_executor(self, effect: fx.ToExecutor | fx.CloseExecutor) -> None:
        """Send a message on the stream of an executor, or end the stream."""

    def check_health(self, wanted: fx.CheckHealth) -> None:
        """Plan a health check; it replaces a planned one. `HealthChecked` follows."""


class Observer(Protocol):
    """Receives everything that the reactor does, for logs, metrics and tests."""

    def decided(self, event: Event, effects: Sequence[fx.Effect], /) -> None:
        """Observe a step of the core."""

    def performed(self, effect: fx.Effect) -> None:
        """Observe a performed effect; launches and adoptions are only queued by then."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The effects of some events.

    Attributes:
        records: the records that become durable with the batch, in order.
        is_urgent: whether `records`, and all that were deferred, must be durable before
            `Reactor.send`; else `records` may be deferred.
    """

    effects: list[fx.Effect]
    records: list[Record]
    is_urgent: bool


class Reactor:
    """Feeds events to the core and performs its effects; it alone changes `state`."""

    def __init__(
        self,
        state: AgentState,
        session: Session,
        machine: Machine,
        answer: Callable[[Event], None],
        observer: Observer,
        clock: Clock,
    ) -> None:
        """`answer` queues the answers to launches and adoptions for a later turn."""
        self.state = state
        self._session, self._machine, self._answer = session, machine, answer
        self._observer, self._clock = observer, clock
        self._effects: list[fx.Effect] = []
        self._spawns: deque[fx.Spawn] = deque()
        self._adoptions: deque[fx.Adopt] = deque()
        self._commit_by: float | None = None
        # Updates that may wait; their records may be deferred.
        self._held: list[fx.SendUpdates] = []
        self._send_by: float | None = None
        # Sent in one message at the end of a turn.
        self._updates: list[TaskStatus] = []
        self._refused: list[tuple[Key, str]] = []
        self._returned: list[Key] = []
        self._sending_to = 0

    @property
    def has_ended(self) -> bool:
        """Whether the agent is stopping and no task has a process."""
        return self.state.stopping and self.state.is_idle

    def decide(self, event: Event) -> None:
        """Step the core; the effects belong to the coming batch."""
        if self.state.health.is_healthy:
            # Else a launch is refused anyway: the disk, which may hang, is not asked.
            match event:
                case LaunchTask() if self._machine.has_sandbox(event):
                    event = ev.TaskLaunch(event, has_sandbox=True)
                case ev.TaskLaunch():
                    event = self._with_sandbox(event)
                case LaunchGroup(launches) | ev.GroupLaunch(launches):
                    event = ev.GroupLaunch(tuple(map(self._with_sandbox, launches)))
        self._effects += self._step(event)

    def _with_sandbox(self, launch: LaunchTask | ev.TaskLaunch) -> ev.TaskLaunch:
        launch = ev.TaskLaunch(launch) if isinstance(launch, LaunchTask) else launch
        return replace(launch, has_sandbox=self._machine.has_sandbox(launch.order))

    def decide_at_once(self, event: Event) -> None:
        """Step the core by an event whose effects have no records, and perform them."""
        for effect in self._step(event):
            self._perform(effect)
        self._flush()

    def end_batch(self, *, is_full: bool = False) -> Batch:
        """Decide deadlines that are due, and return all effects since the last batch.

        `is_full` makes the batch urgent: no more records can be deferred.
        """
        now = self._clock.now()
        deadline = self.state.next_deadline()
        if deadline is not None and deadline <= now:
            self.decide(ev.DeadlinePassed())
        effects, self._effects = self._effects, []
        checkpoints = [effect for effect in effects if isinstance(effect, fx.Checkpoint)]
        is_late = any(at is not None and now >= at for at in (self._commit_by, self._send_by))
        is_urgent = is_full or is_late or any(map(fx.is_urgent, effects))
        if is_urgent:
            self._commit_by = None
        elif checkpoints and self._commit_by is None:
            self._commit_by = now + LAZY_S
        return Batch(effects, [each.record for each in checkpoints], is_urgent)

    def send(self, batch: Batch) -> None:
        """Send the messages of a batch: its other effects may take a millisecond."""
        for effect in batch.effects:
            if isinstance(effect, Message):
                self._perform(effect)
        if batch.is_urgent and self._send_by is not None and self._clock.now() >= self._send_by:
            self._send_held()
        self._flush()

    def perform(self, batch: Batch) -> None:
        """Perform the rest of a batch, and some of the launches and adoptions that wait.

        Raises Unavailable as `Machine.adopt` does.
        """
        for effect in batch.effects:
            if not isinstance(effect, Message):
                self._perform(effect)
        until = self._clock.now() + LAUNCH_BUDGET_S
        while self._adoptions and self._clock.now() < until:
            adopt = self._adoptions.popleft()
            self._answer(self._machine.adopt(adopt.key, adopt.run))
        until = self._clock.now() + LAUNCH_BUDGET_S
        while self._spawns and self._clock.now() < until:
            spawn = self._spawns.popleft()
            if not self.state.wants_process(spawn.key):
                self._answer(ev.NotStarted(spawn.key))
            elif (failure := self._machine.launch(self.state, spawn)) is not None:
                self._answer(failure)

    def wake_at(self) -> float | None:
        """Return when the next turn is due if no event arrives before; None: never."""
        if self._spawns or self._adoptions or self._effects:
            return self._clock.now()
        wakes = (self.state.next_deadline(), self._commit_by, self._send_by)
        return min((at for at in wakes if at is not None), default=None)

    def _step(self, event: Event) -> list[fx.Effect]:
        effects = step(self.state, event, Now(self._clock.now(), self._clock.wall_ms()))
        self._observer.decided(event, effects)
        return effects

    def _perform(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.HealthChanged):
            # `decide_at_once` may have found a problem since this effect was decided.
            effect = replace(effect, problems=self.state.health.problems)
        if isinstance(effect, Message):
            self._send_message(effect)
        else:
            match effect:
                case (
                    fx.Checkpoint() | fx.Moved() | fx.Acknowledged() | fx.Outdated() | fx.Dropped()
                ):
                    pass
                case fx.Spawn():
                    self._spawns.append(effect)
                case fx.Adopt():
                    self._adoptions.append(effect)
                case fx.CancelLaunch(key):
                    self._cancel(key)
                case fx.Signal(key, _, number):
                    self._machine.signal(key, number)
                case fx.ToExecutor() | fx.CloseExecutor():
                    self._machine.to_executor(effect)
                case fx.ForgetRun() | fx.Forget() | fx.ForgetGroup() | SetVolume():
                    self._forget(effect)
                case fx.CheckHealth():
                    self._machine.check_health(effect)
                case _:
                    assert_never(effect)
        self._observer.performed(effect)

    def _forget(self, effect: fx.ForgetRun | fx.Forget | fx.ForgetGroup | SetVolume) -> None:
        match effect:
            case fx.ForgetRun(_, run):
                self._machine.forget_run(run)
            case fx.Forget(key):
                self._machine.retire(key)
            case fx.ForgetGroup(group):
                self._machine.forget_group(group)
            case SetVolume():
                self._machine.set_volume(effect)

    def _send_message(self, message: Message) -> None:
        match message:
            case fx.SendRegister(session):
                self._flush()
                # It carries all updates.
                self._held, self._send_by = [], None
                self._session.send_register(session, self.state)
            case fx.SendUpdates():
                self._send_or_hold(message)
            case fx.RefuseLaunch() | fx.ReturnTasks():
                self._refuse(message)
            case fx.HealthChanged(session, problems):
                self._flush()
                self._session.send_health(session, problems)
            case fx.SendMessage(session, said):
                self._flush()
                self._session.send_message(session, said)
            case _:
                assert_never(message)

    def _cancel(self, key: Key) -> None:
        if self._machine.cancel(key):
            self._answer(ev.NotStarted(key))

    def _refuse(self, effect: fx.RefuseLaunch | fx.ReturnTasks) -> None:
        self._send_to(effect.session)
        if isinstance(effect, fx.RefuseLaunch):
            self._refused.append((effect.key, effect.message))
        else:
            self._returned.extend(effect.keys)

    def _send_or_hold(self, effect: fx.SendUpdates) -> None:
        if not effect.may_wait:
            self._send_held()
            self._send(effect)
            return
        self._held.append(effect)
        if self._send_by is None:
            self._send_by = self._clock.now() + HOLD_S

    def _send_held(self) -> None:
        """Send the updates that wait; their records are durable once an urgent batch is."""
        held, self._held, self._send_by = self._held, [], None
        for effect in held:
            self._send(effect)

    def _send(self, effect: fx.SendUpdates) -> None:
        self._send_to(effect.session)
        self._updates.extend(effect.statuses)

    def _send_to(self, session: int) -> None:
        if session != self._sending_to:
            self._flush()
            self._sending_to = session

    def _flush(self) -> None:
        if self._updates:
            self._session.send_updates(self._sending_to, self._updates)
            self._updates = []
        if self._refused:
            self._session.send_refusals(self._sending_to, self._refused)
            self._refused = []
        if self._returned:
            self._session.send_returned(self._sending_to, self._returned)
            self._returned = []
