"""The event loop: turns for other tasks, its lag, its errors, and short collections of garbage."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from itertools import count

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from croupier.master.core.effects import SessionId
from croupier.master.session import AgentSession, FrameworkSession
from croupier.process.daemon import LoopErrors
from croupier.process.garbage import LONG_S, LongCollections
from croupier.process.inbox import CALM, HEAVY, LIMIT, PATIENCE, Inbox
from croupier.process.process_metrics import LoopWatch
from croupier.process.time_slice import TimeSlice, sliced
from tests.harness.eventually import eventually


async def test_a_slice_ends_by_the_clock_and_restarts_after_a_turn() -> None:
    clock = count()
    held = TimeSlice(3, lambda: next(clock))
    assert [held.is_over for _ in range(4)] == [False, False, True, True]
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another")
    await held.give_way()
    assert turns == ["another"]
    assert not held.is_over


async def test_other_tasks_run_while_a_long_list_is_made() -> None:
    turns = 0
    done = False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())

    def slow(number: int) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.002
        while loop.time() < until:
            pass
        return number

    made = await sliced(map(slow, range(20)))
    done = True
    await running
    assert made == list(range(20))
    # 40 ms of work in slices of 5 ms.
    assert turns >= 4


async def test_a_batch_is_bounded_by_cost_and_a_heavy_event_is_its_own_batch() -> None:
    inbox: Inbox[int] = Inbox(lambda cost: cost)
    for cost in (100, 400, 1, 700, 300, 200):
        inbox.put_now(cost)
    assert [inbox.take(500) for _ in range(4)] == [[100, 400], [1], [700], [300, 200]]
    assert inbox.take(500) == []


async def test_a_heavy_event_waits_for_a_short_queue_and_light_ones_do_not() -> None:
    inbox: Inbox[int] = Inbox(lambda cost: cost)
    for _ in range(CALM // HEAVY):
        await inbox.put(HEAVY)
    heavy = asyncio.create_task(inbox.put(HEAVY + 1))
    await asyncio.sleep(0)
    assert not heavy.done()
    for _ in range(3):
        await asyncio.wait_for(inbox.put(1), 30)
    # Events that must not be delayed are queued at once.
    inbox.put_now(HEAVY + 2)
    inbox.take(HEAVY)
    inbox.take(HEAVY)
    inbox.take(HEAVY)
    await asyncio.wait_for(heavy, 30)
    assert inbox.take(10_000) == [HEAVY] * 2 + [1, 1, 1, HEAVY + 2, HEAVY + 1]


async def test_a_few_heavy_events_make_writers_wait() -> None:
    inbox: Inbox[int] = Inbox(lambda cost: cost)
    await inbox.put(LIMIT - 1)
    inbox.put_now(5)
    late = asyncio.create_task(inbox.put(1))
    await asyncio.sleep(0)
    assert not late.done()
    inbox.take(1)
    await asyncio.wait_for(late, 30)
    assert len(inbox) == 2


async def test_a_heavy_event_is_admitted_although_light_ones_never_end() -> None:
    inbox: Inbox[int] = Inbox(lambda cost: cost)

    async def light() -> None:
        while True:
            await inbox.put(HEAVY)

    async with asyncio.timeout(30):
        writers = [asyncio.create_task(light()) for _ in range(LIMIT // HEAVY)]
        await asyncio.sleep(0)
        heavy = asyncio.create_task(inbox.put(HEAVY + 1))
        batches = 0
        while not heavy.done() and batches < 2 * PATIENCE:
            inbox.take(500)
            batches += 1
            await asyncio.sleep(0)
        assert heavy.done()
        assert batches >= PATIENCE
        # Light events still arrive.
        for _ in range(10):
            inbox.take(500)
            await asyncio.sleep(0)
        assert inbox.take(500)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


# Errors that no task handles are logged once, not each time.


async def test_a_repeated_error_is_logged_once() -> None:
    loop = asyncio.get_running_loop()
    handler = LoopErrors()
    with capture_logs() as said:
        for _ in range(50):
            handler(loop, {"message": "boom", "exception": OSError(24, "short")})
        handler(loop, {"message": "other"})
    assert [(line["message"], line["not_logged"]) for line in said] == [("boom", 0), ("other", 49)]
    assert isinstance(said[0]["exc_info"], OSError)


# The lag of the loop is measured, not that of its tasks.


def seen(registry: CollectorRegistry, above: float) -> float:
    """Return how many times the loop was later than `above` seconds."""
    name = "croupier_loop_lag_seconds"
    total = registry.get_sample_value(f"{name}_count") or 0.0
    return total - (registry.get_sample_value(f"{name}_bucket", {"le": str(above)}) or 0.0)


async def test_a_blocked_loop_is_measured() -> None:
    registry = CollectorRegistry()
    watch = LoopWatch(registry)
    watch.start()
    loop = asyncio.get_running_loop()
    loop.call_soon(time.sleep, 0.4)
    await eventually(lambda: seen(registry, 0.25) >= 1)
    watch.stop()
    count = registry.get_sample_value("croupier_loop_lag_seconds_count")
    await asyncio.sleep(0.12)
    assert registry.get_sample_value("croupier_loop_lag_seconds_count") == count


# Full collections stay short: what survives a long one is not looked at again.


@pytest.mark.parametrize(
    ("generation", "seconds", "is_frozen"),
    [(2, 2 * LONG_S, True), (2, LONG_S / 2, False), (1, 9, False)],
)
def test_survivors_of_a_long_full_collection_are_frozen(
    generation: int, seconds: float, is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = []
    times = iter((5.0, 5.0 + seconds))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    note = LongCollections(lambda: next(times))
    note("start", {"generation": generation})
    note("stop", {"generation": generation, "collected": 0, "uncollectable": 0})
    assert bool(frozen) is is_frozen


def test_full_collections_examine_nothing_while_objects_are_expected_to_live_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = []
    times = iter((5.0, 64.0, 66.0))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    note = LongCollections(lambda: next(times))
    note.expect_growth(60.0)
    note("start", {"generation": 1})
    assert not frozen
    note("start", {"generation": 2})
    assert frozen == [True]
    note("start", {"generation": 2})
    assert frozen == [True]


@pytest.mark.parametrize("kind", [AgentSession, FrameworkSession])
def test_a_session_is_freed_without_a_collection(
    kind: type[AgentSession | FrameworkSession],
) -> None:
    """A frozen cycle would stay until the end of the term."""
    gc.disable()
    try:
        session = kind(SessionId(1))
        session.beat()
        freed = weakref.ref(session)
        del session
        assert freed() is None
    finally:
        gc.enable()
