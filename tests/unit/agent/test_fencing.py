"""Fencing: the agent obeys no older master, and records the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.agent.checkpoint import Checkpoint as Log
from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint
from croupier.agent.core.events import Now
from croupier.agent.core.records import (
    AgentRecord,
    FrameworkRecord,
    PositionRecord,
    Record,
    TaskRecord,
)
from croupier.agent.core.recovery import forget_masters, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.fencing import NewestMaster
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.store_position import MAX_EPOCH, StorePosition
from croupier.model.task import Command, TaskInfo
from croupier.v1 import agent_pb2 as pb
from croupier.wire.store_position import position_to_wire

TOTAL = Resources.parse("cpus:4")


def sent(
    epoch: int,
    commit: int | None = None,
    *,
    first: int = 0,
    term: str = "",
    generation: int = 0,
    cluster: str = "c",
) -> pb.AgentServiceConnectResponse:
    message = pb.AgentServiceConnectResponse(
        master_epoch=epoch, cluster=cluster, first_commit=first
    )
    if commit is not None:
        position = StorePosition(generation, epoch, term or f"t{epoch}", commit, "00")
        message.position.CopyFrom(position_to_wire(position))
    return message


def test_a_newer_master_and_a_newer_commit_are_admitted_as_new() -> None:
    newest = NewestMaster()
    assert newest.admit(sent(3, 10))
    assert not newest.admit(sent(3, 10))
    assert not newest.admit(sent(3, 9))
    assert newest.admit(sent(3, 11))
    assert newest.admit(sent(5, 20, first=11))
    assert newest.position is not None
    assert (newest.cluster, newest.epoch, newest.position.commit) == ("c", 5, 20)


@pytest.mark.parametrize(
    ("message", "error", "why"),
    [
        (sent(4, 30), Unavailable, "has epoch 4"),
        (sent(6, 12, first=11), Unavailable, "old copy"),
        (sent(5, 30, term="u"), Unavailable, "old copy"),
        (sent(6), Unavailable, "does not send the position"),
        (sent(6, 99, first=20, cluster="d"), Conflict, "--recover=cleanup"),
        (sent(2**32 + 1, 99, first=20), InvalidRequest, "not a possible epoch"),
        (sent(2**64 - 1), InvalidRequest, "not a possible epoch"),
        (sent(6, 2**60, first=20), InvalidRequest, "not a possible number of commits"),
    ],
)
def test_a_rejected_master_changes_nothing(
    message: pb.AgentServiceConnectResponse, error: type[Exception], why: str
) -> None:
    known = StorePosition(0, 5, "t5", 20)
    newest = NewestMaster("c", 5, known)
    with pytest.raises(error, match=why):
        newest.admit(message)
    assert (newest.cluster, newest.epoch, newest.position) == ("c", 5, known)


def test_a_store_of_a_newer_generation_is_followed() -> None:
    newest = NewestMaster("c", 5, StorePosition(0, 5, "t5", 20))
    assert newest.admit(sent(6, 12, first=11, generation=1))
    with pytest.raises(Unavailable, match="old copy"):
        newest.admit(sent(7, 30, first=20))


def test_a_master_that_has_not_registered_the_agent_is_not_kept() -> None:
    """An older store may count more commits: only the agent's position shows its age."""
    known = StorePosition(0, 5, "t5", 20)
    newest = NewestMaster("c", 5, known)
    assert not newest.admit(sent(6, 40, first=30), is_registered=False)
    assert newest.position == known
    assert newest.admit(sent(6, 40, first=30))


def test_masters_of_older_releases_are_compared_by_epoch_alone() -> None:
    newest = NewestMaster()
    assert newest.admit(sent(3))
    assert newest.admit(sent(4))
    assert newest.admit(sent(5, 1))


def test_a_position_is_recorded_with_a_launch_and_not_alone() -> None:
    state = AgentState.of(TOTAL, AgentId("A1"))
    for commit in (7, 8, 9):
        position = StorePosition(0, 3, "t", commit)
        effects = step(state, ev.MasterSeen(3, "c", position), Now(0, 0))
        # The epoch has a record of its own; later commits of the same term have none.
        assert bool(effects) == (commit == 7)
    info = TaskInfo(TaskId("t1"), Command(("true",)), Resources.parse("cpus:1"))
    effects = step(state, LaunchTask(FrameworkId("F"), info, DEFAULT_ROLE), Now(0, 0))
    kept = [effect.record for effect in effects if isinstance(effect, Checkpoint)]
    assert kept[0] == PositionRecord(StorePosition(0, 3, "t", 9))
    assert isinstance(kept[1], TaskRecord)
    assert not [
        effect
        for effect in step(state, ev.Started((FrameworkId("F"), TaskId("t1")), 7), Now(0, 0))
        if isinstance(effect, Checkpoint) and isinstance(effect.record, PositionRecord)
    ]


async def test_the_newest_position_of_a_batch_is_written_first(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path)
    positions = [PositionRecord(StorePosition(0, 3, "t", commit, "ab")) for commit in (1, 2, 3)]
    agent = AgentRecord(AgentId("A1"), "boot", 3, cluster="c")
    log.defer([positions[0]])
    await log.commit([positions[1], agent, positions[2]])
    await log.close()
    log, loaded = Log.open(tmp_path)
    await log.close()
    assert loaded.records == [positions[2], agent]
    state = recovered(loaded.records, TOTAL)
    assert state.position == positions[2].position


def test_the_epoch_is_recovered_from_the_position() -> None:
    position = StorePosition(0, 6, "t", 9)
    assert recovered([PositionRecord(position)], TOTAL).master_epoch == 6


def test_a_false_master_is_forgotten_for_good() -> None:
    position = StorePosition(7, MAX_EPOCH, "false", 9, "00")
    records: list[Record] = [
        AgentRecord(AgentId("a1"), "", MAX_EPOCH, cluster="c"),
        PositionRecord(position),
        FrameworkRecord(FrameworkId("F1"), 2**31),
    ]
    state = recovered(records, TOTAL)
    true = sent(3, 10, first=5)
    with pytest.raises(Unavailable, match="--recover=forget-master"):
        NewestMaster(state.cluster, state.master_epoch, state.position).admit(true)
    forgotten = forget_masters(state)
    for known in (state, recovered([*records, *forgotten], TOTAL)):
        assert (known.agent_id, known.cluster, known.master_epoch) == ("a1", "", 0)
        assert known.position is None
        assert not known.epochs
        assert NewestMaster(known.cluster, known.master_epoch, known.position).admit(true)
