"""The file that keeps the state of an application, and its lock."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from croupier.apps.batch.machine import NodeState, Row
from croupier.apps.batch.state import opened as open_batch
from croupier.apps.controller.store import StateError, Store, locked
from croupier.apps.cron.core.board import Stored
from croupier.apps.cron.core.job import KeepCursor, KeepRun, RunState, ScheduledRun
from croupier.apps.cron.state_file import opened as open_cron
from croupier.apps.service.state_dir import StateDir
from croupier.model.errors import Conflict, Unavailable
from tests.upgrade.build import Build, extract_old_build


class OwnStore(Store):
    command, application, facts = "croupier test", 7, "fact"
    tables = "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT);"


def test_other_files_are_refused_and_unchanged(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no database " * 1000)
    with pytest.raises(StateError, match=r"is damaged .*: restore it, or move it away"):
        OwnStore(text)
    assert text.read_bytes() == b"no database " * 1000
    other = tmp_path / "other"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StateError, match="is no state of croupier test"):
        OwnStore(other)
    newer = tmp_path / "newer"
    with OwnStore(newer) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StateError, match="of a newer release"):
        OwnStore(newer)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with OwnStore(path) as store:
        store.keep(**{f"t{n}": "x" * 50 for n in range(1000)})
    content = bytearray(path.read_bytes())
    content[4096:20000] = b"\xff" * (20000 - 4096)
    path.write_bytes(content)
    with pytest.raises(StateError, match="damaged") as caught:
        OwnStore(path)
    assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot open the state"):
        OwnStore(tmp_path / "file" / "s")
    with pytest.raises(Unavailable, match="cannot make"), locked(tmp_path / "file" / "x", "it"):
        pass


def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    with OwnStore(tmp_path / "s") as store:
        store.keep(a="1")

        def interrupted() -> None:
            with store.writing() as connection:
                store.put(connection, a="2")
                raise KeyError

        with pytest.raises(KeyError):
            interrupted()
        assert store.fact("a") == "1"


def test_a_second_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.lock"
    with (
        locked(path, "the state"),
        pytest.raises(Conflict, match=r"in use by another copy \(process \d+\)"),
        locked(path, "the state"),
    ):
        pass
    with locked(path, "the state"):
        pass


def test_a_full_disk_does_not_prevent_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    path = tmp_path / "x.lock"
    with (
        locked(path, "the state"),
        pytest.raises(Conflict, match=r"in use by another copy$"),
        locked(path, "the state"),
    ):
        pass


# States of applications that an earlier release wrote are read as they are, and the other way.


WRITE = """
from pathlib import Path
from croupier.ctl.batch.machine import NodeState
from croupier.ctl.batch.state import BatchState, Row
from croupier.ctl.cron.core.effects import KeepCursor, KeepRun
from croupier.ctl.cron.core.run import Run, RunState
from croupier.ctl.cron.state_file import opened
from croupier.ctl.service.file import read_service_file
from croupier.ctl.service.core.rules import Version
from croupier.ctl.service.core.state import Service
from croupier.ctl.service.state_dir import Saved, StateDir
with BatchState(Path("b")) as state:
    state.begin("d1")
    state.set_framework("F1")
    state.save([Row("a", NodeState.ACTIVE, 3, 2, 1, "A1", "exit code 1", "last")])
with opened(Path("c"), may_create=True) as state:
    state.keep_fact("framework_id", "F2")
    run = Run("a", 60, RunState.RUNNING, 2, 1, started=6.5)
    state.commit([KeepCursor("a", 60, "@daily UTC"), KeepRun(run)], {})
file = Path("web.toml")
file.write_text('name = "web"\\ninstances = 2\\n[task]\\nshell = "sleep 9"\\n')
read = read_service_file(file)
version = Version(1, read.digest, read.health, read.content)
directory = StateDir(Path("."), "web")
directory.make()
service = Service.create("web", "t0", read.rules, version, 5.0)
directory.save(Saved(service, "ads", "F3"))
"""
READ = """
from pathlib import Path
from croupier.ctl.batch.state import BatchState
from croupier.ctl.cron.state_file import opened
with BatchState(Path("b")) as state:
    print(state.run().framework_id, [row.name for row in state.rows()])
with opened(Path("c"), may_create=True) as state:
    print(state.fact("framework_id"), [run.task_id for run in state.history(None, 9)])
"""
ROW = Row("a", NodeState.ACTIVE, 3, 2, 1, "A1", "exit code 1", "last")
RUN = ScheduledRun("a", 60, RunState.RUNNING, 2, 1, started=6.5)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return extract_old_build(tmp_path_factory.mktemp("old"))


def old(build: Build, directory: Path, program: str) -> str:
    command = [sys.executable, "-c", program]
    how = {"env": build.environment, "cwd": directory, "timeout": 60}
    return subprocess.run(command, **how, capture_output=True, text=True, check=True).stdout  # type: ignore[call-overload, no-any-return]


def test_what_the_earlier_release_wrote_is_read(build: Build, tmp_path: Path) -> None:
    old(build, tmp_path, WRITE)
    with open_batch(tmp_path / "b") as batch:
        assert [batch.fact(each) for each in ("digest", "framework_id", "is_complete")] == [
            "d1", "F1", ""
        ]  # fmt: skip
        assert batch.tasks() == [ROW]
    with open_cron(tmp_path / "c", may_create=True) as cron:
        assert cron.fact("framework_id") == "F2"
        assert cron.load() == {"a": Stored(60, "@daily UTC", (RUN,))}
    saved = StateDir(tmp_path, "web").load()
    assert saved is not None
    assert (saved.framework_id, saved.role, saved.rules.instances) == ("F3", "ads", 2)


def test_the_earlier_release_reads_what_this_one_writes(build: Build, tmp_path: Path) -> None:
    with open_batch(tmp_path / "b") as batch:
        batch.keep(framework_id="F1")
        batch.save([ROW])
    with open_cron(tmp_path / "c", may_create=True) as cron:
        cron.keep(framework_id="F2")
        cron.commit([KeepCursor("a", 60, "@daily UTC"), KeepRun(RUN)], {})
    said = old(build, tmp_path, READ)
    assert said.splitlines() == ["F1 ['a']", "F2 ['a.19700101T000100Z.2']"]
