"""The driver: decide, commit, then perform; allocate at once or in bursts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from croupier.master.allocator import Allocator
from croupier.master.batch import Batch
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Claim, Received, Register, TimePassed
from croupier.master.core.messages import Offered, Registered, Subscribed
from croupier.master.core.records import AgentRecord
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.driver import REGISTER_S, Driver
from croupier.model.errors import FailedOver, NotFound, NotLeader, Unavailable
from croupier.process.clock import SystemClock
from croupier.process.inbox import LIMIT, Inbox
from tests.harness.driven import RecordedPeers, Recorder, ended, make_driver, register, subscribe
from tests.harness.eventually import eventually
from tests.harness.still_clock import StillClock


async def test_no_effect_is_performed_before_the_commit() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    recorder.gate.clear()
    running = asyncio.create_task(driver.run())
    await driver.inbox.put(register(1))
    await driver.inbox.put(subscribe(2))
    await eventually(lambda: driver.state.frameworks)
    assert recorder.performed == []
    recorder.gate.set()
    await eventually(lambda: any(isinstance(each, Offered) for each in recorder.performed))
    names = [type(each).__name__ for each in recorder.performed]
    assert names.index("AgentRecord") < names.index("Registered")
    assert names.index("FrameworkRecord") < names.index("Subscribed")
    await ended(running)


async def test_failed_commit_ends_the_driver_without_effects() -> None:
    recorder = Recorder()
    recorder.failure = Unavailable("the disk is full")
    driver = make_driver(recorder)
    await driver.inbox.put(register(1))
    with pytest.raises(Unavailable, match="disk is full"):
        await asyncio.wait_for(driver.run(), 30)
    assert recorder.performed == []


async def test_single_change_is_allocated_at_once_and_a_burst_in_one_pass() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    for session in range(1, 51):
        await driver.inbox.put(register(session))
    await driver.inbox.put(subscribe(100))
    running = asyncio.create_task(driver.run())
    await eventually(lambda: sum(isinstance(each, Offered) for each in recorder.performed) == 50)
    assert driver.state.allocator.passes == 1
    assert sum(isinstance(each, Registered) for each in recorder.performed) == 50
    assert sum(isinstance(each, Subscribed) for each in recorder.performed) == 1
    await ended(running)


async def test_passes_are_apart_while_agents_register_one_after_the_other() -> None:
    recorder, clock = Recorder(), StillClock()
    state = State("m", Settings(), Allocator())
    driver = Driver(state, recorder, RecordedPeers(recorder), recorder, clock)

    def offers() -> int:
        return sum(isinstance(each, Offered) for each in recorder.performed)

    running = asyncio.create_task(driver.run())
    await driver.inbox.put(subscribe(100))
    await driver.inbox.put(register(1))
    await eventually(lambda: offers() == 1, what="the first is offered at once")
    for session in range(2, 6):
        await driver.inbox.put(register(session))
        await eventually(lambda: len(driver.inbox) == 0)
    await driver.read(lambda _: None)
    assert offers() == 1
    clock.at += REGISTER_S
    await eventually(lambda: offers() == 5)
    assert state.allocator.passes == 2
    await ended(running)


async def test_questions_are_answered_in_order_with_events() -> None:
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


async def test_full_inbox_blocks_writers() -> None:
    inbox: Inbox[Event] = Inbox()
    event = Received(SessionId(1))
    for _ in range(LIMIT):
        await inbox.put(event)
    late = asyncio.create_task(inbox.put(event))
    await asyncio.sleep(0)
    assert not late.done()
    # The end of a session never waits.
    inbox.put_now(event)
    assert len(inbox) == LIMIT + 1
    inbox.take(10)
    await asyncio.wait_for(late, 30)


async def test_event_that_can_wait_does_not_wake_the_reader_at_once() -> None:
    heartbeat = Received(SessionId(1))
    inbox: Inbox[Event] = Inbox(can_wait=lambda event: isinstance(event, Received))
    reading = asyncio.create_task(inbox.wait(None))
    await asyncio.sleep(0)
    await inbox.put(heartbeat)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    await inbox.put(register(2))
    await asyncio.wait_for(reading, 30)
    assert inbox.take(10) == [heartbeat, register(2)]
    # Nothing else wakes the reader for the next one.
    reading = asyncio.create_task(inbox.wait(None))
    await asyncio.sleep(0)
    await inbox.put(heartbeat)
    await asyncio.wait_for(reading, 30)
    assert inbox.take(10) == [heartbeat]


async def test_deposed_master_performs_no_effects() -> None:
    recorder = Recorder()
    leading = True
    state = State("m", Settings(), Allocator())
    driver = Driver(
        state, recorder, RecordedPeers(recorder), recorder, SystemClock(), leads=lambda: leading
    )
    await driver.inbox.put(register(1))
    running = asyncio.create_task(driver.run())
    await eventually(lambda: any(isinstance(each, Registered) for each in recorder.performed))
    await eventually(lambda: not state.allocator.has_dirty_agents)
    before = len(recorder.performed)
    leading = False
    await driver.inbox.put(subscribe(2))
    with pytest.raises(FailedOver):
        await asyncio.wait_for(running, 30)
    assert [type(each).__name__ for each in recorder.performed[before:]] == ["FrameworkRecord"]


async def test_newer_master_ends_the_driver_before_anything_is_saved() -> None:
    recorder = Recorder()
    driver = make_driver(recorder)
    await driver.inbox.put(subscribe(1))
    newer = replace(register(2), claim=Claim.NEWER, objection="commit 9 is not known")
    await driver.inbox.put(newer)
    with pytest.raises(FailedOver, match="commit 9"):
        await asyncio.wait_for(driver.run(), 30)
    assert recorder.performed == []


async def test_questions_fail_when_the_driver_is_closed() -> None:
    driver = make_driver(Recorder())
    asking = asyncio.create_task(driver.read(lambda _: 1))
    await eventually(lambda: len(driver.inbox))
    driver.close(NotLeader("not the leader"))
    for question in (asking, driver.read(lambda _: 1)):
        with pytest.raises(NotLeader):
            await question


def test_batch_expires_deadlines_first_and_names_its_records() -> None:
    """The I/O-free part of the driver, as virtual time drives it."""
    state = State("m", Settings(), Allocator())
    decided: list[Event] = []

    def run(events: list[Event], now: float, *, may_expire: bool = True) -> Batch:
        batch = Batch(state, lambda event, at, effects: decided.append(event))
        for _ in batch.decide(events, now, may_expire=may_expire):
            pass
        return batch

    assert [type(each) for each in run([register(1)], 0.0).records()] == [AgentRecord]
    late = state.next_deadline()
    assert late is not None
    run([], late, may_expire=False)
    run([Received(SessionId(1))], late)
    assert [type(event) for event in decided] == [Register, TimePassed, Received]
    newer = replace(register(2), claim=Claim.NEWER, objection="commit 9 is not known")
    with pytest.raises(FailedOver, match="commit 9"):
        run([newer], late).records()
