"""Files of a cluster of an earlier build are read completely, converted once, and refused by it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import AgentRecord, Record, forgets, place_of
from croupier.master.backup.copy_file import read_copy
from croupier.master.core import calls
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.records import MasterRecord
from croupier.master.eventlog.lines import LogEntry
from croupier.sim.replay.reader import Reader
from tests.harness.replayed import look
from tests.harness.sqlite_stores import commit, read
from tests.upgrade.build import OLD, extract_old_build
from tests.upgrade.plain_records import difference, plain

# The number of tasks of the framework in the cluster of the old build.
TASKS = 20


def plain_records(records: list[Record]) -> list[dict[str, Any]]:
    return [{"kind": type(each).__name__, **plain(each)} for each in records]


async def test_an_old_sqlite_store_is_read_completely_and_extended(tmp_path: Path) -> None:
    path = Path(shutil.copy2(OLD / "master.db", tmp_path))
    old = json.loads((OLD / "registry.json").read_text())
    registry = await read(path)
    assert difference(old, plain(registry)) == []
    assert registry.master is not None
    await commit(path, [MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    old["master"]["epoch"] += 1
    assert difference(without_terms(old), plain(await read(path))) == []


def without_terms(registry: dict[str, Any]) -> dict[str, Any]:
    """Return a registry whose master's record has only the cluster and the epoch."""
    kept = {"cluster", "epoch"}
    return {**registry, "master": {k: v for k, v in registry["master"].items() if k in kept}}


async def test_an_old_checkpoint_is_read_completely_and_extended(tmp_path: Path) -> None:
    shutil.copy2(OLD / "checkpoint.log", tmp_path)
    old = json.loads((OLD / "checkpoint.json").read_text())
    checkpoint, loaded = Checkpoint.open(tmp_path)
    assert loaded.damaged == []
    assert difference(old, plain_records(loaded.records)) == []
    *_, agent = (each for each in loaded.records if isinstance(each, AgentRecord) and each.cluster)
    await checkpoint.commit([agent])
    await checkpoint.close()
    checkpoint, again = Checkpoint.open(tmp_path)
    await checkpoint.close()
    assert current(again.records) == current([*loaded.records, agent])


def current(records: list[Record]) -> dict[str, dict[str, Record]]:
    """Return the records that no later one has replaced, by subject and part."""
    found: dict[str, dict[str, Record]] = {}
    for each in records:
        subject, part = place_of(each)
        if forgets(each):
            found.pop(subject, None)
        else:
            found.setdefault(subject, {})[part] = each
    return found


def test_an_old_event_log_is_read_completely() -> None:
    path = OLD / "events.log"
    lines = [line for _, line in Reader(path).lines(lambda _: None)]
    assert len(lines) == len(path.read_text().splitlines())
    accepted = [
        line.event.call
        for line in lines
        if isinstance(line, LogEntry)
        and isinstance(line.event, FrameworkCalled)
        and isinstance(line.event.call, calls.Accept)
    ]
    assert sum(len(each.tasks) for each in accepted) == TASKS


def test_the_event_log_of_the_last_build_replays_to_the_same_decisions() -> None:
    """Remove this test only with a change of decisions: older logs can then not be verified."""
    assert look(OLD / "events.log", verify=True).digest is not None


async def test_an_old_copy_is_read(tmp_path: Path) -> None:
    old = json.loads((OLD / "registry.json").read_text())
    copy = read_copy(OLD / "copy.croupier")
    assert {each.cluster for each in (copy.head, copy.master)} == {old["master"]["cluster"]}
    assert len(copy.records) == 1 + sum(len(old[kind]) for kind in old.keys() - {"master"})


async def test_the_old_build_refuses_what_was_converted_and_changes_nothing(tmp_path: Path) -> None:
    shutil.copy2(OLD / "master.db", tmp_path)
    shutil.copy2(OLD / "checkpoint.log", tmp_path)
    await commit(tmp_path / "master.db")
    checkpoint, _ = Checkpoint.open(tmp_path)
    await checkpoint.close()
    build = extract_old_build(tmp_path / "build")
    kept = ("master.db", "checkpoint.log", "checkpoint.mark")
    before = [(tmp_path / name).read_bytes() for name in kept]
    program = (
        "import asyncio, pathlib, sys; from croupier.master.store.sqlite import SqliteStore as S\n"
        "from croupier.agent.checkpoint import Checkpoint as C; path = pathlib.Path(sys.argv[1])\n"
        "for open in (lambda: asyncio.run(S(path / 'master.db').load()), lambda: C.open(path)):\n"
        "    try:\n"
        "        open()\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=build.environment, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "master.db is of version 4; this master knows only 3: use the newer release" in told
    assert "checkpoint.log is of format 2; this agent reads only 1: use the newer release" in told
    assert [(tmp_path / name).read_bytes() for name in kept] == before
