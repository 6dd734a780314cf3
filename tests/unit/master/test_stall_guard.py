"""Deadlines do not expire before the master has read what arrived during a stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core.effects import Close, SessionId
from croupier.master.core.events import Received
from croupier.master.core.records import Record
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.driver import BATCH, GRACE_S, MIN_STALL_S, Driver
from tests.harness.driven import RecordedPeers, Recorder, ended, register, subscribe
from tests.harness.eventually import eventually


class Stepped(Recorder):
    """A driver whose time passes only when the test moves it.

    Attributes:
        slow_s: duration of each commit.
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
        """Let one step take this long."""

        def take_long(_: State) -> None:
            self.time += seconds

        await self.driver.read(take_long)

    async def turn(self) -> None:
        await self.driver.read(lambda _: None)

    async def go_off(self) -> None:
        """Wake the driver as the timer of a deadline would, also after a SIGSTOP."""
        assert self.inbox._waiter is not None
        self.inbox._waiter.set_result(None)
        await asyncio.sleep(0.01)

    @property
    def closed(self) -> set[SessionId]:
        return {each.session for each in self.performed if isinstance(each, Close)}


@pytest.fixture
async def stepped() -> AsyncIterator[Stepped]:
    stepped = Stepped()
    running = asyncio.create_task(stepped.driver.run())
    await stepped.inbox.put(register(1))
    await eventually(lambda: len(stepped.performed) == 2)
    yield stepped
    await ended(running)


AWAY_S = 2 * Settings().agent_timeout_s


async def test_no_expiry_after_a_slow_commit(stepped: Stepped) -> None:
    """Events that arrived meanwhile are decided before deadlines expire."""
    await stepped.inbox.put(register(2))
    await stepped.turn()
    stepped.gate.clear()
    await stepped.inbox.put(subscribe(3))
    await eventually(lambda: stepped.state.frameworks)
    stepped.time += AWAY_S
    # Agent 1 has sent a heartbeat; agent 2 and the framework have not.
    await stepped.inbox.put(Received(SessionId(1)))
    stepped.gate.set()
    await eventually(lambda: not len(stepped.inbox))
    await stepped.turn()
    assert not stepped.closed
    # After the grace period silent peers time out.
    stepped.time += GRACE_S
    await stepped.turn()
    await eventually(lambda: stepped.closed)
    assert stepped.closed == {SessionId(2), SessionId(3)}


async def test_no_expiry_after_a_long_step(stepped: Stepped) -> None:
    await stepped.stall(AWAY_S)
    await stepped.inbox.put(Received(SessionId(1)))
    await stepped.turn()
    assert not stepped.closed
    stepped.time += GRACE_S
    await stepped.turn()
    assert not stepped.closed, "the agent has sent a heartbeat"


@pytest.mark.parametrize("until", [2.5, 4.0])
async def test_no_expiry_after_a_sigstop_in_or_after_the_grace_period(
    stepped: Stepped, until: float
) -> None:
    """A SIGSTOP in the grace period, or after it before any event."""
    await stepped.stall(2.0)
    await stepped.turn()
    stepped.time = until
    await stepped.go_off()
    stepped.time += AWAY_S
    await stepped.go_off()
    await stepped.inbox.put(Received(SessionId(1)))
    stepped.time += GRACE_S
    await stepped.turn()
    assert not stepped.closed


async def test_whole_backlog_is_decided_before_expiry(stepped: Stepped) -> None:
    """The backlog takes longer to decide than the grace period."""
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
        await stepped.inbox.put(Received(SessionId(session)))
    stepped.gate.set()
    await eventually(lambda: not len(stepped.inbox))
    await stepped.turn()
    assert not stepped.closed - {SessionId(9000)}


async def test_expiry_happens_despite_repeated_stalls(stepped: Stepped) -> None:
    for session in range(2, 2 + int(3 * Settings().agent_timeout_s / (2 * MIN_STALL_S))):
        stepped.gate.clear()
        await stepped.inbox.put(subscribe(session))
        expected = session - 1
        await eventually(lambda: len(stepped.state.frameworks) == expected)  # noqa: B023
        stepped.time += 2 * MIN_STALL_S
        stepped.gate.set()
        await eventually(lambda: not len(stepped.inbox))
    await eventually(lambda: stepped.closed)
