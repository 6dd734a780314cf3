"""A framework holds resources at a real master, uses them, and releases them."""

from __future__ import annotations

import asyncio

import pytest

from croupier.sdk import Conflict, Hold, InvalidRequest, NotFound, Resources
from croupier.sdk.testing import FakeMaster
from tests.harness.masters import RawAgent, running_master
from tests.integration.sdk.recorder import Recorder, running, task

HALF = Resources.parse("cpus:2;mem:4GB")


async def test_a_hold_is_made_used_and_released() -> None:
    async with running_master() as master, RawAgent(master.address) as agent:
        await agent.register()
        framework = Recorder(str(master.address))
        ended = asyncio.create_task(framework.run())
        offer = await framework.next_offer()
        assert offer.hold_id == ""
        hold = Hold(HALF, ttl_s=60)
        verdict = await framework.hold(offer, hold, [task("t1")], refuse_s=3600)
        assert [each.id for each in verdict.operations if each.ok] == [hold.id]
        assert verdict.tasks[0].ok
        held = await framework.next_offer()
        assert (held.hold_id, held.agent_id) == (hold.id, offer.agent_id)
        assert held.resources == HALF - task().resources
        again = await framework.hold(held, Hold(HALF, id=hold.id))
        assert isinstance(again.operations[0].error, Conflict)
        [released, unknown] = await framework.release(hold.id, "another")
        assert released.ok
        assert isinstance(unknown.error, NotFound)
        # Beside the filter of the first offer there is more free now.
        whole = await framework.next_offer()
        assert whole.hold_id == ""
        await framework.stop(teardown=True)
        await ended


async def test_a_refused_hold_leaves_the_tasks_alone(
    master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:1;mem:1GB")
    verdict = await framework.hold(await framework.next_offer(), Hold(HALF), [task("t1")])
    assert isinstance(verdict.operations[0].error, InvalidRequest)
    assert verdict.tasks[0].ok


async def test_a_stale_offer_makes_no_hold(master: FakeMaster, framework: Recorder) -> None:
    master.offer("cpus:2;mem:4GB")
    offer = await framework.next_offer()
    await framework.decline(offer)
    verdict = await framework.hold(offer, Hold(HALF))
    assert isinstance(verdict.error, Conflict)
    assert verdict.operations[0].error is not None


async def test_a_hold_of_nothing_is_refused(master: FakeMaster) -> None:
    framework = Recorder(master.address)
    async with running(framework, master):
        master.offer("cpus:2;mem:4GB")
        verdict = await framework.hold(await framework.next_offer(), Hold(Resources()))
    assert isinstance(verdict.operations[0].error, InvalidRequest)


@pytest.mark.parametrize("ttl_s", [-1.0, 1e30])
async def test_an_impossible_time_is_refused_before_it_is_sent(
    ttl_s: float, master: FakeMaster, framework: Recorder
) -> None:
    master.offer("cpus:2;mem:4GB")
    with pytest.raises(InvalidRequest):
        await framework.hold(await framework.next_offer(), Hold(HALF, ttl_s=ttl_s))
