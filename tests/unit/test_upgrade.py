"""Files of clusters of earlier builds are read completely."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import AgentRecord, Record
from croupier.agent.record_lines import CHECKPOINT, body_in, body_of, read_lines
from croupier.master.core import calls
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.records import MasterRecord
from croupier.master.eventlog.lines import Entry
from croupier.master.eventlog.tags import EVENT_LOG
from croupier.master.store.records_json import decode, encode
from croupier.master.store.sqlite import SqliteStore
from croupier.sim.replay.reader import Reader
from tests.harness.replayed import look
from tests.upgrade.build import BUILDS, OLD
from tests.upgrade.dump import difference, plain

# The number of tasks of the framework in `tests.upgrade.make`.
TASKS = 20

EACH_BUILD = pytest.mark.parametrize("build", BUILDS, ids=lambda each: each.name)


def master_tags(owner: type) -> Mapping[str, str]:
    return EVENT_LOG.names(owner).tags


def agent_tags(owner: type) -> Mapping[str, str]:
    return CHECKPOINT.names(owner).tags


def plain_records(records: list[Record]) -> list[dict[str, Any]]:
    return [{"kind": CHECKPOINT.tag(type(each)), **plain(each, agent_tags)} for each in records]


@EACH_BUILD
async def test_an_old_sqlite_store_is_read_completely_and_extended(
    tmp_path: Path, build: Path
) -> None:
    path = Path(shutil.copy2(build / "master.db", tmp_path))
    old = json.loads((build / "registry.json").read_text())
    store = SqliteStore(path)
    registry = await store.load()
    assert difference(old, plain(registry, master_tags)) == []
    assert registry.master is not None
    await store.commit([MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    await store.close()
    store = SqliteStore(path)
    again = await store.load()
    await store.close()
    old["master"]["epoch"] += 1
    assert difference(without_terms(old), plain(again, master_tags)) == []


def without_terms(registry: dict[str, Any]) -> dict[str, Any]:
    """Return a registry whose master's record has only the cluster and the epoch."""
    kept = {"cluster", "epoch"}
    return {**registry, "master": {k: v for k, v in registry["master"].items() if k in kept}}


@EACH_BUILD
async def test_an_old_checkpoint_is_read_completely_and_extended(
    tmp_path: Path, build: Path
) -> None:
    shutil.copy2(build / "checkpoint.log", tmp_path)
    old = json.loads((build / "checkpoint.json").read_text())
    checkpoint, loaded = Checkpoint.open(tmp_path)
    assert loaded.damaged == []
    assert len(loaded.records) == len(old)
    *_, agent = (each for each in loaded.records if isinstance(each, AgentRecord) and each.cluster)
    await checkpoint.commit([agent])
    await checkpoint.close()
    checkpoint, again = Checkpoint.open(tmp_path)
    await checkpoint.close()
    assert difference(old, plain_records(again.records)[:-1]) == []
    assert again.records[-1] == agent


@EACH_BUILD
def test_an_old_event_log_is_read_completely(build: Path) -> None:
    path = build / "events.log"
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


def test_the_event_log_of_the_last_build_replays_to_the_same_decisions() -> None:
    """Remove this test only with a change of decisions: older logs can then not be verified."""
    assert look(OLD / "events.log", verify=True).verification.digest is not None


def test_rows_and_checkpoints_of_the_last_build_are_written_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    """Tags and defaults have not changed, so decoding and encoding changes no byte."""
    found = read_lines((OLD / "checkpoint.log").read_bytes()).found
    data = (OLD / "checkpoint.log").read_bytes()
    for each in found:
        assert body_of(each.record) == body_in(data[each.begin : each.end])
    with sqlite3.connect(shutil.copy2(OLD / "master.db", tmp_path)) as database:
        rows = database.execute(
            "SELECT kind, id, body FROM records WHERE kind != 'head'"
        ).fetchall()
    database.close()
    assert len(rows) > TASKS
    for kind, row_id, body in rows:
        assert encode(decode(kind, body)) == (kind, row_id, body)
