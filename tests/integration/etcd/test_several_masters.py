"""Two masters on a real etcd: one leads, and the other takes over without loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.model.errors import NotLeader
from croupier.net.transport import make_channel
from croupier.sdk import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.etcd import Etcd, running_etcd
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent
from tests.integration.sdk.recorder import Recorder, task


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """Run an etcd of the test's own, since the test freezes it."""
    with running_etcd(tmp_path) as etcd:
        yield etcd


@asynccontextmanager
async def running(etcd: Etcd) -> AsyncIterator[MasterDaemon]:
    config = MasterConfig(
        listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(None, etcd.target("several")), lease=2
    )
    master = MasterDaemon(config)
    try:
        await master.start()
        yield master
    finally:
        await master.stop()


async def leader_of(masters: list[MasterDaemon]) -> MasterDaemon:
    """Wait until one of them leads."""
    await eventually(
        lambda: any(master.leadership.is_leader for master in masters), what="a leader"
    )
    [leader] = [master for master in masters if master.leadership.is_leader]
    return leader


async def knows_both(asked: MasterDaemon, leader: MasterDaemon, follower: MasterDaemon) -> bool:
    """Return whether a master lists both, with what each has told of itself."""
    async with make_channel(asked.address) as channel:
        answer = await OperatorServiceStub(channel).ListMasters(pb.ListMastersRequest())
    found = [(each.address, each.leader, each.epoch, each.http_address) for each in answer.masters]
    return found == [
        (str(leader.address), True, 1, f"http://{leader.http_address}"),
        (str(follower.address), False, 0, f"http://{follower.http_address}"),
    ]


async def test_the_next_leader_launches_accepted_tasks(etcd: Etcd) -> None:
    async with AsyncExitStack() as stack:
        masters = [await stack.enter_async_context(running(etcd)) for _ in range(2)]
        leader = await leader_of(masters)
        [follower] = [master for master in masters if master is not leader]
        await eventually(lambda: follower.leadership.leader == str(leader.address))
        for master in masters:
            await eventually(partial(knows_both, master, leader, follower))
        framework = Recorder(str(follower.address))
        run = asyncio.create_task(framework.run())
        async with RawAgent(leader.address) as agent:
            agent_id = await agent.register()
            offer = await framework.next_offer()
            [verdict] = await framework.accept(offer, [task("t1")])
            assert verdict.ok
            await agent.next("launch")
        assert leader.leadership.term().epoch == 1
        await leader.stop()
        await leader_of([follower])
        assert follower.leadership.term().epoch == 2
        await eventually(lambda: len(framework.subscriptions) == 2)
        assert len(set(framework.subscriptions)) == 1
        # The store has the task; its state is unknown.
        await framework.reconcile(["t1"])
        await eventually(lambda: framework.statuses)
        assert framework.statuses[0].state is TaskState.UNKNOWN
        assert framework.statuses[0].decided_in_s
        # The agent never received it, so it is launched again.
        async with RawAgent(follower.address) as agent:
            await agent.register(agent_id=agent_id)
            launched = (await agent.next("launch")).launch
            assert launched.task.task_id == "t1"
            assert agent.epochs == {2}
        assert framework.errors == []
        await framework.stop()
        await run


async def test_a_leader_that_cannot_write_steps_down_and_leads_again(etcd: Etcd) -> None:
    async with running(etcd) as master:
        await leader_of([master])
        epoch = master.leadership.term().epoch
        etcd.freeze(0)
        try:
            await eventually(lambda: not master.leadership.is_leader)
            with pytest.raises(NotLeader):
                await master.leadership.read(lambda state: state.epoch)
        finally:
            etcd.thaw(0)
        await eventually(lambda: master.leadership.is_leader, timeout_s=20)
        assert master.leadership.term().epoch == epoch + 1
