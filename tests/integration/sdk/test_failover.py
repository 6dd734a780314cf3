"""Failover to another master, which needs no code in the framework."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

from croupier.net.transport import free_addresses
from croupier.sdk import Conflict, TaskState, Unavailable
from croupier.sdk.settings import Settings
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import HASTY, HASTY_TIMES, UNIT, Recorder, running, task

# Longer than any test waits for a SUBSCRIBE.
WAIT_S = 60.0


class Patient(Recorder):
    """A framework that waits long between attempts, so that only a redirect is fast."""

    _settings: ClassVar[Settings] = replace(
        HASTY,
        times=replace(
            HASTY_TIMES,
            backoff_first_s=WAIT_S,
            backoff_cap_s=WAIT_S,
            election_first_s=WAIT_S,
            election_cap_s=WAIT_S,
            settled_s=WAIT_S,
        ),
    )


@asynccontextmanager
async def masters(number: int, leader: int = 0) -> AsyncIterator[list[FakeMaster]]:
    """Several masters; one leads."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(FakeMaster()) for _ in range(number)]
        for place, master in enumerate(made):
            if place != leader:
                master.follow(made[leader].address)
        yield made


def several(made: list[FakeMaster]) -> str:
    return ",".join(master.address for master in made)


async def test_a_follower_redirects_to_the_leader_at_once() -> None:
    async with masters(3, leader=2) as made:
        # The framework knows one master only; that one names the leader.
        for known in (several(made), made[0].address):
            async with running(Patient(known), made[2]):
                pass
        assert made[0].calls == made[1].calls == ()


async def test_a_circle_of_redirects_ends() -> None:
    async with FakeMaster() as one, FakeMaster() as other:
        one.follow(other.address)
        other.follow(one.address)
        framework = Patient(several([one, other]))
        run = asyncio.create_task(framework.run())
        await eventually(lambda: one.refused + other.refused == 4)
        await asyncio.sleep(0.1)
        assert one.refused + other.refused == 4
        await framework.stop()
        await run


async def test_the_state_of_a_framework_survives_a_failover() -> None:
    async with masters(2) as made:
        older, newer = made
        framework = Recorder(several(made), demand=UNIT, demand_count=9)
        async with running(framework, older):
            await framework.launch(older, task("t1"), task("t2"))
            await older.update("t1", TaskState.RUNNING)
            await framework.suppress()
            await eventually(lambda: framework.states == [("t1", "RUNNING")])
            newer.take_over(older)
            again = await newer.subscribed()
            assert again.framework_id == "fake-1-F1"
            assert again.suppressed
            assert again.demand is not None
            assert again.demand.count == 7
            await newer.update("t1", TaskState.FINISHED)
            await newer.acknowledged("t1", 2)
            await framework.revive()
            await framework.launch(newer, task("t3"))
            assert framework.states == [("t1", "RUNNING"), ("t1", "FINISHED")]
            assert framework.errors == []


async def test_the_next_master_answers_an_accept_whose_verdict_was_lost() -> None:
    async with masters(2) as made:
        older, newer = made
        framework = Recorder(several(made))
        async with running(framework, older):
            older.offer("cpus:4;mem:1GB")
            offer = await framework.next_offer()
            older.mute()
            accepting = asyncio.create_task(framework.accept(offer, [task("t1"), task("t2")]))
            killing = asyncio.create_task(framework.kill("t1"))
            await older.next_call("accept")
            await older.next_call("kill")
            newer.take_over(older)
            assert [verdict.ok for verdict in await accepting] == [True, True]
            await killing
            # The agent never reported t1, so its kill is done.
            assert newer.task_state("t1") is TaskState.KILLED
            assert newer.task_state("t2") is TaskState.STAGING


async def test_an_accept_lost_with_its_master_conflicts_and_can_be_repeated() -> None:
    async with masters(2) as made:
        older, newer = made
        framework = Recorder(several(made))
        async with running(framework, older):
            older.offer("cpus:4;mem:1GB")
            offer = await framework.next_offer()
            newer.take_over(older)
            [verdict] = await framework.accept(offer, [task("t1")])
            assert isinstance(verdict.error, Conflict)
            [verdict] = await framework.launch(newer, task("t1"))
            assert verdict.ok


async def test_calls_wait_during_an_election(master: FakeMaster, framework: Recorder) -> None:
    master.follow()
    reviving = asyncio.create_task(framework.revive())
    await eventually(lambda: master.refused >= 3)
    assert not reviving.done()
    master.lead()
    await asyncio.wait_for(reviving, 20)
    assert framework.errors == []


async def test_an_unreachable_leader_does_not_delay_the_search() -> None:
    class Hasty(Recorder):
        _settings = replace(HASTY, times=replace(HASTY_TIMES, connect_s=0.2))

    [unused] = free_addresses(1)
    async with FakeMaster() as master:
        master.follow(str(unused))
        framework = Hasty(master.address)
        run = asyncio.create_task(framework.run())
        await eventually(lambda: master.refused >= 3)
        master.lead()
        await master.subscribed()
        await framework.stop()
        await run


@pytest.mark.parametrize("error", [None, Unavailable("the master is stopping")])
async def test_the_next_master_is_tried_when_the_leader_is_gone(error: Unavailable | None) -> None:
    async with masters(2) as made:
        older, newer = made
        framework = Recorder(several(made))
        async with running(framework, older):
            newer.lead()
            older.disconnect(error)
            await newer.subscribed()
