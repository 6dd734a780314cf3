"""States of applications that an earlier release wrote are read as they are, and the other way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from croupier.apps.batch.machine import NodeState, Row
from croupier.apps.batch.state import opened as open_batch
from croupier.apps.cron.core.board import Stored
from croupier.apps.cron.core.job import KeepCursor, KeepRun, RunState, ScheduledRun
from croupier.apps.cron.state_file import opened as open_cron
from croupier.apps.service.state_dir import StateDir
from tests.upgrade.build import Build, extract_old_build

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
