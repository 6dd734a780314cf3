"""Copies of a store in etcd; restored snapshots, altered values and keys of earlier builds."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.app import MasterDaemon
from croupier.master.backup.commands import back_up, restore
from croupier.master.backup.copy_file import read_copy
from croupier.master.backup.flags import StoreFlags
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import AgentRecord, MasterRecord, PastTerm, Record, TaskRecord
from croupier.master.etcd import operations as op
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, StreamEnded
from tests.harness.sqlite_stores import commit, opened, read
from tests.integration.etcd.conftest import Masters
from tests.unit.test_upgrade import without_terms
from tests.upgrade.build import OLD
from tests.upgrade.plain_records import PREFIX, difference, plain

MASTER = MasterRecord("abc", 1, "secret", 0, (PastTerm(1, "one", 0),))


def agents(count: int, name: str = "host") -> list[Record]:
    return [AgentRecord(AgentId(f"a{n:03}"), f"{name} {n}") for n in range(count)]


def flags(masters: Masters) -> StoreFlags:
    return StoreFlags(store=StoreChoice.parse(str(masters.etcd.target(masters.prefix))))


async def copied(flags: StoreFlags, path: Path) -> list[Record]:
    await asyncio.to_thread(back_up, flags, path)
    return list(read_copy(path).records)


async def put_back(flags: StoreFlags, path: Path, **options: bool) -> None:
    given = {"accepts_old": False, "replaces": False, "dry_run": False} | options
    await asyncio.to_thread(restore, flags, path, **given)


async def test_a_store_in_etcd_is_copied_while_a_master_leads_and_restored(
    masters: Masters, tmp_path: Path
) -> None:
    election, store = await masters.leading()
    # More records than fit into one transaction.
    await store.commit([MASTER, *agents(300)])
    copy = tmp_path / "copy"
    assert await copied(flags(masters), copy) == [*agents(300), MASTER]
    assert read_copy(copy).head.commit == store.commits
    with pytest.raises(Conflict, match=r"the master a:1 leads with the store /t\d+ in etcd: stop"):
        await put_back(flags(masters), copy, replaces=True)
    await store.commit(agents(2, "later"))
    await election.resign()
    with pytest.raises(InvalidRequest, match=r"too old: .* the store /t\d+ in etcd knows commit 2"):
        await put_back(flags(masters), copy, replaces=True)
    with pytest.raises(Conflict, match=r"there is a store .*give --replace"):
        await put_back(flags(masters), copy, accepts_old=True)
    await put_back(flags(masters), copy, accepts_old=True, replaces=True)
    election, store = await masters.leading()
    registry = await store.load()
    assert list(registry.agents.values()) == agents(300)
    assert registry.master is not None
    assert (registry.master.generation, store.commits) == (1, 2)
    await store.commit(agents(1, "next"))


async def test_a_copy_is_restored_to_the_other_kind_of_store(
    masters: Masters, tmp_path: Path
) -> None:
    path, copy = tmp_path / "master.db", tmp_path / "copy"
    await commit(path, [MASTER, *agents(150)])
    await copied(StoreFlags(store=StoreChoice(path)), copy)
    await put_back(flags(masters), copy)
    back = await copied(flags(masters), tmp_path / "back")
    assert back == [*agents(150), MASTER]
    await put_back(StoreFlags(store=StoreChoice(tmp_path / "new.db")), tmp_path / "back")
    registry = await read(tmp_path / "new.db")
    assert (registry.master, len(registry.agents)) == (MASTER, 150)
    async with opened(tmp_path / "new.db") as sqlite:
        assert sqlite.commits == 1


async def test_a_commit_that_a_dead_master_left_staged_is_in_the_copy(
    masters: Masters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = await masters.leading()
    await store.commit([MASTER])

    async def dies(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(store, "_write_staged", dies)
    with pytest.raises(ConnectionError):
        await store.commit(agents(300))
    found = await copied(flags(masters), tmp_path / "copy")
    assert sorted(map(str, found)) == sorted(map(str, [MASTER, *agents(300)]))


async def test_no_master_begins_with_a_part_of_a_copy(masters: Masters, tmp_path: Path) -> None:
    election, store = await masters.leading()
    await store.commit([MASTER])
    copy = tmp_path / "copy"
    await copied(flags(masters), copy)
    # As after a SIGKILL of restore.
    client, keys = masters.client(), op.Keys(masters.prefix)
    await client.call(op.TXN, pb.TxnRequest(success=[op.put(keys.schema, b"restoring")]))
    with pytest.raises(InvalidRequest, match="was not restored completely: run croupier-master"):
        await store.load()
    with pytest.raises(InvalidRequest, match="was not restored completely"):
        await copied(flags(masters), tmp_path / "other")
    await election.resign()
    await put_back(flags(masters), copy)
    _, store = await masters.leading()
    assert (await store.load()).master == MASTER


async def snapshot(masters: Masters) -> list[pb.KeyValue]:
    """Return all keys of the cluster except the leader's."""
    first = f"/{masters.prefix}/".encode()
    question = pb.RangeRequest(key=first, range_end=op.end_of(first))
    answer = await masters.client().call(op.RANGE, question, 5.0)
    return [kv for kv in answer.kvs if kv.key != op.Keys(masters.prefix).leader]


async def restore_keys(masters: Masters, kept: list[pb.KeyValue]) -> None:
    first = f"/{masters.prefix}/".encode()
    gone = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=first, range_end=op.end_of(first)))
    puts = [pb.RequestOp(put=pb.PutRequest(key=kv.key, value=kv.value)) for kv in kept]
    client = masters.client()
    for operations in ([gone], puts):
        assert (await client.call(op.TXN, pb.TxnRequest(success=operations), 5.0)).succeeded


def master(masters: Masters) -> MasterDaemon:
    target = masters.etcd.target(masters.prefix)
    return MasterDaemon(
        MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(None, target), lease=30)
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
    await restore_keys(masters, kept)
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


async def test_a_commit_of_many_transactions_counts_as_one(masters: Masters) -> None:
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
    client, key = masters.client(), op.Keys(masters.prefix).record("task", "f/t1")
    answer = await client.call(op.RANGE, pb.RangeRequest(key=key), 5.0)
    whole = answer.kvs[0].value
    for at in (0, 12, whole.index(b"hunter2"), len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 4
        put = pb.RequestOp(put=pb.PutRequest(key=key, value=bytes(changed)))
        await client.call(op.TXN, pb.TxnRequest(success=[put]), 5.0)
        election = masters.election(f"c{at}:1", client=client)
        await election.win()
        with pytest.raises(InvalidRequest, match="its checksum does not match") as refused:
            await type(store)(client, masters.prefix, election).load()
        assert "task 'f/t1'" in str(refused.value)
        assert "hunter2" not in str(refused.value)
        await election.resign()


async def test_the_keys_of_an_old_store_are_read_completely_and_extended(masters: Masters) -> None:
    # Checksums cover the keys, so the prefix must equal that of the file.
    masters.prefix = PREFIX
    start = f"/{PREFIX}/".encode()
    client = masters.client()
    empty = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=start, range_end=op.end_of(start)))
    assert (await client.call(op.TXN, pb.TxnRequest(success=[empty]), 5.0)).succeeded
    puts = [
        pb.RequestOp(put=pb.PutRequest(key=key.encode(), value=base64.b64decode(value)))
        for key, value in json.loads((OLD / "etcd.json").read_text()).items()
    ]
    assert (await client.call(op.TXN, pb.TxnRequest(success=puts), 5.0)).succeeded
    old = json.loads((OLD / "registry.json").read_text())

    election, store = await masters.leading()
    registry = await store.load()
    assert difference(old, plain(registry)) == []
    assert registry.master is not None
    await store.commit([MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    await election.resign()

    _, store = await masters.leading("b:1")
    old["master"]["epoch"] += 1
    assert difference(without_terms(old), plain(await store.load())) == []
