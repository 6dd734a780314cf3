"""Damage to a store: no altered record is accepted, and no error quotes a record."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from croupier.master.core.records import (
    AgentRecord,
    FrameworkRecord,
    MasterRecord,
    PastTerm,
    Record,
    TaskRecord,
)
from croupier.master.core.registry import Registry
from croupier.master.store.marker import marker_path
from croupier.master.store.rows import checksum
from croupier.master.store.wal import damage
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.sqlite_stores import commit, opened, read, refusal

SECRET = "hunter2"
# By hand: FLIPS=1500 python -m pytest tests/unit/master/test_store_damage.py
FLIPS = int(os.environ.get("FLIPS", "60"))


def task(number: int) -> TaskRecord:
    info = TaskInfo(
        TaskId(f"task-{number}"),
        Command(shell=f"mysql --password={SECRET}-{number}"),
        Resources.parse("cpus:1;mem:64MB"),
    )
    return TaskRecord(FrameworkId("f1"), info, AgentId(f"agent-{number % 7}"), Role("*"), "client")


def records(number: int) -> list[Record]:
    agents = [AgentRecord(AgentId(f"agent-{n}"), f"host{n}") for n in range(7)]
    framework = FrameworkRecord(FrameworkId("f1"), "n", (Role("*"),), 60.0, client_id="client")
    master = MasterRecord("c", 3, "secret", 0, (PastTerm(3, "t", 0),))
    return [master, framework, *agents, *map(task, range(number))]


async def written(path: Path, number: int = 40) -> Registry:
    await commit(path, *([record] for record in records(number)))
    return await read(path)


async def refused(path: Path) -> str:
    said = await refusal(path)
    assert SECRET not in said
    return said


async def test_no_flipped_bit_changes_a_record(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    expected = await written(path)
    whole = path.read_bytes()
    rng = random.Random(7)
    errors: list[str] = []
    for _ in range(FLIPS):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
        for beside in ("master.db-wal", "master.db-shm"):
            (tmp_path / beside).unlink(missing_ok=True)
        try:
            found = await read(path)
        except CroupierError as error:
            errors.append(str(error))
        else:
            assert found == expected
    assert len(errors) > FLIPS / 4
    assert not [error for error in errors if SECRET in error]


async def killed(folder: Path, number: int) -> tuple[Path, Path]:
    """Return a database and its log as a killed master leaves them after `number` tasks."""
    path = folder / "live" / "master.db"
    path.parent.mkdir()
    async with opened(path) as store:
        for record in records(number):
            await store.commit([record])
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.parent / name, folder / name)
    return folder / "master.db", folder / "master.db-wal"


async def test_a_flipped_bit_in_the_log_loses_no_commit_but_the_last(tmp_path: Path) -> None:
    copy, log = await killed(tmp_path, 30)
    whole = log.read_bytes()
    expected = await read_copy(copy, log, whole)
    rng = random.Random(11)
    errors: list[str] = []
    for _ in range(FLIPS // 2):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        try:
            found = await read_copy(copy, log, bytes(raw))
        except CroupierError as error:
            errors.append(str(error))
        else:
            # This looks like a crash while the last commit was being written.
            assert len(found.tasks) >= len(expected.tasks) - 1
    assert len(errors) > FLIPS / 3
    assert not [error for error in errors if SECRET in error]


async def read_copy(copy: Path, log: Path, raw: bytes) -> Registry:
    base = copy.with_suffix(".base")
    if not base.exists():
        shutil.copy(copy, base)
    shutil.copy(base, copy)
    log.write_bytes(raw)
    return await read(copy)


async def test_a_damaged_log_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    copy, log = await killed(tmp_path, 5)
    for at in (20, 3000):
        raw = bytearray(log.read_bytes())
        raw[at] ^= 1
        log.write_bytes(raw)
        said = await refused(copy)
        assert "has lost commits: in master.db-wal" in said
        assert log.read_bytes() == raw
        raw[at] ^= 1
        log.write_bytes(raw)
    assert len((await read(copy)).tasks) == 5


@pytest.mark.parametrize("size", [512, 4096])
def test_an_intact_log_is_accepted_at_every_page_size(tmp_path: Path, size: int) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {size}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    log = tmp_path / "x.db-wal"
    rng = random.Random(3)
    for _ in range(30):
        connection.execute("INSERT INTO t VALUES (?)", (rng.randbytes(rng.randrange(2000)),))
        assert damage(log) == ""
    # The log restarts, followed by the rest of the old log.
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.execute("INSERT INTO t VALUES (1)")
    assert damage(log) == ""
    raw = log.read_bytes()
    for cut in (10, 32, 40, len(raw) - size // 2):
        # As a killed writer leaves it.
        log.with_suffix(".cut").write_bytes(raw[:cut])
        assert damage(log.with_suffix(".cut")) == ""
    connection.close()


async def test_invalid_text_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await written(path, 3)
    raw = path.read_bytes()
    at = raw.index(f"password={SECRET}-2".encode())
    path.write_bytes(raw[:at] + b"\xff" + raw[at + 1 :])
    assert "checksum of 'task f1/task-2'" in await refused(path)


async def test_a_kind_of_a_newer_release_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await written(path, 1)
    newer = sqlite3.connect(path)
    query = "SELECT id, body FROM records WHERE kind = 'framework'"
    ((row_id, body),) = newer.execute(query).fetchall()
    crc = checksum(b"planet", row_id.encode(), body)
    newer.execute("UPDATE records SET kind = 'planet', crc = ? WHERE kind = 'framework'", (crc,))
    newer.commit()
    newer.close()
    said = await refused(path)
    assert "is of a newer release (records of the kind 'planet' are not known" in said
    assert "damaged" not in said


async def test_a_read_only_file_system_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with errors becomes read-only; SQLite reports that locking failed."""
    path = tmp_path / "master.db"
    await written(path, 1)
    flags = os.statvfs(tmp_path).f_flag | os.ST_RDONLY

    class ReadOnly:
        f_flag = flags

    monkeypatch.setattr(os, "statvfs", lambda _: ReadOnly())
    said = await refused(path)
    assert said.endswith("the file system is read-only")


async def test_a_database_of_another_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await written(path, 1)
    other = tmp_path / "other"
    other.mkdir()
    master = MasterRecord("d", 1, "secret", 0, (PastTerm(1, "u", 0),))
    await commit(other / "master.db", [master])
    shutil.copy(other / "master.db", path)
    assert "is of cluster d, and" in await refused(path)
    marker_path(path).unlink()
    # A database of an earlier release has no marker; the next term writes one.
    assert (await read(path)).master is not None


async def test_a_damaged_marker_is_refused_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await written(path, 1)
    marker = marker_path(path)
    raw = bytearray(marker.read_bytes())
    raw[20] ^= 1
    marker.write_bytes(raw)
    with pytest.raises(InvalidRequest, match="cluster is damaged"):
        await read(path)
    marker.unlink()
    await read(path)


async def test_commits_are_counted_over_the_life_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    for round_ in range(3):
        async with opened(path) as store:
            assert store.commits == 2 * round_
            for number in range(2):
                await store.commit([task(number)])


async def test_a_failed_commit_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    async with opened(path) as store:
        await store.commit([task(1)])
        path.rename(tmp_path / "away")
        with pytest.raises(Unavailable, match="was removed or replaced"):
            await store.commit([task(2)])
        assert store.commits == 1
        with pytest.raises(Unavailable, match="was removed or replaced"):
            await store.check()
