"""Limits of what one principal may ask for in a time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from math import ceil

import pytest

from croupier.master.access import rate_limits
from croupier.master.access.rate_limits import (
    HELD_BYTES,
    LONGEST_PAUSE_S,
    OVERHEAD,
    RESPONSE_BYTES,
    SMALL_HELD_BYTES,
    WAITING,
    WAITING_ALONE,
    RateExceeded,
    RateLimiter,
    RateLimits,
)
from croupier.model.token_bucket import Bucket
from croupier.process.clock import SystemClock
from croupier.process.inbox import Inbox
from tests.harness.eventually import eventually


class Time:
    """A clock that advances by the waits of the limiter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0.0
        self.waits: list[float] = []
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at += seconds

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


LIMITS = RateLimits(calls_per_s=10, stream_units_per_s=100, stream_bytes_per_s=1000)


def test_a_bucket_refills_up_to_its_burst() -> None:
    bucket = Bucket(10, 5, 0.0)
    bucket.take(7, 0.0)
    assert bucket.debt_s(0.0) == pytest.approx(0.2)
    assert bucket.debt_s(0.2) == 0
    bucket.take(5, 100.0)
    assert bucket.debt_s(100.0) == 0
    bucket.take(1, 100.0)
    assert bucket.debt_s(100.0) == pytest.approx(0.1)


async def test_unary_calls_wait_for_their_turn_and_are_not_refused_one_by_one(time: Time) -> None:
    limiter = RateLimiter(LIMITS, time)
    for _ in range(60):
        await limiter.admit("client/a")
    # Twenty at once, one more on credit, the others at the rate.
    assert time.at == pytest.approx(3.9)
    assert limiter.refused == 0


async def test_a_flood_of_unary_calls_is_refused_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stopped:
        def now(self) -> float:
            return 0.0

        def wall_ms(self) -> int:
            return 0

    async def no_sleep(_: float) -> None:
        return None

    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    limiter = RateLimiter(LIMITS, Stopped())

    async def flood() -> None:
        for _ in range(100):
            await limiter.admit("client/a")

    with pytest.raises(RateExceeded, match=r"client/a makes more than 10 calls a second.*in 2 s"):
        await flood()
    assert limiter.refused == 1
    await limiter.admit("client/b")


async def test_large_answers_count_as_several_calls(time: Time) -> None:
    limiter = RateLimiter(LIMITS, time)
    usage = await limiter.admit("client/a")
    limiter.answered(usage, 30 * RESPONSE_BYTES)
    await limiter.admit("client/a")
    assert time.waits == [pytest.approx(1.1)]


def drained() -> Inbox[str]:
    """Return an inbox whose events are taken at once."""
    inbox: Inbox[str] = Inbox()
    put = inbox.put

    async def put_and_take(event: str) -> None:
        await put(event)
        inbox.take(1)

    inbox.put = put_and_take  # type: ignore[method-assign]
    return inbox


async def test_long_reads_count_as_several_calls(time: Time) -> None:
    """A list that shows its caller nothing may take as long as one that shows all."""
    limiter = RateLimiter(RateLimits(), time)
    usage = await limiter.admit("a")
    for _ in range(10):
        limiter.read(usage, 60.0)
    # 400 of the thousand ms are free at once; the others take 3 s.
    with pytest.raises(RateExceeded):
        await limiter.admit("a")
    assert time.waits == [rate_limits.PATIENCE_S]
    await limiter.admit("b")
    assert time.waits == [rate_limits.PATIENCE_S]


async def test_one_long_read_delays_the_next_call_only(time: Time) -> None:
    limiter = RateLimiter(RateLimits(calls_per_s=100), time)
    usage = await limiter.admit("a")
    for _ in range(3):
        limiter.read(usage, 60.0)
    await limiter.admit("a")
    assert time.waits == [pytest.approx(1.01)]


async def test_streams_are_read_later_and_never_refused(time: Time) -> None:
    limiter, inbox = RateLimiter(LIMITS, time), drained()
    usage = limiter.usage("client/a")
    for _ in range(15):
        await limiter.counted(usage, 1)
        await limiter.put(usage, inbox, "call", 20 - OVERHEAD)
    # The cost of the last call delays the next one.
    assert time.at == pytest.approx(2.9 - (20 - OVERHEAD) / 100)
    assert limiter.delayed == len(time.waits)
    with limiter.holding(usage, 3000):
        await limiter.counted(usage, 0)
    assert time.waits[-1] == pytest.approx(2.0)


async def test_no_pause_is_as_long_as_the_time_after_which_peers_are_silent(time: Time) -> None:
    limiter = RateLimiter(LIMITS, time)
    usage = limiter.usage("agent/a")
    await limiter.put(usage, drained(), "call", 100_000)
    await limiter.counted(usage, 1)
    assert time.waits == [LONGEST_PAUSE_S]


async def test_calls_that_put_nothing_into_the_inbox_count_as_well(time: Time) -> None:
    limiter = RateLimiter(LIMITS, time)
    for _ in range(10):
        await limiter.counted(limiter.usage("client/a"), 1)
    assert time.at == pytest.approx((10 * OVERHEAD - 10) / 100)
    await limiter.counted(None, 2**30)
    assert time.at == pytest.approx((10 * OVERHEAD - 10) / 100)


def test_messages_of_one_principal_are_held_up_to_a_bound() -> None:
    limiter = RateLimiter(RateLimits(), SystemClock())
    usage = limiter.usage("client/a")
    with limiter.holding(usage, HELD_BYTES), ExitStack() as small:
        with (
            pytest.raises(RateExceeded, match="over all your streams"),
            limiter.holding(usage, SMALL_HELD_BYTES + 1),
        ):
            pass
        assert limiter.refused == 1
        # A heartbeat of a stream of the principal waits instead.
        small.enter_context(limiter.holding(usage, SMALL_HELD_BYTES))
        with limiter.holding(limiter.usage("client/b"), HELD_BYTES):
            pass
    assert usage.held == 0


@pytest.mark.parametrize(("others", "most"), [((), WAITING_ALONE), (("client/honest",), WAITING)])
async def test_few_calls_of_one_principal_wait_in_the_inbox_beside_others(
    others: tuple[str, ...], most: int
) -> None:
    limiter, inbox = RateLimiter(RateLimits(), SystemClock()), Inbox[str]()
    for name in others:
        await limiter.admit(name)
    usage, queued = limiter.usage("client/hostile"), 0

    async def flood() -> None:
        nonlocal queued
        while True:
            await limiter.put(usage, inbox, "call", 1)
            queued += 1

    flooding = asyncio.create_task(flood())
    await eventually(lambda: len(inbox) * (1 + OVERHEAD) >= most)
    for _ in range(10):
        await asyncio.sleep(0)
    assert queued == len(inbox) == ceil(most / (1 + OVERHEAD))
    # Another's call waits behind these, and no more.
    inbox.take(1_000)
    await eventually(lambda: queued > ceil(most / (1 + OVERHEAD)))
    flooding.cancel()


async def test_calls_of_an_earlier_term_do_not_hold_up_those_of_the_next() -> None:
    limiter = RateLimiter(RateLimits(), SystemClock())
    usage = limiter.usage("client/a")
    for _ in range(WAITING_ALONE // (1 + OVERHEAD)):
        await limiter.put(usage, Inbox[str](), "call", 1)
    before = Inbox[str]()
    for _ in range(WAITING_ALONE // (1 + OVERHEAD)):
        await limiter.put(usage, before, "call", 1)
    async with asyncio.timeout(30):
        await limiter.put(usage, Inbox[str](), "call", 1)


async def test_refusals_of_calls_without_credentials_are_delayed_for_one_address(
    time: Time,
) -> None:
    limiter = RateLimiter(LIMITS, time)
    for _ in range(201):
        await limiter.failed("ipv4:1.1.1.1")
    assert time.waits == []
    await limiter.failed("ipv4:1.1.1.1")
    await limiter.failed("ipv4:2.2.2.2")
    assert time.waits == [pytest.approx(0.05)]
    assert limiter.delayed == 0, "they are counted as authentication failures"


async def test_the_number_of_principals_is_bounded(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "MOST_PRINCIPALS", 3)
    limiter = RateLimiter(LIMITS, time)
    for number in range(10):
        limiter.usage(f"client/{number}")
    assert len(limiter._usage) == 3


async def test_a_framework_may_launch_3_000_single_tasks_a_second(time: Time) -> None:
    """An ACCEPT of one task and two acknowledgements for each: what a busy framework sends."""
    limiter, inbox = RateLimiter(RateLimits(), time), Inbox[object]()
    usage = limiter.usage("client/busy")
    for _ in range(3_000):
        for cost in (6, 2, 2):
            await limiter.put(usage, inbox, object(), cost)
            inbox.take(1)
    assert time.at < 1
