"""Silence is not held against anybody who may have spoken while the master was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core.effects import Close, SessionId
from croupier.master.core.events import Heard
from croupier.master.core.records import Record
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.driver import BATCH, Driver
from croupier.master.stall_guard import GRACE_S, MIN_STALL_S
from tests.harness.driven import RecordedPeers, Recorder, ended, register, subscribe
from tests.harness.eventually import eventually


class Stepped(Recorder):
    """A driver, and time that passes only when the test says so.

    Attributes:
        slow_s: what each commit takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.time = self.slow_s = 0.0
        self.state = State("m", Settings(), Allocator())
        self.driver = Driver(self.state, self, RecordedPeers(self), self, self)
        self.inbox = self.driver.inbox

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 0

    async def commit(self, records: Sequence[Record]) -> None:
        await super().commit(records)
        self.time += self.slow_s

    async def stall(self, seconds: float) -> None:
        """Be busy for so long."""

        def stand_still(_: State) -> None:
            self.time += seconds

        await self.driver.read(stand_still)

    async def turn(self) -> None:
        """Let the driver do what it has to."""
        await self.driver.read(lambda _: None)

    async def go_off(self) -> None:
        """As the alarm does that a deadline, or an end of a SIGSTOP, sets off."""
        assert self.inbox._waiter is not None
        self.inbox._waiter.set_result(None)
        await asyncio.sleep(0.01)

    @property
    def closed(self) -> set[SessionId]:
        return {said.session for said in self.said if isinstance(said, Close)}


@pytest.fixture
async def stepped() -> AsyncIterator[Stepped]:
    stepped = Stepped()
    running = asyncio.create_task(stepped.driver.run())
    await stepped.inbox.put(register(1))
    await eventually(lambda: len(stepped.said) == 2)
    yield stepped
    await ended(running)


AWAY_S = 2 * Settings().agent_timeout_s


async def test_not_while_the_disk_was_slow(stepped: Stepped) -> None:
    """What agents said meanwhile waits in the inbox; it is taken in before time passes."""
    await stepped.inbox.put(register(2))
    await stepped.turn()
    stepped.gate.clear()
    await stepped.inbox.put(subscribe(3))
    await eventually(lambda: stepped.state.frameworks)
    stepped.time += AWAY_S
    # Agent 1 was heard of all the time; agent 2 and the framework were not.
    await stepped.inbox.put(Heard(SessionId(1)))
    stepped.gate.set()
    await eventually(lambda: not len(stepped.inbox))
    await stepped.turn()
    assert not stepped.closed
    # It listens for a while only: then who was silent is silent.
    stepped.time += GRACE_S
    await stepped.turn()
    await eventually(lambda: stepped.closed)
    assert stepped.closed == {SessionId(2), SessionId(3)}


async def test_not_while_the_master_was_busy(stepped: Stepped) -> None:
    await stepped.stall(AWAY_S)
    await stepped.inbox.put(Heard(SessionId(1)))
    await stepped.turn()
    assert not stepped.closed
    stepped.time += GRACE_S
    await stepped.turn()
    assert not stepped.closed, "it was heard"


@pytest.mark.parametrize("until", [2.5, 4.0])
async def test_nor_while_it_was_stopped_just_after_that(stepped: Stepped, until: float) -> None:
    """As by SIGSTOP while it listens, or when it has done so and nothing has happened since."""
    await stepped.stall(2.0)
    await stepped.turn()
    stepped.time = until
    await stepped.go_off()
    stepped.time += AWAY_S
    await stepped.go_off()
    await stepped.inbox.put(Heard(SessionId(1)))
    stepped.time += GRACE_S
    await stepped.turn()
    assert not stepped.closed


async def test_all_that_was_said_meanwhile_is_taken_in_before_time_passes(
    stepped: Stepped,
) -> None:
    """Though there is more of it than is taken in within the time of listening."""
    number = 3 * BATCH
    for session in range(2, number + 1):
        await stepped.inbox.put(register(session))
    await eventually(lambda: len(stepped.state.agents) == number and not len(stepped.inbox))
    stepped.gate.clear()
    await stepped.inbox.put(subscribe(9000))
    await eventually(lambda: stepped.state.frameworks)
    stepped.time += AWAY_S
    stepped.slow_s = 0.6 * GRACE_S
    for session in range(1, number + 1):
        if session % BATCH == 1:
            await stepped.inbox.put(subscribe(9000 + session))
        await stepped.inbox.put(Heard(SessionId(session)))
    stepped.gate.set()
    await eventually(lambda: not len(stepped.inbox))
    await stepped.turn()
    assert not stepped.closed - {SessionId(9000)}


async def test_a_disk_that_is_always_slow_does_not_stop_time(stepped: Stepped) -> None:
    for session in range(2, 2 + int(3 * Settings().agent_timeout_s / (2 * MIN_STALL_S))):
        stepped.gate.clear()
        await stepped.inbox.put(subscribe(session))
        expected = session - 1
        await eventually(lambda: len(stepped.state.frameworks) == expected)  # noqa: B023
        stepped.time += 2 * MIN_STALL_S
        stepped.gate.set()
        await eventually(lambda: not len(stepped.inbox))
    await eventually(lambda: stepped.closed)
