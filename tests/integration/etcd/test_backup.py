"""Copies of a store in etcd, and restoring between etcd and SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.backup.commands import back_up, restore
from croupier.master.backup.copy_file import read_copy
from croupier.master.backup.flags import StoreFlags
from croupier.master.config import StoreChoice
from croupier.master.core.records import AgentRecord, MasterRecord, PastTerm, Record
from croupier.master.etcd import operations as op
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import TXN
from croupier.master.store import SqliteStore
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId
from tests.integration.etcd.conftest import Masters

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
    sqlite = SqliteStore(path)
    await sqlite.load()
    await sqlite.commit([MASTER, *agents(150)])
    await sqlite.close()
    await copied(StoreFlags(store=StoreChoice(path)), copy)
    await put_back(flags(masters), copy)
    back = await copied(flags(masters), tmp_path / "back")
    assert back == [*agents(150), MASTER]
    await put_back(StoreFlags(store=StoreChoice(tmp_path / "new.db")), tmp_path / "back")
    sqlite = SqliteStore(tmp_path / "new.db")
    registry = await sqlite.load()
    assert (registry.master, len(registry.agents), sqlite.commits) == (MASTER, 150, 1)
    await sqlite.close()


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
    client, keys = masters.client(), Keys(masters.prefix)
    await client.call(TXN, pb.TxnRequest(success=[op.put(keys.schema, b"restoring")]))
    with pytest.raises(InvalidRequest, match="was not restored completely: run croupier-master"):
        await store.load()
    with pytest.raises(InvalidRequest, match="was not restored completely"):
        await copied(flags(masters), tmp_path / "other")
    await election.resign()
    await put_back(flags(masters), copy)
    _, store = await masters.leading()
    assert (await store.load()).master == MASTER
