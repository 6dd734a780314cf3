"""A cluster without changes makes no allocation passes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from croupier.master.core.state import State
from croupier.sdk import Framework, Offer
from croupier.v1 import agent_pb2, framework_pb2
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, running_master

FRAMEWORKS, AGENTS = 100, 3


class Decliner(Framework):
    """A framework that declines every offer for an hour."""

    async def on_offers(self, offers: list[Offer]) -> None:
        await self.decline(offers, refuse_s=3600, reason="no work")


async def test_declined_offers_cause_no_allocation_passes() -> None:
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(running_master(heartbeat=0.5, agent_timeout=60))
        agents = []
        for _ in range(AGENTS):
            agent = await stack.enter_async_context(RawAgent(master.address))
            await agent.register()
            agents.append(agent)
        beating = asyncio.create_task(beat(agents))
        decliners = [
            Decliner(name=f"d{number}", role=f"r{number}", master=str(master.address))
            for number in range(FRAMEWORKS)
        ]
        running = [asyncio.create_task(decliner.run()) for decliner in decliners]

        async def all_is_refused() -> bool:
            return await master.driver.read(is_refused)

        await eventually(all_is_refused, 30)
        passes = await master.driver.read(lambda state: state.allocator.passes)
        heard = await master.driver.read(last_received)

        async def all_were_heard_again() -> bool:
            now = await master.driver.read(last_received)
            return all(now[peer] > then + 1.0 for peer, then in heard.items())

        # Heartbeats change neither agents nor filters.
        await eventually(all_were_heard_again, 20)
        assert await master.driver.read(lambda state: state.allocator.passes) == passes
        assert not await master.driver.read(lambda state: state.allocator.has_dirty_agents)
        for decliner in decliners:
            await decliner.stop()
        await asyncio.wait_for(asyncio.gather(*running), 30)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def beat(agents: list[RawAgent]) -> None:
    """Send heartbeats, because an agent that becomes suspect would be a change."""
    while True:
        for agent in agents:
            await agent.send(agent_pb2.Report(heartbeat=framework_pb2.Heartbeat()))
        await asyncio.sleep(0.2)


def is_refused(state: State) -> bool:
    everything = len(state.frameworks) == FRAMEWORKS and not state.offers
    return everything and state.allocator.queries.filter_count() == FRAMEWORKS * AGENTS


def last_received(state: State) -> dict[str, float]:
    return {
        framework.framework_id: framework.last_received for framework in state.frameworks.values()
    }
