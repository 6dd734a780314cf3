"""The driver: decide, make durable, then tell the world; and deal at the right time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core.effects import Close, Send, SessionId
from croupier.master.core.events import Event, Heard, Register, Subscribe
from croupier.master.core.facts import Fact
from croupier.master.core.messages import Offered, Registered, Subscribed
from croupier.master.core.records import Record, Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.driver import BATCH, Driver
from croupier.master.listening import LISTEN_S, STILL_S
from croupier.model.errors import FailedOver, NotFound, NotLeader, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.rpc.clock import SystemClock
from croupier.rpc.inbox import LIMIT, Inbox
from tests.harness.eventually import eventually


class Recorder:
    """Everything that a driver has about it, writing down what it is asked, in order."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def load(self) -> Registry:
        return Registry()

    async def commit(self, records: Sequence[Record]) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.said += records

    async def close(self) -> None:
        pass

    def send(self, effect: Send) -> None:
        self.said.append(effect.message)

    def close_session(self, effect: Close) -> None:
        self.said.append(effect)

    def stepped(self, seconds: float, events: int) -> None:
        assert seconds >= 0
        assert 0 < events <= BATCH

    def allocated(self, seconds: float, waited_s: float) -> None:
        assert seconds >= 0
        assert waited_s >= 0

    def committed(self, seconds: float) -> None:
        assert seconds >= 0

    def happened(self, fact: Fact) -> None:
        pass


class Outside:
    """The part of the recorder that messages go to."""

    def __init__(self, recorder: Recorder) -> None:
        self.send = recorder.send
        self.close = recorder.close_session


def make_driver(recorder: Recorder) -> Driver:
    state = State("m", Settings(), Allocator())
    return Driver(state, recorder, Outside(recorder), recorder, SystemClock())


def subscribe(session: int) -> Subscribe:
    return Subscribe(SessionId(session), FrameworkId(""), "f", (Role("*"),), "client")


def register(session: int) -> Register:
    total = Resources.parse("cpus:4;mem:4GB")
    return Register(SessionId(session), AgentId(""), f"h{session}", total, {})


async def test_nothing_is_told_before_it_is_durable() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    recorder.gate.clear()
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await driver.inbox.put(subscribe(2))
    await eventually(lambda: driver.state.frameworks)
    assert recorder.said == []
    recorder.gate.set()
    await eventually(lambda: any(isinstance(said, Offered) for said in recorder.said))
    names = [type(said).__name__ for said in recorder.said]
    assert names.index("AgentRecord") < names.index("Registered")
    assert names.index("FrameworkRecord") < names.index("Subscribed")
    await ended(running)


async def test_a_failed_commit_ends_the_driver_and_tells_nobody() -> None:
    recorder = Recorder()
    recorder.failure = Unavailable("the disk is full")
    driver = make_driver(recorder)
    await driver.inbox.put(register(1))
    with pytest.raises(Unavailable, match="disk is full"):
        await asyncio.wait_for(driver.run(), 5)
    assert recorder.said == []


async def test_a_lone_change_is_dealt_at_once_and_a_burst_in_one_pass() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    for session in range(1, 51):
        await driver.inbox.put(register(session))
    await driver.inbox.put(subscribe(100))
    running = asyncio.create_task(driver.run())
    await eventually(lambda: sum(isinstance(said, Offered) for said in recorder.said) == 50)
    assert driver.state.allocator.passes == 1
    assert sum(isinstance(said, Registered) for said in recorder.said) == 50
    assert sum(isinstance(said, Subscribed) for said in recorder.said) == 1
    await ended(running)


async def test_answers_come_in_order_with_events() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    assert await driver.read(lambda state: len(state.agents)) == 1

    def refuse(state: State) -> object:
        raise NotFound("no such thing")

    with pytest.raises(NotFound):
        await driver.read(refuse)
    await ended(running)


async def test_the_inbox_is_bounded_and_holds_back_who_writes() -> None:
    inbox: Inbox[Event] = Inbox()
    event = Heard(SessionId(1))
    for _ in range(LIMIT):
        await inbox.put(event)
    late = asyncio.create_task(inbox.put(event))
    await asyncio.sleep(0)
    assert not late.done()
    # The end of a session is never held back.
    inbox.put_now(event)
    assert len(inbox) == LIMIT + 1
    inbox.take(10)
    await asyncio.wait_for(late, 5)


def wake(inbox: Inbox[Event]) -> None:
    """As its alarm does when it goes off."""
    assert inbox._waiter is not None
    inbox._waiter.set_result(None)


class SteppedClock:
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 0


async def test_silence_is_not_held_against_anybody_while_the_disk_was_slow() -> None:
    """What agents said meanwhile waits in the inbox; it is taken in before time passes."""
    recorder, clock = Recorder(), SteppedClock()
    state = State("m", Settings(), Allocator())
    driver = Driver(state, recorder, Outside(recorder), recorder, clock)
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await driver.inbox.put(register(2))
    await eventually(lambda: len(recorder.said) == 4)
    recorder.gate.clear()
    await driver.inbox.put(subscribe(3))
    await eventually(lambda: state.frameworks)
    clock.time += 2 * Settings().agent_timeout_s
    # Agent 1 was heard of all the time; agent 2 and the framework were not.
    await driver.inbox.put(Heard(SessionId(1)))
    recorder.gate.set()
    await eventually(lambda: not len(driver.inbox))
    await driver.read(lambda _: None)
    assert not [said for said in recorder.said if isinstance(said, Close)]
    # It listens for a while only: then who was silent is silent.
    clock.time += LISTEN_S
    await driver.read(lambda _: None)
    await eventually(lambda: [said for said in recorder.said if isinstance(said, Close)])
    closed = {said.session for said in recorder.said if isinstance(said, Close)}
    assert closed == {SessionId(2), SessionId(3)}
    await ended(running)


async def test_silence_is_not_held_against_anybody_while_the_master_was_busy() -> None:
    recorder, clock = Recorder(), SteppedClock()
    state = State("m", Settings(), Allocator())
    driver = Driver(state, recorder, Outside(recorder), recorder, clock)
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await eventually(lambda: len(recorder.said) == 2)

    def stall(_: State) -> None:
        clock.time += 2 * Settings().agent_timeout_s

    await driver.read(stall)
    await driver.inbox.put(Heard(SessionId(1)))
    await driver.read(lambda _: None)
    assert not [said for said in recorder.said if isinstance(said, Close)]
    clock.time += LISTEN_S
    await driver.read(lambda _: None)
    assert not [said for said in recorder.said if isinstance(said, Close)], "it was heard"
    await ended(running)


@pytest.mark.parametrize("until", [2.5, 4.0])
async def test_nor_while_it_was_stopped_just_after_that(until: float) -> None:
    """As by SIGSTOP while it listens, or when it has done so and nothing has happened since."""
    recorder, clock = Recorder(), SteppedClock()
    state = State("m", Settings(), Allocator())
    driver = Driver(state, recorder, Outside(recorder), recorder, clock)
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await eventually(lambda: len(recorder.said) == 2)

    def stall(_: State) -> None:
        clock.time += 2.0

    await driver.read(stall)
    await driver.read(lambda _: None)
    clock.time = until
    wake(driver.inbox)
    await asyncio.sleep(0.01)
    clock.time += 2 * Settings().agent_timeout_s
    wake(driver.inbox)
    await asyncio.sleep(0.01)
    await driver.inbox.put(Heard(SessionId(1)))
    clock.time += LISTEN_S
    await driver.read(lambda _: None)
    assert not [said for said in recorder.said if isinstance(said, Close)]
    await ended(running)


async def test_all_that_was_said_meanwhile_is_taken_in_before_time_passes() -> None:
    """Though there is more of it than is taken in within the time of listening."""
    recorder, clock = Recorder(), SteppedClock()
    number = 3 * BATCH

    class SlowStore(Recorder):
        async def commit(self, records: Sequence[Record]) -> None:
            await recorder.commit(records)
            clock.time += 0.6 * LISTEN_S if clock.time else 0.0

    state = State("m", Settings(), Allocator())
    driver = Driver(state, SlowStore(), Outside(recorder), recorder, clock)
    running = asyncio.create_task(driver.run())
    for session in range(1, number + 1):
        await driver.inbox.put(register(session))
    await eventually(lambda: len(state.agents) == number and not len(driver.inbox))
    recorder.gate.clear()
    await driver.inbox.put(subscribe(9000))
    await eventually(lambda: state.frameworks)
    clock.time += 80.0
    for session in range(1, number + 1):
        if session % BATCH == 1:
            await driver.inbox.put(subscribe(9000 + session))
        await driver.inbox.put(Heard(SessionId(session)))
    recorder.gate.set()
    await eventually(lambda: not len(driver.inbox))
    await driver.read(lambda _: None)
    closed = {said.session for said in recorder.said if isinstance(said, Close)}
    assert not closed - {SessionId(9000)}
    await ended(running)


async def test_a_disk_that_is_always_slow_does_not_stop_time() -> None:
    recorder, clock = Recorder(), SteppedClock()
    state = State("m", Settings(), Allocator())
    driver = Driver(state, recorder, Outside(recorder), recorder, clock)
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await eventually(lambda: len(recorder.said) == 2)
    for session in range(2, 2 + int(3 * Settings().agent_timeout_s / (2 * STILL_S))):
        recorder.gate.clear()
        await driver.inbox.put(subscribe(session))
        expected = session - 1
        await eventually(lambda: len(state.frameworks) == expected)  # noqa: B023
        clock.time += 2 * STILL_S
        recorder.gate.set()
        await eventually(lambda: not len(driver.inbox))
    await eventually(lambda: [said for said in recorder.said if isinstance(said, Close)])
    await ended(running)


async def test_who_leads_no_more_tells_nobody() -> None:
    recorder = Recorder()
    leading = True
    state = State("m", Settings(), Allocator())
    driver = Driver(
        state, recorder, Outside(recorder), recorder, SystemClock(), leads=lambda: leading
    )
    await driver.inbox.put(register(1))
    running = asyncio.create_task(driver.run())
    await eventually(lambda: any(isinstance(said, Registered) for said in recorder.said))
    told = len(recorder.said)
    leading = False
    await driver.inbox.put(subscribe(2))
    with pytest.raises(FailedOver):
        await asyncio.wait_for(running, 5)
    assert [type(said).__name__ for said in recorder.said[told:]] == ["FrameworkRecord"]


async def test_a_newer_master_that_an_agent_has_heard_ends_it_before_anything_is_saved() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    await driver.inbox.put(subscribe(1))
    await driver.inbox.put(replace(register(2), master_epoch=9, cluster=driver.state.cluster))
    with pytest.raises(FailedOver, match="9"):
        await asyncio.wait_for(driver.run(), 5)
    assert recorder.said == []


async def test_questions_are_answered_when_it_is_closed() -> None:
    driver = make_driver(Recorder())
    asking = asyncio.create_task(driver.read(lambda _: 1))
    await eventually(lambda: len(driver.inbox))
    driver.close(NotLeader("not the leader"))
    for question in (asking, driver.read(lambda _: 1)):
        with pytest.raises(NotLeader):
            await question


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
