"""What a cluster of an earlier build left on disk is read whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import AgentRecord
from croupier.master.core import calls
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.records import MasterRecord
from croupier.master.eventlog.lines import Entry
from croupier.master.store.sqlite import SqliteStore
from croupier.sim.replay.reader import Reader
from tests.upgrade.build import OLD
from tests.upgrade.dump import difference, plain
from tests.upgrade.keeper import TASKS


async def test_an_old_sqlite_store_is_read_whole_and_written_on(tmp_path: Path) -> None:
    path = Path(shutil.copy2(OLD / "master.db", tmp_path))
    old = json.loads((OLD / "registry.json").read_text())
    store = SqliteStore(path)
    registry = await store.load()
    assert difference(old, plain(registry)) == []
    assert registry.master is not None
    await store.commit([MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    await store.close()
    store = SqliteStore(path)
    again = await store.load()
    await store.close()
    old["master"]["epoch"] += 1
    assert difference(old, plain(again)) == []


async def test_an_old_checkpoint_is_read_whole_and_written_on(tmp_path: Path) -> None:
    shutil.copy2(OLD / "checkpoint.log", tmp_path)
    old = json.loads((OLD / "checkpoint.json").read_text())
    checkpoint, loaded = Checkpoint.open(tmp_path)
    assert loaded.damaged == []
    assert len(loaded.records) == len(old)
    (agent,) = {each for each in loaded.records if isinstance(each, AgentRecord) and each.cluster}
    await checkpoint.commit([agent])
    await checkpoint.close()
    checkpoint, again = Checkpoint.open(tmp_path)
    await checkpoint.close()
    told = [{"kind": type(each).__name__, **plain(each)} for each in again.records]
    assert difference(old, told[:-1]) == []
    assert again.records[-1] == agent


def test_an_old_event_log_is_read_whole() -> None:
    """Later builds may decide otherwise, so the decisions are not compared."""
    path = OLD / "events.log"
    lines = [line for _, line in Reader(path).lines(lambda _: None)]
    assert len(lines) == len(path.read_text().splitlines())
    accepted = [
        line.event.call
        for line in lines
        if isinstance(line, Entry)
        and isinstance(line.event, FrameworkCalled)
        and isinstance(line.event.call, calls.Accept)
    ]
    assert sum(len(each.tasks) for each in accepted) == TASKS
