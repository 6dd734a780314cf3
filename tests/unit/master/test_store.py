"""The SQLite store: what is committed is there, and what cannot be read is refused by name."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from croupier.master.core.records import (
    AgentRecord,
    ForgetAgent,
    ForgetFramework,
    ForgetRole,
    FrameworkRecord,
    MasterRecord,
    Record,
    RoleRecord,
)
from croupier.master.store import SqliteStore
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings

RECORDS: list[Record] = [
    MasterRecord("abc", 3),
    AgentRecord(AgentId("a1"), "host1"),
    AgentRecord(AgentId("a2"), "host2"),
    FrameworkRecord(FrameworkId("f1"), "name", (Role("ads"), Role("web")), 600.0),
    FrameworkRecord(FrameworkId("f2"), "gone", (Role("*"),), 1.0, removed=True),
]


async def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    store = SqliteStore(path)
    await store.load()
    await store.commit(RECORDS)
    await store.commit([ForgetAgent(AgentId("a1")), AgentRecord(AgentId("a2"), "renamed")])
    await store.close()
    again = SqliteStore(path)
    await again.load()
    await again.commit([ForgetFramework(FrameworkId("f9"))])
    await again.close()
    again = SqliteStore(path)
    registry = await again.load()
    await again.close()
    assert registry.master == RECORDS[0]
    assert registry.agents == {"a2": AgentRecord(AgentId("a2"), "renamed")}
    assert list(registry.frameworks.values()) == RECORDS[3:]


async def test_what_was_set_of_a_role_is_there_until_it_is_taken_back(tmp_path: Path) -> None:
    settings = RoleSettings(2500, {"gpus": 100}, {"cpus": 4000}, {"mem": 0}, preemption=False)
    store = SqliteStore(tmp_path / "master.db")
    await store.load()
    await store.commit(
        [
            RoleRecord(Role("ads/prod"), RoleSettings(weight=7)),
            RoleRecord(Role("ads/prod"), settings),
            RoleRecord(Role("web"), RoleSettings(limit={"cpus": 1})),
            ForgetRole(Role("web")),
        ]
    )
    await store.close()
    again = SqliteStore(tmp_path / "master.db")
    registry = await again.load()
    await again.close()
    assert registry.roles == {"ads/prod": RoleRecord(Role("ads/prod"), settings)}


async def refused(path: Path) -> str:
    store = SqliteStore(path)
    try:
        with pytest.raises((InvalidRequest, Unavailable)) as refusal:
            await store.load()
    finally:
        await store.close()
    return str(refusal.value)


async def test_a_corrupt_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    assert str(path) in await refused(path)
    path.write_bytes(b"hello world, this is no database at all" * 100)
    assert "corrupt or not a database" in await refused(path)


async def test_anothers_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    assert "not one of Croupier's" in await refused(path)


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    store = SqliteStore(path)
    await store.load()
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert "version 99" in await refused(path)


@pytest.mark.parametrize(
    ("kind", "body"), [("agent", "{}"), ("role", '{"role": "ads", "settings": 3}')]
)
async def test_a_record_that_cannot_be_read_is_refused(
    tmp_path: Path, kind: str, body: str
) -> None:
    path = tmp_path / "master.db"
    store = SqliteStore(path)
    await store.load()
    await store.close()
    broken = sqlite3.connect(path)
    broken.execute("INSERT INTO records VALUES (?, 'x', ?)", (kind, body))
    broken.commit()
    broken.close()
    assert "cannot be read" in await refused(path)


async def test_a_framework_of_before_there_were_several_roles_keeps_its_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "master.db"
    store = SqliteStore(path)
    await store.load()
    await store.close()
    body = {
        "framework_id": "f1", "name": "old", "role": "ads/prod", "failover_timeout_s": 7.0,
        "removed": False,
    }  # fmt: skip
    old = sqlite3.connect(path)
    old.execute("INSERT INTO records VALUES ('framework', 'f1', ?)", (json.dumps(body),))
    old.commit()
    old.close()
    again = SqliteStore(path)
    registry = await again.load()
    await again.close()
    assert list(registry.frameworks.values()) == [
        FrameworkRecord(FrameworkId("f1"), "old", (Role("ads/prod"),), 7.0)
    ]


async def test_a_second_master_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    first = SqliteStore(path)
    await first.load()
    await first.commit(RECORDS)
    assert "cannot open the store" in await refused(path)
    await first.close()


async def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    assert "cannot open" in await refused(tmp_path / "no" / "such" / "folder" / "master.db")


async def test_a_failed_commit_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    store = SqliteStore(path)
    await store.load()
    connection = store._connection
    assert connection is not None
    await store._in_thread(lambda: connection.execute("PRAGMA max_page_count = 3"))
    many: list[Record] = [AgentRecord(AgentId(f"a{number}"), "x" * 200) for number in range(500)]
    with pytest.raises(Unavailable, match="cannot write the store"):
        await store.commit(many)
    await store.close()
    again = SqliteStore(path)
    assert not (await again.load()).agents
    await again.close()
