"""What the reactor makes durable, and what it sends in one message."""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.core.records import Record
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import GroupKey, Key
from croupier.agent.reactor import HOLD_S, Reactor
from croupier.model.agent_orders import (
    ExecutorMessage,
    KillTask,
    LaunchTask,
    ResendUpdates,
    SetVolume,
)
from croupier.model.health import Problem
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskState, TaskStatus

F1 = FrameworkId("F1")
TOTAL = Resources.parse("cpus:4")


class World:
    """An agent with a session, in a time that stands still; its machine answers when told."""

    def __init__(self) -> None:
        self.at = 100.0
        self.sent: list[list[str]] = []
        self.durable: list[Record] = []
        self.deferred: list[Record] = []
        self.answers: list[Event] = []
        self.reactor = Reactor(
            AgentState.of(TOTAL, AgentId("A1")), self, self, self.answers.append, self, self
        )
        self.turn(ev.AgentStarted(), ev.Connected(1))

    def turn(self, *events: Event) -> bool:
        """Take a turn; return whether it committed."""
        for event in events:
            self.reactor.decide(event)
        batch = self.reactor.end_batch()
        self.deferred += batch.records
        if batch.is_urgent:
            self.durable += self.deferred
            self.deferred = []
        self.reactor.send(batch)
        self.reactor.perform(batch)
        return batch.is_urgent

    def order(self, name: str) -> Key:
        info = TaskInfo(TaskId(name), Command(("x",)), Resources.parse("cpus:1"))
        assert self.turn(LaunchTask(F1, info, DEFAULT_ROLE))
        return F1, info.task_id

    def wait(self, seconds: float) -> bool:
        wakes_at = self.reactor.wake_at()
        self.at += seconds
        return wakes_at is not None and wakes_at <= self.at

    # Clock.

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 0

    def forget_group(self, group: GroupKey) -> None:
        raise AssertionError

    def set_volume(self, order: SetVolume) -> None:
        raise AssertionError

    # Session.

    def send_register(self, session: int, state: AgentState) -> None:
        assert not self.deferred
        waiting = [status for task in state.tasks.values() for status in task.updates.waiting]
        self.sent.append(["REGISTER", *map(text, waiting)])

    def send_updates(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        assert session == self.reactor.state.session
        assert not self.deferred
        self.sent.append([text(status) for status in statuses])

    def send_refusals(self, session: int, refused: Sequence[tuple[Key, str]]) -> None:
        raise AssertionError

    def send_returned(self, session: int, keys: Sequence[Key]) -> None:
        raise AssertionError

    def send_health(self, session: int | None, problems: tuple[Problem, ...]) -> None:
        raise AssertionError

    def send_message(self, session: int, message: ExecutorMessage) -> None:
        raise AssertionError

    # Machine.

    def to_executor(self, effect: fx.ToExecutor | fx.CloseExecutor) -> None:
        raise AssertionError

    def has_sandbox(self, order: LaunchTask) -> bool:
        return False

    def launch(self, state: AgentState, spawn: fx.Spawn) -> None:
        """See `Machine`; the tests answer."""

    def cancel(self, key: Key) -> bool:
        return False

    def adopt(self, key: Key, run: str) -> ev.Vanished:
        raise AssertionError

    def signal(self, key: Key, number: Signals) -> None:
        """Nothing lives."""

    def forget_run(self, run: str) -> None:
        """Nothing is kept."""

    def retire(self, key: Key) -> None:
        """Nothing is kept."""

    def check_health(self, wanted: fx.CheckHealth) -> None:
        """All is well."""

    # Observer.

    def decided(self, event: Event, effects: Sequence[fx.Effect], /) -> None:
        """See `Observer`."""

    def performed(self, effect: fx.Effect) -> None:
        """See `Observer`."""


def text(status: TaskStatus) -> str:
    return f"{status.task_id} {status.state.name}"


def test_the_updates_of_a_short_task_are_one_message_after_two_commits() -> None:
    world = World()
    key = world.order("t1")
    assert not world.turn(ev.Started(key, 7)), "the start alone is not worth a commit"
    assert world.turn(ev.Exited(key, 0))
    assert world.sent == [["REGISTER"], ["t1 STARTING", "t1 RUNNING", "t1 FINISHED"]]


def test_the_updates_of_a_longer_task_wait_a_moment() -> None:
    world = World()
    key = world.order("t1")
    world.turn(ev.Started(key, 7))
    assert not world.wait(HOLD_S / 2)
    assert not world.turn()
    assert world.wait(HOLD_S / 2)
    assert world.turn(), "they are durable before they are sent"
    assert world.sent[1:] == [["t1 STARTING", "t1 RUNNING"]]
    assert world.reactor.wake_at() == world.reactor.state.next_deadline()


def test_updates_that_wait_go_with_the_next_that_does_not() -> None:
    world = World()
    first, second = world.order("t1"), world.order("t2")
    world.turn(ev.Started(first, 7))
    world.turn(ev.LaunchFailed(second, "no"))
    assert world.sent[1:] == [["t1 STARTING", "t2 STARTING", "t1 RUNNING", "t2 FAILED"]]


def test_a_kill_does_not_wait() -> None:
    world = World()
    key = world.order("t1")
    world.turn(ev.Started(key, 7))
    world.turn(KillTask(F1, key[1], None, Reason.KILLED_BY_FRAMEWORK))
    assert world.sent[1:] == [["t1 STARTING", "t1 RUNNING", "t1 KILLING"]]


def test_what_is_sent_again_is_durable() -> None:
    world = World()
    key = world.order("t1")
    world.turn(ev.Started(key, 7))
    assert world.turn(ResendUpdates(F1))
    assert world.sent[-1][-2:] == ["t1 STARTING", "t1 RUNNING"]


def test_another_session_carries_the_updates_that_wait_once() -> None:
    world = World()
    key = world.order("t1")
    world.turn(ev.Started(key, 7))
    world.turn(ev.Disconnected(1))
    assert world.turn(ev.Connected(2))
    assert world.sent == [["REGISTER"], ["REGISTER", "t1 STARTING", "t1 RUNNING"]]
    world.wait(HOLD_S)
    world.turn()
    assert len(world.sent) == 2
    world.turn(ev.Exited(key, 0))
    assert world.sent[2:] == [["t1 FINISHED"]]
    assert world.reactor.state.tasks[key].state is TaskState.FINISHED
