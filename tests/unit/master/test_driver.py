"""The driver: decide, make durable, then tell the world; and deal at the right time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

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
from croupier.model.errors import NotFound, Unavailable
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


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
