"""Recovery from damaged or old records; `scenarios/agent` tells what the next agent does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

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
from croupier.agent.core.recovery import incomplete, recovered
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import Conflict
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus

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
