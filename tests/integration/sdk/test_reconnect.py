"""The SDK reconnects by itself, and no call is done twice."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from functools import partial

import pytest

from croupier.sdk import Conflict, Offer, TaskState, TooSlow, Unavailable
from croupier.sdk.dispatch import Inbox
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import HASTY, HASTY_TIMES, UNIT, Recorder, running, task


async def test_a_reconnection_keeps_framework_and_client_ids(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    run = asyncio.create_task(framework.run())
    first = await master.subscribed()

    def has_told(count: int) -> bool:
        return len(framework.subscriptions) == count

    for count, error in enumerate((None, Unavailable("not the leader"), TooSlow("wake up")), 1):
        # A client that is cut off before it has its id gets another one.
        await eventually(partial(has_told, count))
        master.disconnect(error)
        again = await master.subscribed()
        assert (again.framework_id, again.client_id) == ("fake-1-F1", first.client_id)
    await eventually(lambda: framework.subscriptions == ["fake-1-F1"] * 4)
    assert framework.errors == []
    assert master.calls == ()
    await framework.stop()
    await run


async def test_a_reconnection_repeats_demand_and_suppression(master: FakeMaster) -> None:
    framework = Recorder(master.address, demand=UNIT, demand_count=9)
    async with running(framework, master):
        await framework.launch(master, task(), task())
        await framework.suppress()
        master.disconnect()
        again = await master.subscribed()
        assert again.demand is not None
        assert again.demand.count == 7
        assert again.suppressed
        await framework.revive()
        await framework.demand(None)
        master.disconnect()
        again = await master.subscribed()
        assert again.demand is None
        assert not again.suppressed


async def test_an_accept_whose_verdict_was_lost_is_sent_again_and_done_once(
    master: FakeMaster,
) -> None:
    framework = Recorder(master.address, demand=UNIT, demand_count=5)
    async with running(framework, master):
        master.offer("cpus:4;mem:1GB")
        offer = await framework.next_offer()
        master.mute()
        accepting = asyncio.create_task(framework.accept(offer, [task("t1"), task("t2")]))
        first = await master.next_call("accept")
        master.disconnect()
        second = await master.next_call("accept")
        assert (second.seq, second.again) == (first.seq, True)
        assert [verdict.ok for verdict in await accepting] == [True, True]
        assert master.task_state("t1") is TaskState.STAGING
        # SUBSCRIBE could not know of these tasks: the demand is sent again without them.
        correction = await master.next_call("update_demand")
        assert correction.demand is not None
        assert correction.demand.count == 3
        assert master.demand == correction.demand


async def test_an_accept_that_never_arrived_fails_because_its_offer_is_void(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:4;mem:1GB")
    offer = await framework.next_offer()
    master.disconnect()
    await eventually(lambda: len(framework.subscriptions) == 2)
    [verdict] = await framework.accept(offer, [task("t1")])
    assert isinstance(verdict.error, Conflict)
    assert not (await master.next_call("accept")).again


async def test_calls_made_while_disconnected_wait_and_keep_their_order() -> None:
    async with FakeMaster() as master:
        port = int(master.address.rpartition(":")[2])
        framework = Recorder(master.address)
        run = asyncio.create_task(framework.run())
        await master.subscribed()
    calls = [asyncio.create_task(framework.reconcile([f"t{n}"])) for n in range(5)]
    calls.append(asyncio.create_task(framework.revive()))
    async with FakeMaster(port=port) as master:
        await asyncio.gather(*calls)
        assert [call.seq for call in master.calls if call.kind != "subscribe"] == [1, 2, 3, 4, 5, 6]
        await framework.stop()
        await run


async def test_calls_made_before_run_wait_for_it(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    early = asyncio.create_task(framework.demand(UNIT, 2))
    await asyncio.sleep(0)
    async with running(framework, master):
        await early
        assert str(master.demand) == f"2 <{UNIT}>"


async def test_offers_that_wait_for_a_handler_are_void_with_their_stream(
    master: FakeMaster,
) -> None:
    class Slow(Recorder):
        go = asyncio.Event()

        async def on_subscribed(self, framework_id: str) -> None:
            await super().on_subscribed(framework_id)
            await self.go.wait()

    framework = Slow(master.address)
    async with running(framework, master):
        master.offer("cpus:4;mem:1GB")
        await eventually(lambda: len(framework._session._book) == 1)
        master.disconnect()
        await master.subscribed()
        framework.go.set()
        master.offer("cpus:2;mem:1GB")
        assert (await framework.next_offer()).id == "fake-1-O2"
        assert framework.batches == [["fake-1-O2"]]


async def test_offers_rescinded_or_expired_while_they_wait_are_not_shown(
    master: FakeMaster,
) -> None:
    class Slow(Recorder):
        go = asyncio.Event()

        async def on_subscribed(self, framework_id: str) -> None:
            await self.go.wait()

    framework = Slow(master.address)
    async with running(framework, master):
        gone = master.offer("cpus:1")
        short = master.offer("cpus:1", lease_s=0.05)
        master.offer("cpus:1")
        master.offer("cpus:1")
        master.rescind(gone)
        book = framework._session._book
        await eventually(lambda: len(book) == 2 and short not in book)
        framework.go.set()
        await eventually(lambda: framework.batches == [["fake-1-O3", "fake-1-O4"]])
        assert framework.rescinded == []
        master.rescind("fake-1-O3")
        await eventually(lambda: framework.rescinded == ["fake-1-O3"])
        offers = [await framework.next_offer(), await framework.next_offer()]
        await framework.decline(offers[1])
        master.rescind("fake-1-O4")
        await framework.revive()
        assert framework.rescinded == ["fake-1-O3"]


async def test_the_sdk_disconnects_from_a_silent_master() -> None:
    async with FakeMaster(heartbeat_s=0.05) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            began = time.monotonic()
            master.mute()
            await master.subscribed()
            assert time.monotonic() - began > 0.25


async def test_the_next_master_is_tried_if_one_does_not_answer_subscribe() -> None:
    class Hasty(Recorder):
        _settings = replace(HASTY, times=replace(HASTY_TIMES, join_s=0.2))

    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [deaf.getsockname()[1], closed.getsockname()[1]]
        async with FakeMaster() as master:
            before = ",".join(f"127.0.0.1:{port}" for port in ports)
            framework = Hasty(f"{before},{master.address}")
            async with running(framework, master):
                await eventually(lambda: framework.subscriptions == ["fake-1-F1"])


async def test_a_slow_handler_delays_neither_heartbeats_nor_verdicts() -> None:
    class Slow(Recorder):
        go = asyncio.Event()

        async def on_offers(self, offers: list[Offer]) -> None:
            await super().on_offers(offers)
            await self.go.wait()

    async with FakeMaster(heartbeat_s=0.05) as master:
        framework = Slow(master.address)
        async with running(framework, master):
            master.offer("cpus:1;mem:64MB")
            offer = await framework.next_offer()
            for _ in range(10):
                await master.next_call("heartbeat")
            assert (await framework.accept(offer, [task("t1")]))[0].ok
            await master.update("t1", TaskState.RUNNING)
            await framework.revive()
            assert framework.states == [], "handlers are called one after the other"
            framework.go.set()
            await master.acknowledged("t1", 1)
            assert framework.subscriptions == ["fake-1-F1"]


async def test_a_handler_may_make_calls(master: FakeMaster) -> None:
    class Busy(Recorder):
        async def on_offers(self, offers: list[Offer]) -> None:
            verdicts = await self.accept(offers[0], [task("t1")])
            await asyncio.gather(self.revive(), self.reconcile([verdicts[0].task_id]))

    framework = Busy(master.address)
    async with running(framework, master):
        master.offer("cpus:1;mem:64MB")
        await eventually(lambda: framework.states == [("t1", "STAGING")])


async def test_a_full_queue_stops_reading_without_a_deadlock() -> None:
    class Slow(Recorder):
        _settings = replace(HASTY, queue_limit=100)
        go = asyncio.Event()

        async def on_offers(self, offers: list[Offer]) -> None:
            await self.go.wait()
            # The queue is full by now, and the verdict is behind the items that fill it.
            await self.decline(offers)
            await super().on_offers(offers)

    async with FakeMaster(heartbeat_s=0.05) as master:
        framework = Slow(master.address)
        async with running(framework, master):
            inbox, book = framework._session._inbox, framework._session._book
            master.offer("cpus:1")
            await eventually(lambda: len(book) == 1 and len(inbox) == 0)
            for number in range(100):
                master.fail_agent("a2")
                await _filled(inbox, number + 1)
            for _ in range(200):
                master.fail_agent("a2")
            for _ in range(10):
                await master.next_call("heartbeat")
            assert len(inbox) == 100
            framework.go.set()
            await eventually(lambda: framework.batches == [["fake-1-O1"]])
            await eventually(lambda: len(framework.failures) == 300)
            assert framework.subscriptions == ["fake-1-F1"]


@pytest.mark.parametrize("error", [None, Unavailable("x")])
async def test_offers_that_a_failed_handler_did_not_answer_are_declined(
    error: Exception | None, master: FakeMaster
) -> None:
    class Fragile(Recorder):
        async def on_offers(self, offers: list[Offer]) -> None:
            if len(self.batches) == 0:
                await super().on_offers(offers)
                await self.accept(offers[0], [task("t1")])
                raise error or asyncio.CancelledError
            await super().on_offers(offers)

    framework = Fragile(master.address)
    run = asyncio.create_task(framework.run())
    await master.subscribed()
    master.offer("cpus:1;mem:64MB", agent_id="a1")
    master.offer("cpus:1;mem:64MB", agent_id="a2")
    master.offer("cpus:1;mem:64MB", agent_id="a3")
    call = await master.next_call("decline")
    taken = framework.batches[0]
    assert call.offer_ids == tuple(taken[1:])
    assert (call.refuse_s, call.reason) == (5.0, "handler raised")
    master.offer("cpus:1")
    await eventually(lambda: len(framework.batches) >= 2)
    await framework.stop()
    await run


async def _filled(inbox: Inbox, items: int) -> None:
    await eventually(lambda: len(inbox) >= items)
