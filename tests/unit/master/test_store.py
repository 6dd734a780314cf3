"""The SQLite store: committed records are durable, and unreadable files are refused."""

from __future__ import annotations

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
from croupier.master.store.rows import checksum
from croupier.master.store.sqlite_table import APPLICATION_ID
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.sqlite_stores import commit, opened, read, refusal

RECORDS: list[Record] = [
    MasterRecord("abc", 3),
    AgentRecord(AgentId("a1"), "host1"),
    AgentRecord(AgentId("a2"), "host2"),
    FrameworkRecord(FrameworkId("f1"), "name", (Role("ads"), Role("web")), 600.0),
    FrameworkRecord(FrameworkId("f2"), "gone", (Role("*"),), 1.0, removed=True),
]


async def test_committed_records_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    renamed = AgentRecord(AgentId("a2"), "renamed")
    await commit(path, RECORDS, [ForgetAgent(AgentId("a1")), renamed])
    await commit(path, [ForgetFramework(FrameworkId("f9"))])
    registry = await read(path)
    assert registry.master == RECORDS[0]
    assert registry.agents == {"a2": renamed}
    assert list(registry.frameworks.values()) == RECORDS[3:]


async def test_settings_of_a_role_are_kept_until_they_are_reset(tmp_path: Path) -> None:
    settings = RoleSettings(2500, {"gpus": 100}, {"cpus": 4000}, {"mem": 0}, preemption=False)
    path = tmp_path / "master.db"
    records: list[Record] = [
        RoleRecord(Role("ads/prod"), RoleSettings(weight=7)),
        RoleRecord(Role("ads/prod"), settings),
        RoleRecord(Role("web"), RoleSettings(limit={"cpus": 1})),
        ForgetRole(Role("web")),
    ]
    await commit(path, records)
    assert (await read(path)).roles == {"ads/prod": RoleRecord(Role("ads/prod"), settings)}


async def test_a_corrupt_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    assert str(path) in await refusal(path)
    path.write_bytes(b"hello world, this is no database at all" * 100)
    assert "corrupt or not a database" in await refusal(path)


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    assert "not one of Croupier's" in await refusal(path)


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await commit(path)
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    said = await refusal(path)
    assert "is of version 99; this master knows only 4: use the newer release" in said


@pytest.mark.parametrize(("kind", "body"), [("agent", b"\xff"), ("role", b"\x12\x02\x08\x00")])
async def test_a_record_that_cannot_be_read_is_refused(
    tmp_path: Path, kind: str, body: bytes
) -> None:
    path = tmp_path / "master.db"
    await commit(path)
    broken = sqlite3.connect(path)
    crc = checksum(kind.encode(), b"x", body)
    broken.execute("INSERT INTO records VALUES (?, 'x', ?, ?)", (kind, body, crc))
    broken.commit()
    broken.close()
    assert "cannot be read" in await refusal(path)


def write_old(path: Path, *rows: tuple[str, str, str]) -> None:
    """Write a file as release 0.1 did."""
    old = sqlite3.connect(path)
    old.execute(
        "CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,"
        " crc INTEGER NOT NULL, PRIMARY KEY (kind, id))"
    )
    for row in (*rows, ("head", "head", '{"commits": 7}')):
        crc = checksum(*(part.encode() for part in row))
        old.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (*row, crc))
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute("PRAGMA user_version = 3")
    old.commit()
    old.close()


async def test_an_old_file_is_converted_and_keeps_the_number_of_its_commits(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    write_old(path, ("agent", "a1", '{"agent_id":"a1","hostname":"h","authenticated":true}'))
    for _ in range(2):
        registry = await read(path)
        assert registry.agents == {"a1": AgentRecord(AgentId("a1"), "h", is_authenticated=True)}
        async with opened(path) as store:
            assert store.commits == 7
    now = sqlite3.connect(path)
    assert now.execute("PRAGMA user_version").fetchone() == (4,)
    now.close()


@pytest.mark.parametrize("row", [("planet", "x", "{}"), ("agent", "a", '{"agent_id":"secret"}')])
async def test_a_failed_conversion_leaves_the_file_unchanged(
    tmp_path: Path, row: tuple[str, str, str]
) -> None:
    path = tmp_path / "master.db"
    write_old(path, row)
    said = await refusal(path)
    assert f"holds a record, '{row[0]} {row[1]}', that cannot be read" in said
    assert "secret" not in said
    old = sqlite3.connect(path)
    assert old.execute("PRAGMA user_version").fetchone() == (3,)
    old.close()


async def test_the_file_is_private_and_synced(tmp_path: Path) -> None:
    async with opened(tmp_path / "master.db") as store:
        await store.commit(RECORDS)
        connection = store._connection
        assert connection is not None
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        files = list(tmp_path.iterdir())
        assert len(files) >= 2
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_a_corrupt_page_is_found_on_load(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await commit(path, [AgentRecord(AgentId(f"a{n}"), "x" * 300) for n in range(1000)])
    raw = bytearray(path.read_bytes())
    # Overwrite half a page in the middle.
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 2048] = bytes(2048)
    path.write_bytes(raw)
    error = await refusal(path)
    assert str(path) in error
    assert "restore it from a backup" in error


async def test_the_last_record_of_an_id_wins(tmp_path: Path) -> None:
    path, a1, a2 = tmp_path / "master.db", AgentId("a1"), AgentId("a2")
    await commit(
        path,
        [AgentRecord(a1, "x"), ForgetAgent(a1), AgentRecord(a1, "y")],
        [ForgetAgent(a1), AgentRecord(a2, "z"), ForgetAgent(a2)],
    )
    assert not (await read(path)).agents


async def test_a_second_master_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    async with opened(path) as first:
        await first.commit(RECORDS)
        assert "cannot open the store" in await refusal(path)


async def test_an_impossible_path_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "no" / "such" / "folder"
    said = await refusal(folder / "master.db")
    assert said.endswith(f"{folder}/master.db: there is no directory {folder}")


async def test_a_failed_commit_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    many: list[Record] = [AgentRecord(AgentId(f"a{number}"), "x" * 200) for number in range(500)]
    async with opened(path) as store:
        connection = store._connection
        assert connection is not None
        await store._thread.run(lambda: connection.execute("PRAGMA max_page_count = 3"))
        with pytest.raises(Unavailable, match="cannot write the store"):
            await store.commit(many)
    assert not (await read(path)).agents
