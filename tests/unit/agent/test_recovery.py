"""Records that an agent recovers from, also damaged or old ones, and fencing of older masters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.checkpoint import Checkpoint as Log
from croupier.agent.core import events as ev
from croupier.agent.core import on_task
from croupier.agent.core.effects import Checkpoint, Effect, Moved, SendRegister
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import (
    AgentRecord,
    ForgetFramework,
    ForgetTask,
    FrameworkRecord,
    PositionRecord,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.core.recovery import forget_masters, incomplete, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.agent.fencing import NewestMaster
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.store_position import MAX_EPOCH, StorePosition
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.v1 import agent_pb2 as pb
from croupier.wire.store_position import position_to_wire

F, T, A = FrameworkId("F1"), TaskId("t1"), AgentId("A1")
KEY: Key = (F, T)
TOTAL = Resources.parse("cpus:4;mem:1GB")
INFO = TaskInfo(T, Command(("true",)), Resources.parse("cpus:1"))

AGENT = AgentRecord(A, "boot-1", 3)
LAUNCHED = TaskRecord(
    INFO, DEFAULT_ROLE, "1-1", TaskStatus(F, T, A, TaskState.STARTING, sequence=1)
)
RUNNING = UpdateRecord(TaskStatus(F, T, A, TaskState.RUNNING, sequence=2, pid=7))
FINISHED = UpdateRecord(TaskStatus(F, T, A, TaskState.FINISHED, sequence=3, pid=7, exit_code=0))


class World:
    """An agent that recovers from records, on a machine with the boot `boot_id`."""

    def __init__(self, *records: Record, boot_id: str = "boot-1", incomplete: bool = False) -> None:
        self.state = recovered(
            (AGENT, *records), TOTAL, boot_id=boot_id, life="2", incomplete=incomplete
        )
        self.state.check()
        self.begun = self.do(ev.AgentStarted())

    def do(self, *events: Event) -> list[Effect]:
        done: list[Effect] = []
        for event in events:
            done += step(self.state, event, Now(100.0, 0))
            self.state.check()
        return done


def records(effects: Iterable[Effect]) -> list[Record]:
    return [effect.record for effect in effects if isinstance(effect, Checkpoint)]


def moves(effects: Iterable[Effect]) -> list[tuple[TaskState, int]]:
    return [(e.status.state, e.status.sequence) for e in effects if isinstance(e, Moved)]


def launch(task_id: str, epoch: int, framework_id: str = F) -> LaunchTask:
    info = TaskInfo(TaskId(task_id), Command(("x",)), Resources.parse("cpus:0.1"))
    return LaunchTask(FrameworkId(framework_id), info, DEFAULT_ROLE, epoch)


def test_lost_records_are_still_known_after_another_crash() -> None:
    mark = incomplete([AGENT, LAUNCHED])
    assert mark == AgentRecord(A, "boot-1", 3, incomplete=True)
    state = recovered([AGENT, RUNNING, mark], TOTAL)
    assert (state.tasks, state.incomplete, state.agent_id) == ({}, True, A)
    # If the agent's own record is lost, its tasks have the agent's id.
    assert recovered([LAUNCHED, incomplete([LAUNCHED])], TOTAL).agent_id == A


def test_records_lost_twice_reuse_no_sequence_number() -> None:
    reported: list[int] = []
    for wall_ms in (1_700_000_000_000, 1_700_000_005_000):
        state = recovered([AGENT, LAUNCHED, RUNNING], TOTAL, life="2", incomplete=True)
        now = Now(100.0, wall_ms)
        step(state, ev.AgentStarted(), now)
        effects = step(state, ev.Exited(KEY, exit_code=3), now)
        reported += [number for _, number in moves(effects)]
    assert len(reported) == 2
    assert reported[0] < reported[1]


def test_lost_records_leave_a_gap_in_sequence_numbers() -> None:
    world = World(LAUNCHED, FINISHED, incomplete=True)
    waiting = world.state.tasks[KEY].updates.waiting
    assert [status.sequence for status in waiting] == [1003]


def test_lost_records_do_not_change_the_id_of_the_agent() -> None:
    state = recovered([LAUNCHED], TOTAL, incomplete=True)
    assert state.agent_id == A
    former = AgentRecord(AgentId("A0"), "boot-1", 3)
    assert recovered([former, LAUNCHED], TOTAL, incomplete=True).agent_id == A


def test_the_loss_of_a_removal_does_not_revive_voided_tasks() -> None:
    ended = TaskStatus(F, TaskId("t2"), A, TaskState.DROPPED, sequence=1)
    info = TaskInfo(TaskId("t2"), Command(), Resources())
    refused = TaskRecord(info, DEFAULT_ROLE, "", ended)
    anew = AgentRecord(AgentId("A2"), "boot-1", 3)
    world = World(LAUNCHED, RUNNING, refused, anew, incomplete=True)
    assert (world.state.agent_id, world.state.tasks) == ("A2", {})
    assert records(world.begun)[1:] == [ForgetTask(F, TaskId("t2")), VoidRecord(F, T)]
    effects = world.do(ev.Connected(1), ev.Adopted(KEY, 7), ev.Exited(KEY, signal=9))
    assert effects[-1] == SendRegister(1), "as soon as nothing is left of it"


def test_runs_of_frameworks_restart_with_an_older_store_that_an_operator_accepted() -> None:
    world = World(FrameworkRecord(F, 5), FrameworkRecord(FrameworkId("X"), 3))
    world.do(ev.Connected(1), ev.MasterSeen(4, "c", StorePosition(0, 4, "t", 7)))
    older = StorePosition(1, 5, "u", 3)
    assert records(world.do(ev.MasterSeen(5, "c", older))) == [
        PositionRecord(older),
        ForgetFramework(F),
        ForgetFramework(FrameworkId("X")),
        AgentRecord(A, "boot-1", 5, cluster="c"),
    ]
    assert moves(world.do(launch("a", 1))) == [(TaskState.STARTING, 1)]


def test_runs_of_idle_frameworks_are_deleted_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_task, "MOST_FRAMEWORKS", 10)
    world = World(*(FrameworkRecord(FrameworkId(f"X{n}"), 1) for n in range(10)))
    forgotten = records(world.do(launch("a", 1, "X10")))
    assert [r for r in forgotten if isinstance(r, ForgetFramework)] == [
        ForgetFramework(FrameworkId(f"X{n}")) for n in range(5)
    ]
    assert len(world.state.epochs) == 6


def test_lost_records_reuse_no_number_and_forget_tasks_without_a_launch() -> None:
    to_forget = UpdateRecord(replace(RUNNING.status, task_id=TaskId("t2")))
    lost: list[Record] = [AGENT, LAUNCHED, RUNNING, to_forget]
    with pytest.raises(Conflict, match="t2"):
        recovered(lost, TOTAL)
    world = World(*lost[1:], incomplete=True)
    assert records(world.begun) == [
        replace(AGENT, incomplete=True),
        UpdateRecord(replace(RUNNING.status, sequence=1002)),
        ForgetTask(F, TaskId("t2")),
    ]
    # The next life finds no damage, and still reports the loss.
    assert recovered([*lost, *records(world.begun)], TOTAL).incomplete


# Fencing: the agent obeys no older master, and records the newest.


CPUS = Resources.parse("cpus:4")


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
    state = AgentState.of(CPUS, AgentId("A1"))
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
    state = recovered(loaded.records, CPUS)
    assert state.position == positions[2].position


def test_the_epoch_is_recovered_from_the_position() -> None:
    position = StorePosition(0, 6, "t", 9)
    assert recovered([PositionRecord(position)], CPUS).master_epoch == 6


def test_a_false_master_is_forgotten_for_good() -> None:
    position = StorePosition(7, MAX_EPOCH, "false", 9, "00")
    records: list[Record] = [
        AgentRecord(AgentId("a1"), "", MAX_EPOCH, cluster="c"),
        PositionRecord(position),
        FrameworkRecord(FrameworkId("F1"), 2**31),
    ]
    state = recovered(records, CPUS)
    true = sent(3, 10, first=5)
    with pytest.raises(Unavailable, match="--recover=forget-master"):
        NewestMaster(state.cluster, state.master_epoch, state.position).admit(true)
    forgotten = forget_masters(state)
    for known in (state, recovered([*records, *forgotten], CPUS)):
        assert (known.agent_id, known.cluster, known.master_epoch) == ("a1", "", 0)
        assert known.position is None
        assert not known.epochs
        assert NewestMaster(known.cluster, known.master_epoch, known.position).admit(true)
