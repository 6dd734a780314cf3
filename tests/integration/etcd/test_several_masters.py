"""Elections on a real etcd, and several masters: one leads, and the next takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.etcd import operations as op
from croupier.master.etcd import presence as presence_module
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.presence import MOST_MASTERS, EtcdPresence
from croupier.master.leadership.roster import Candidate
from croupier.model.errors import InvalidRequest, NotLeader, Unavailable
from croupier.net.transport import make_channel
from croupier.sdk import TaskState
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.etcd import PASSWORD, USER, Etcd, running_etcd
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent
from tests.integration.etcd.conftest import Masters
from tests.integration.sdk.recorder import Recorder, task


async def forever(_: object) -> str:
    await asyncio.Event().wait()
    return ""


async def cancel(*tasks: asyncio.Task[None]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_of_three_candidates_leads_and_the_others_follow(masters: Masters) -> None:
    elections = [masters.election(f"{name}:1", lease_s=60) for name in "abc"]
    tasks = [asyncio.create_task(election.win()) for election in elections]
    await eventually(lambda: any(task.done() for task in tasks))
    (first,) = (election for election in elections if election.is_won)
    others = [election for election in elections if election is not first]
    await eventually(lambda: all(each.leader == first.leader for each in others))
    assert not any(each.is_won for each in others)

    await first.resign()
    assert not first.is_won
    # In less than the lease: the others do not wait for a leader that resigned.
    await eventually(lambda: any(each.is_won for each in others))
    (second,) = (each for each in others if each.is_won)
    assert second.token > 0
    await cancel(*tasks)


async def test_a_leader_that_stops_renewing_is_followed_by_another(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (masters.election(name, lease_s=2) for name in ("a:1", "b:1"))
    monkeypatch.setattr(first, "_renewed", forever)
    await first.win()

    async def won_beside_the_first() -> bool:
        await second.win()
        return first.is_won

    waiting = asyncio.create_task(won_beside_the_first())
    await eventually(lambda: second.leader == "a:1")
    await asyncio.wait_for(first.lost(), 20)
    assert not first.is_won
    assert not await asyncio.wait_for(waiting, 20), "the old leader stops before a new one begins"
    assert second.token > first.token
    assert second.leader == "b:1"


async def test_leadership_lasts_while_it_is_renewed(masters: Masters) -> None:
    election = masters.election(lease_s=4)
    await election.win()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(election.lost(), 5.0)
    assert election.is_won
    await election.win()  # changes nothing


async def test_a_deposed_leader_becomes_a_candidate_again_at_once(masters: Masters) -> None:
    """Its earlier key, which etcd would keep for the rest of the lease, is deleted."""
    election = masters.election(lease_s=30)
    await election.win()
    token = election.token
    election.fenced()
    await asyncio.wait_for(election.lost(), 20)
    assert election.leader is None
    await asyncio.wait_for(election.win(), 20)
    assert election.token > token


async def test_a_deleted_key_ends_the_leadership(masters: Masters) -> None:
    election = masters.election(lease_s=30)
    await election.win()
    key = f"/{masters.prefix}/leader".encode()
    delete = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=key))
    await masters.client().call(op.TXN, pb.TxnRequest(success=[delete]))
    await asyncio.wait_for(election.lost(), 20)
    assert not election.is_won


async def test_a_revoked_lease_ends_the_leadership(masters: Masters) -> None:
    election = masters.election(lease_s=30)
    await election.win()
    assert election._term is not None
    await election._revoke(election._term.lease)
    await asyncio.wait_for(election.lost(), 20)


async def test_two_prefixes_elect_two_leaders(masters: Masters) -> None:
    first, second = masters.election("a:1"), masters.election("b:1")
    second._keys = type(second._keys)(masters.prefix + "b")
    await first.win()
    await asyncio.wait_for(second.win(), 20)
    assert first.is_won
    assert second.is_won


async def test_waiting_survives_a_compaction(masters: Masters) -> None:
    first, second = masters.election("a:1", 30), masters.election("b:1", 30)
    await first.win()
    waiting = asyncio.create_task(second.win())
    await eventually(lambda: second.leader == "a:1")
    await asyncio.to_thread(masters.etcd.compact)
    client = masters.client()
    # Revision 1 was compacted long ago.
    await asyncio.wait_for(client.change_of(f"/{masters.prefix}/leader".encode(), 1, 20), 10)
    await first.resign()
    await asyncio.wait_for(waiting, 20)


async def test_a_candidate_waits_for_etcd_and_then_leads(three: Masters) -> None:
    three.etcd.kill(0, 1, 2)
    election = three.election()
    waiting = asyncio.create_task(election.win())
    with pytest.raises(Unavailable):
        await three.client().check()
    assert not waiting.done()
    for number in range(3):
        three.etcd.launch(number)
    await asyncio.wait_for(waiting, 20)
    assert election.is_won


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """Run an etcd of the test's own, since the test freezes it."""
    with running_etcd(tmp_path) as etcd:
        yield etcd


@asynccontextmanager
async def running(etcd: Etcd, lease: float) -> AsyncIterator[MasterDaemon]:
    config = MasterConfig(
        listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(None, etcd.target("several")), lease=lease
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
        answer = await OperatorServiceStub(channel).ListMasters(operator_pb2.ListMastersRequest())
    found = [(each.address, each.leader, each.epoch, each.http_address) for each in answer.masters]
    return found == [
        (str(leader.address), True, 1, f"http://{leader.http_address}"),
        (str(follower.address), False, 0, f"http://{follower.http_address}"),
    ]


async def test_the_next_leader_launches_accepted_tasks(etcd: Etcd) -> None:
    async with AsyncExitStack() as stack:
        masters = [await stack.enter_async_context(running(etcd, lease=6)) for _ in range(2)]
        leader = await leader_of(masters)
        [follower] = [master for master in masters if master is not leader]
        await eventually(lambda: follower.leadership.leader == str(leader.address))
        for master in masters:
            await eventually(partial(knows_both, master, leader, follower), 30)
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
    async with running(etcd, lease=3) as master:
        await leader_of([master])
        epoch = master.leadership.term().epoch
        etcd.freeze(0)
        try:
            await eventually(lambda: not master.leadership.is_leader, 20)
            with pytest.raises(NotLeader):
                await master.leadership.read(lambda state: state.epoch)
        finally:
            etcd.thaw(0)
        await eventually(lambda: master.leadership.is_leader, 30)
        assert master.leadership.term().epoch == epoch + 1


M1 = Candidate("m1:5050", "http://m1:5080", "0.9.0", 1_000)
M2 = Candidate("m2:5050", "http://m2:5080", "0.9.0", 2_000)


async def test_masters_know_each_other_until_they_end(masters: Masters) -> None:
    client = masters.client()
    first, second = (EtcdPresence(client, masters.prefix, 30.0) for _ in range(2))
    await first.round(M1)
    await second.round(M2)
    await first.round(M1)
    assert (list(first.others), list(second.others)) == ([M2], [M1])
    # What has changed is told with the next round.
    led = replace(M2, master_id="c-3", epoch=3, term_since_ms=3_000)
    await second.round(led)
    await first.round(M1)
    assert list(first.others) == [led]
    # A lease that was lost is replaced.
    await client.call(op.REVOKE, pb.LeaseRevokeRequest(id=second._lease))
    await second.round(led)
    await first.round(M1)
    assert list(first.others) == [led]
    await second.close()
    await first.round(M1)
    assert list(first.others) == []
    await first.close()
    held, _ = await client.get(op.Keys(masters.prefix).master("m1:5050"))
    assert held is None


async def test_foreign_values_are_ignored_and_their_number_is_bounded(masters: Masters) -> None:
    client, keys = masters.client(), op.Keys(masters.prefix)
    bad = [op.put(keys.master("bad:1"), b"\xff" * 100_000), op.put(keys.masters, M2.encode())]
    many = [op.put(keys.master(f"m{number}:1"), b"{}") for number in range(100)]
    await client.call(op.TXN, pb.TxnRequest(success=[*bad, *many]))
    presence = EtcdPresence(client, masters.prefix, 30.0)
    await presence.round(M1)
    assert len(presence.others) == MOST_MASTERS - 2
    await presence.close()


async def test_a_user_of_narrow_rights_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_etcd(tmp_path) as etcd:
        etcd.enable_users("croupier")
        client = EtcdClient(etcd.addresses, etcd.access(USER, PASSWORD))
        allowed = EtcdPresence(client, "croupier", 30.0)
        await allowed.round(M1)
        refused = EtcdPresence(client, "elsewhere", 30.0)
        with pytest.raises(InvalidRequest):
            await refused.round(M2)
        monkeypatch.setattr(presence_module, "REFUSED_S", 0.01)
        rounds = 0

        def own() -> Candidate:
            nonlocal rounds
            rounds += 1
            return M2

        with capture_logs() as logs:
            refused.start(own)
            await eventually(lambda: rounds > 3)
        assert [line["event"] for line in logs] == ["masters_unknown"]
        await asyncio.gather(refused.close(), allowed.close())
        await client.close()
