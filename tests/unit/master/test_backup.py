"""Copies of a store: whole, of one commit, and refused if anything about them is wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.master.backup.commands import back_up, restore
from croupier.master.backup.copy_file import Copy, Snapshot, Witness, read_copy, write_copy
from croupier.master.backup.flags import StoreFlags
from croupier.master.backup.restored import UNSEEN_EPOCHS, restored
from croupier.master.config import StoreChoice
from croupier.master.core.records import AgentRecord, MasterRecord, PastTerm, Record
from croupier.master.leadership.lineage import Lineage, Names
from croupier.master.store import SqliteStore
from croupier.master.store.marker import read_marker
from croupier.master.store.rows import encode
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.ids import AgentId
from croupier.model.store_position import StorePosition
from tests.harness.sqlite_stores import commit, opened, read

TERMS = (PastTerm(1, "one", 0), PastTerm(2, "two", 50))
MASTER = MasterRecord("abc", 2, "secret", 0, TERMS)
AGENTS: list[Record] = [AgentRecord(AgentId(f"a{n}"), f"host{n}") for n in range(3)]
NAMES = Names("new", "key", "restored")
PARTS = 60


def write(path: Path, commit: int = 70) -> Path:
    write_copy(path, Snapshot(MASTER, commit, map(encode, [MASTER, *AGENTS])), "sqlite")
    return path


def made(folder: Path, commit: int = 70) -> Copy:
    return read_copy(write(folder / f"copy{commit}", commit))


def flags(path: Path) -> StoreFlags:
    return StoreFlags(store=StoreChoice(path))


def test_a_copy_has_all_records_and_is_private(tmp_path: Path) -> None:
    path = write(tmp_path / "copy")
    copy = read_copy(path)
    assert [*copy.records] == [MASTER, *AGENTS]
    assert str(copy.head) == "cluster abc, commit 70 of epoch 2"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]


def test_every_flipped_byte_and_every_missing_end_is_detected(tmp_path: Path) -> None:
    whole = write(tmp_path / "copy").read_bytes()
    damaged = tmp_path / "damaged"
    for at in range(0, len(whole), 3):
        flipped = bytes([whole[at] ^ (1 << at % 8)])
        for content in (whole[:at] + flipped + whole[at + 1 :], whole[:at]):
            damaged.write_bytes(content)
            with pytest.raises(InvalidRequest) as refusal:
                read_copy(damaged)
            assert len(str(refusal.value).splitlines()) == 1
            assert "secret" not in str(refusal.value)
    damaged.write_bytes(whole + whole)
    with pytest.raises(InvalidRequest, match="goes on after its last line"):
        read_copy(damaged)


def test_what_is_no_copy_or_of_a_newer_release_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "copy")
    for old, new, message in (
        (b'"croupier_backup":1', b'"croupier_backup":2', "newer release .its format is 2"),
        (b'"version":4', b'"version":5', "newer release .its records have version 5"),
        (b'"croupier_backup"', b'"something_else"', "is not a copy that croupier-master backup"),
    ):
        other = tmp_path / "other"
        other.write_bytes(path.read_bytes().replace(old, new))
        with pytest.raises(InvalidRequest, match=message):
            read_copy(other)
    with pytest.raises(Unavailable, match=r"cannot read .*: No such file"):
        read_copy(tmp_path / "none")


def test_a_copy_replaces_no_file_and_leaves_nothing_behind_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "copy")
    before = path.read_bytes()
    with pytest.raises(Conflict, match="copy exists: give another --output"):
        write(path)
    assert path.read_bytes() == before

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match=r"cannot write .*: No space left on device"):
        write(tmp_path / "full")
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]


def test_nothing_is_copied_of_a_missing_empty_or_foreign_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no store"):
        back_up(flags(tmp_path / "none.db"), tmp_path / "copy")
    (tmp_path / "text.db").write_text("no database" * 1000)
    with pytest.raises(InvalidRequest, match=r"cannot read the store .* it is not a database"):
        back_up(flags(tmp_path / "text.db"), tmp_path / "copy")
    asyncio.run(commit(tmp_path / "empty.db", []))
    with pytest.raises(InvalidRequest, match="the store is empty"):
        back_up(flags(tmp_path / "empty.db"), tmp_path / "copy")
    with pytest.raises(InvalidRequest, match="ends with its master"):
        StoreFlags(store=StoreChoice.parse("memory"))
    with pytest.raises(InvalidRequest, match="would not be encrypted"):
        StoreFlags(store=StoreChoice.parse("etcd://elsewhere:2379/croupier"))


async def test_a_copy_under_load_is_of_one_commit(tmp_path: Path) -> None:
    path, copies, commits = tmp_path / "master.db", [], 0
    async with opened(path) as store:

        async def load(number: int) -> None:
            parts = [AgentRecord(AgentId(f"a{n}"), str(number)) for n in range(PARTS)]
            await store.commit([MASTER, *parts])

        await load(commits)
        for number in range(4):
            copy_path = tmp_path / f"{number}"
            copying = asyncio.create_task(asyncio.to_thread(back_up, flags(path), copy_path))
            while not copying.done() or commits < 5 * number:
                commits += 1
                await load(commits)
            await copying
            copies.append(read_copy(copy_path))
    seen: list[int] = []
    for copy in copies:
        # Every record is of the commit that the head names.
        numbers = {int(each.hostname) for each in copy.records if isinstance(each, AgentRecord)}
        assert numbers == {copy.head.commit - 1}
        assert len(copy.records) == PARTS + 1
        seen.extend(numbers)
    assert seen == sorted(seen)


BACKUP = """
import sys
import croupier.master.backup.commands
from croupier.master.__main__ import main
sys.argv = ["croupier-master", "backup", "--store", f"sqlite:{sys.argv[1]}",
            "--output", sys.argv[2]]
print("begins", flush=True)
main()
"""


async def test_a_killed_backup_leaves_a_whole_copy_or_none(tmp_path: Path) -> None:
    path, rng = tmp_path / "master.db", random.Random(3)
    many: list[Record] = [AgentRecord(AgentId(f"a{n}"), "x" * 500) for n in range(8000)]
    await commit(path, [MASTER, *many])
    for number in range(2):
        copy = tmp_path / f"copy{number}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BACKUP, str(path), str(copy), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"begins\n"
        await asyncio.sleep(rng.uniform(0.02, 0.3))
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await asyncio.wait_for(process.communicate(), 30)
        if copy.exists():
            assert len(read_copy(copy).records) == 8001
    # The store is as before.
    assert len((await read(path)).agents) == 8000


def test_a_copy_that_a_witness_does_not_contradict_is_restored_as_it_is(tmp_path: Path) -> None:
    copy = made(tmp_path)
    for position in (StorePosition(0, 1, "one", 50), StorePosition(0, 2, "two", 70)):
        content = restored(copy, [Witness("m", "abc", position)], NAMES, accepts_old=False)
        assert content.records == copy.records
        assert content.position == StorePosition(0, 2, "two", 70)


@pytest.mark.parametrize(
    "position",
    [StorePosition(0, 2, "two", 71), StorePosition(0, 3, "three", 60), StorePosition(1, 3, "x", 9)],
)
def test_an_old_copy_is_refused_or_begins_a_new_generation(
    tmp_path: Path, position: StorePosition
) -> None:
    copy, witness = made(tmp_path), Witness("m", "abc", position)
    with pytest.raises(
        InvalidRequest, match=r"the copy is too old: .*m knows .*--recover old-store"
    ):
        restored(copy, [witness], NAMES, accepts_old=False)
    content = restored(copy, [witness], NAMES, accepts_old=True)
    record = next(each for each in content.records if isinstance(each, MasterRecord))
    assert record.generation == position.generation + 1
    assert record.epoch > position.epoch
    # A master that starts with it accepts agents that have seen the witness' position.
    lineage = Lineage(record, lambda: content.position.commit)
    for seen in (position, replace(position, commit=10_000)):
        proven = replace(seen, proof=lineage._proof(seen))
        assert lineage.judge("abc", seen.epoch, proven).claim.value == "given up"
    assert content.position == replace(lineage.position(), proof="")


def test_an_old_copy_gives_up_epochs_that_agents_may_have_seen(tmp_path: Path) -> None:
    content = restored(made(tmp_path), [], NAMES, accepts_old=True)
    assert content.position.epoch == 2 + UNSEEN_EPOCHS + 1
    assert content.position.generation == 1


def test_a_copy_of_another_cluster_is_refused(tmp_path: Path) -> None:
    witness = Witness("the marker", "xyz", StorePosition(0, 1, "one", 1))
    with pytest.raises(InvalidRequest, match="is of cluster abc, and the marker is of cluster xyz"):
        restored(made(tmp_path), [witness], NAMES, accepts_old=True)


async def test_restore_asks_before_it_replaces_and_keeps_what_was_there(tmp_path: Path) -> None:
    path, copy = tmp_path / "master.db", tmp_path / "copy"
    await commit(path, [MASTER, *AGENTS])
    back_up(flags(path), copy)
    await commit(path, [AgentRecord(AgentId("later"), "h")])

    def put_back(**options: bool) -> list[str]:
        given = {"accepts_old": False, "replaces": False, "dry_run": False} | options
        return restore(flags(path), copy, **given)

    with pytest.raises(InvalidRequest, match=r"too old: it ends with commit 1 .* knows commit 2"):
        put_back()
    with pytest.raises(Conflict, match=r"there is a store at .*: give --replace"):
        put_back(accepts_old=True)
    before = path.read_bytes()
    assert put_back(accepts_old=True, replaces=True, dry_run=True)[0].startswith("would restore 4")
    assert path.read_bytes() == before
    assert put_back(accepts_old=True, replaces=True)[0].startswith("restored 4 records")
    assert (tmp_path / "master.db.replaced").read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    store = SqliteStore(path)
    registry = await store.load()
    assert registry.master is not None
    assert (registry.master.generation, store.commits, len(registry.agents)) == (1, 2, 3)
    marker = read_marker(path)
    assert marker is not None
    assert marker.position == StorePosition(1, 3 + UNSEEN_EPOCHS, registry.master.terms[-1].name, 2)
    with pytest.raises(Conflict, match="a master is running with the store"):
        put_back(accepts_old=True, replaces=True)
    await store.close()
    path.unlink()
    # The marker knows the new generation, which the copy lacks.
    with pytest.raises(InvalidRequest, match=r"too old: .*master\.db\.cluster knows"):
        put_back()


async def test_a_master_ends_when_another_process_writes_to_its_store(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    async with opened(path) as store:
        await store.commit([MASTER])
        (tmp_path / "master.db.lock").unlink()
        await commit(path, AGENTS)
        with pytest.raises(Unavailable, match="another process has written to the store"):
            await store.commit(AGENTS)
