"""Restored snapshots and altered values of etcd are refused, and not quoted."""

from __future__ import annotations

import asyncio

import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import AgentRecord, Record, TaskRecord
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import RANGE, TXN
from croupier.master.etcd.operations import end_of
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, StreamEnded
from tests.integration.etcd.conftest import Masters


async def snapshot(masters: Masters) -> list[pb.KeyValue]:
    """Return all keys of the cluster except the leader's."""
    first = f"/{masters.prefix}/".encode()
    question = pb.RangeRequest(key=first, range_end=end_of(first))
    answer = await masters.client().call(RANGE, question, 5.0)
    return [kv for kv in answer.kvs if kv.key != Keys(masters.prefix).leader]


async def restore(masters: Masters, kept: list[pb.KeyValue]) -> None:
    first = f"/{masters.prefix}/".encode()
    gone = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=first, range_end=end_of(first)))
    puts = [pb.RequestOp(put=pb.PutRequest(key=kv.key, value=kv.value)) for kv in kept]
    client = masters.client()
    for operations in ([gone], puts):
        assert (await client.call(TXN, pb.TxnRequest(success=operations), 5.0)).succeeded


def master(masters: Masters) -> MasterDaemon:
    target = masters.etcd.target(masters.prefix)
    return MasterDaemon(
        MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(None, target), lease=2)
    )


async def test_a_restored_snapshot_is_refused_when_an_agent_knows_newer_commits(
    masters: Masters,
) -> None:
    first = master(masters)
    try:
        await first.start()
        await eventually(lambda: first.leadership.is_leader)
        kept = await snapshot(masters)
        async with RawAgent(first.address) as agent:
            await agent.register()
            claim = agent.claim
    finally:
        await first.stop()
    await restore(masters, kept)
    second = master(masters)
    try:
        await second.start()
        await eventually(lambda: second.leadership.is_leader)
        async with RawAgent(second.address) as agent:
            with pytest.raises(StreamEnded):
                await agent.register(**claim)
        with pytest.raises(InvalidRequest, match="is an old copy: an agent knows commit"):
            await asyncio.wait_for(second.run(asyncio.Event()), 20)
    finally:
        await second.stop()


def task(number: int) -> Record:
    info = TaskInfo(
        TaskId(f"t{number}"), Command(shell="login --password=hunter2"), Resources.parse("cpus:1")
    )
    return TaskRecord(FrameworkId("f"), info, AgentId("a"), Role("*"))


async def test_a_commit_of_many_transactions_counts_as_one(
    masters: Masters,
) -> None:
    election, store = await masters.leading()
    before = store.commits
    await store.commit([task(1)])
    await store.commit([AgentRecord(AgentId(f"A{n}"), "h") for n in range(400)])
    await store.commit([task(2)])
    assert store.commits == before + 3
    await election.resign()
    _, again = await masters.leading("b:1")
    assert again.commits == before + 3


async def test_no_altered_value_is_accepted_as_a_record(masters: Masters) -> None:
    election, store = await masters.leading()
    await store.commit([task(n) for n in range(3)])
    await election.resign()
    client, key = masters.client(), Keys(masters.prefix).record("task", "f/t1")
    answer = await client.call(RANGE, pb.RangeRequest(key=key), 5.0)
    whole = answer.kvs[0].value
    for at in (0, 12, whole.index(b"hunter2"), len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 4
        put = pb.RequestOp(put=pb.PutRequest(key=key, value=bytes(changed)))
        await client.call(TXN, pb.TxnRequest(success=[put]), 5.0)
        election = masters.election(f"c{at}:1", client=client)
        await election.win()
        with pytest.raises(InvalidRequest, match="its checksum does not match") as refused:
            await type(store)(client, masters.prefix, election).load()
        assert "task 'f/t1'" in str(refused.value)
        assert "hunter2" not in str(refused.value)
        await election.resign()
