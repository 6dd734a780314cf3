"""Recovery from records, and the next agent's decision about each task."""

from __future__ import annotations

from collections.abc import Iterable
from signal import SIGKILL, SIGTERM

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core import on_task
from croupier.agent.core.effects import (
    Adopt,
    Checkpoint,
    Effect,
    Moved,
    Outdated,
    SendRegister,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import (
    AcknowledgedRecord,
    AgentRecord,
    ForgetFramework,
    ForgetTask,
    FrameworkRecord,
    KillRecord,
    PositionRecord,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.core.recovery import incomplete, recovered
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask
from croupier.model.errors import Conflict
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import Command, Reason, TaskInfo, TaskState, TaskStatus

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
KILL = KillRecord(F, T, 500, Reason.KILLED_BY_FRAMEWORK)


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

    def status(self) -> TaskStatus:
        status = self.state.tasks[KEY].status
        assert status is not None
        return status


def records(effects: Iterable[Effect]) -> list[Record]:
    return [effect.record for effect in effects if isinstance(effect, Checkpoint)]


def moves(effects: Iterable[Effect]) -> list[tuple[TaskState, int]]:
    return [(e.status.state, e.status.sequence) for e in effects if isinstance(e, Moved)]


class TestARecoveredTask:
    def test_that_runs_is_adopted_without_an_update(self) -> None:
        world = World(LAUNCHED, RUNNING)
        assert world.begun == [Adopt(KEY, "1-1")]
        assert str(world.state.free) == "cpus:3;mem:1GB"
        assert world.do(ev.Connected(1)) == [], "nothing is reported before it is known"
        effects = world.do(ev.Adopted(KEY, 7))
        assert effects == [SendRegister(1)]
        assert world.status() == RUNNING.status

    def test_that_was_started_before_the_record_is_reported_running(self) -> None:
        world = World(LAUNCHED)
        assert moves(world.do(ev.Adopted(KEY, 9))) == [(TaskState.RUNNING, 2)]
        assert world.status().pid == 9

    def test_that_ended_is_reported_with_its_exit_code(self) -> None:
        world = World(LAUNCHED, RUNNING)
        assert moves(world.do(ev.Exited(KEY, exit_code=3))) == [(TaskState.FAILED, 3)]
        assert world.status().exit_code == 3
        assert world.state.free == TOTAL

    def test_that_failed_to_launch_is_reported_with_the_reason(self) -> None:
        world = World(LAUNCHED)
        world.do(ev.LaunchFailed(KEY, "no such program"))
        assert world.status().message == "no such program"

    def test_that_was_not_started_is_started_as_the_same_run(self) -> None:
        world = World(LAUNCHED)
        assert world.do(ev.Vanished(KEY, "", never_started=True)) == [Spawn(KEY, "1-1", again=True)]
        assert world.state.wants_process(KEY)

    def test_that_was_not_started_and_has_a_kill_order_is_killed(self) -> None:
        world = World(LAUNCHED, KILL)
        effects = world.do(ev.Vanished(KEY, "", never_started=True))
        assert moves(effects) == [(TaskState.KILLED, 2)]
        assert world.status().reason is Reason.KILLED_BY_FRAMEWORK

    def test_without_its_shim_has_an_unknown_exit(self) -> None:
        world = World(LAUNCHED, RUNNING)
        world.do(ev.Vanished(KEY, "its shim was killed"))
        assert (world.status().state, world.status().reason) == (
            TaskState.FAILED,
            Reason.EXECUTOR_TERMINATED,
        )

    def test_that_ran_is_never_started_again(self) -> None:
        world = World(LAUNCHED, RUNNING)
        effects = world.do(ev.Vanished(KEY, "", never_started=True))
        assert moves(effects) == [(TaskState.FAILED, 3)]

    def test_with_a_kill_order_gets_sigterm_and_then_sigkill(self) -> None:
        killing = UpdateRecord(TaskStatus(F, T, A, TaskState.KILLING, sequence=3, pid=7))
        world = World(LAUNCHED, RUNNING, KILL, killing)
        assert world.do(ev.Adopted(KEY, 7)) == [Signal(KEY, 7, SIGTERM)]
        assert world.state.next_deadline() == 100.5

    def test_with_an_unreported_kill_order_is_reported_killing(self) -> None:
        world = World(LAUNCHED, RUNNING, KILL)
        assert moves(world.do(ev.Adopted(KEY, 7))) == [(TaskState.KILLING, 3)]

    def test_that_had_ended_is_reported_until_it_is_acknowledged(self) -> None:
        world = World(LAUNCHED, RUNNING, FINISHED, AcknowledgedRecord(F, T, 1))
        assert world.begun == []
        assert world.state.is_idle
        waiting = world.state.tasks[KEY].updates.waiting
        assert [status.sequence for status in waiting] == [2, 3]
        world.do(AcknowledgeUpdate(F, T, 3))
        assert not world.state.tasks

    def test_that_is_void_is_killed_before_the_agent_registers(self) -> None:
        world = World(LAUNCHED, RUNNING, VoidRecord(F, T))
        assert world.begun == [Adopt(KEY, "1-1")]
        assert world.do(ev.Connected(1)) == []
        assert world.do(ev.Adopted(KEY, 7)) == [Signal(KEY, 7, SIGKILL)]
        effects = world.do(ev.Exited(KEY, signal=9))
        assert records(effects) == [ForgetTask(F, T)]
        assert effects[-1] == SendRegister(1)


class TestARebootedMachine:
    @pytest.mark.parametrize("never_started", [False, True])
    def test_has_none_of_its_earlier_tasks(self, never_started: bool) -> None:
        world = World(LAUNCHED, boot_id="boot-2")
        effects = world.do(ev.Vanished(KEY, "", never_started))
        assert (world.status().state, world.status().reason) == (
            TaskState.GONE,
            Reason.AGENT_REBOOTED,
        )
        # Recorded only now, so that an agent that dies earlier detects the reboot again.
        assert records(world.begun) == []
        assert records(effects)[-1] == AgentRecord(A, "boot-2", 3)

    def test_keeps_recorded_terminal_updates(self) -> None:
        world = World(LAUNCHED, RUNNING, boot_id="boot-2")
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.status().state is TaskState.FINISHED

    def test_is_not_assumed_without_a_boot_id(self) -> None:
        assert not World(LAUNCHED, boot_id="").state.was_rebooted


class TestLostRecords:
    def test_are_refused_in_strict_mode(self) -> None:
        with pytest.raises(Conflict, match=r"first record of task t1.*--recover=best-effort"):
            World(RUNNING)

    def test_of_earlier_starts_are_left_out_in_lenient_mode(self) -> None:
        state = recovered([AGENT, RUNNING], TOTAL, lenient=True)
        assert (state.tasks, state.incomplete) == ({}, True)
        assert not recovered([AGENT], TOTAL, lenient=True).incomplete

    def test_are_still_known_after_another_crash(self) -> None:
        mark = incomplete([AGENT, LAUNCHED])
        assert mark == AgentRecord(A, "boot-1", 3, incomplete=True)
        state = recovered([AGENT, RUNNING, mark], TOTAL)
        assert (state.tasks, state.incomplete, state.agent_id) == ({}, True, A)
        # If the agent's own record is lost, its tasks have the agent's id.
        assert recovered([LAUNCHED, incomplete([LAUNCHED])], TOTAL).agent_id == A

    def test_lost_twice_reuse_no_sequence_number(self) -> None:
        reported: list[int] = []
        for wall_ms in (1_700_000_000_000, 1_700_000_005_000):
            state = recovered([AGENT, LAUNCHED, RUNNING], TOTAL, life="2", incomplete=True)
            now = Now(100.0, wall_ms)
            step(state, ev.AgentStarted(), now)
            effects = step(state, ev.Exited(KEY, exit_code=3), now)
            reported += [number for _, number in moves(effects)]
        assert len(reported) == 2
        assert reported[0] < reported[1]

    def test_leave_other_records_and_are_reported_to_one_master(self) -> None:
        world = World(RUNNING, FrameworkRecord(F, 2), incomplete=True)
        assert not world.state.tasks
        assert world.state.record.incomplete
        effects = world.do(ev.Connected(1), ev.Registered(A))
        assert records(effects) == [AgentRecord(A, "boot-1", 3)]

    def test_leave_it_unknown_whether_a_task_was_started(self) -> None:
        world = World(LAUNCHED, incomplete=True)
        effects = world.do(ev.Vanished(KEY, "", never_started=True))
        assert moves(effects) == [(TaskState.GONE, 1002)], "it may have ended"

    def test_leave_a_gap_in_sequence_numbers(self) -> None:
        world = World(LAUNCHED, FINISHED, incomplete=True)
        waiting = world.state.tasks[KEY].updates.waiting
        assert [status.sequence for status in waiting] == [1003]

    def test_do_not_change_the_id_of_the_agent(self) -> None:
        state = recovered([LAUNCHED], TOTAL, incomplete=True)
        assert state.agent_id == A
        former = AgentRecord(AgentId("A0"), "boot-1", 3)
        assert recovered([former, LAUNCHED], TOTAL, incomplete=True).agent_id == A

    def test_of_a_removal_do_not_revive_voided_tasks(self) -> None:
        ended = TaskStatus(F, TaskId("t2"), A, TaskState.DROPPED, sequence=1)
        info = TaskInfo(TaskId("t2"), Command(), Resources())
        refused = TaskRecord(info, DEFAULT_ROLE, "", ended)
        anew = AgentRecord(AgentId("A2"), "boot-1", 3)
        world = World(LAUNCHED, RUNNING, refused, anew, incomplete=True)
        assert (world.state.agent_id, world.state.tasks) == ("A2", {})
        assert records(world.begun)[1:] == [ForgetTask(F, TaskId("t2")), VoidRecord(F, T)]
        effects = world.do(ev.Connected(1), ev.Adopted(KEY, 7), ev.Exited(KEY, signal=9))
        assert effects[-1] == SendRegister(1), "as soon as nothing is left of it"

    def test_of_a_kill_do_not_cancel_it(self) -> None:
        killing = TaskStatus(
            F, T, A, TaskState.KILLING, reason=Reason.KILLED_BY_OPERATOR, sequence=3, pid=7
        )
        world = World(LAUNCHED, RUNNING, UpdateRecord(killing), incomplete=True)
        effects = world.do(ev.Adopted(KEY, 7), ev.Exited(KEY, signal=15))
        assert Signal(KEY, 7, SIGTERM) in effects
        assert world.status().reason is Reason.KILLED_BY_OPERATOR


def test_live_tasks_that_exceed_the_resources_are_refused() -> None:
    with pytest.raises(Conflict, match="the agent's tasks hold cpus:1, but it has mem:1GB now"):
        recovered([AGENT, LAUNCHED], Resources.parse("mem:1GB"))


class TestRunsOfFrameworks:
    def launch(self, task_id: str, epoch: int, framework_id: str = F) -> LaunchTask:
        info = TaskInfo(TaskId(task_id), Command(("x",)), Resources.parse("cpus:0.1"))
        return LaunchTask(FrameworkId(framework_id), info, DEFAULT_ROLE, epoch)

    def test_are_recorded_and_older_runs_are_refused(self) -> None:
        world = World(FrameworkRecord(F, 5))
        effects = world.do(self.launch("a", 4))
        assert moves(effects) == [(TaskState.DROPPED, 1)]
        kill = KillTask(F, T, None, Reason.KILLED_BY_FRAMEWORK, 4)
        assert world.do(kill) == [Outdated(KEY, 4)]
        assert FrameworkRecord(F, 6) in records(world.do(self.launch("b", 6)))
        assert moves(world.do(self.launch("c", 0))) == [(TaskState.STARTING, 1)]

    def test_restart_with_an_older_store_that_an_operator_accepted(self) -> None:
        world = World(FrameworkRecord(F, 5), FrameworkRecord(FrameworkId("X"), 3))
        world.do(ev.Connected(1), ev.MasterSeen(4, "c", StorePosition(0, 4, "t", 7)))
        older = StorePosition(1, 5, "u", 3)
        assert records(world.do(ev.MasterSeen(5, "c", older))) == [
            PositionRecord(older),
            ForgetFramework(F),
            ForgetFramework(FrameworkId("X")),
            AgentRecord(A, "boot-1", 5, cluster="c"),
        ]
        assert moves(world.do(self.launch("a", 1))) == [(TaskState.STARTING, 1)]

    def test_of_idle_frameworks_are_deleted_beyond_the_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(on_task, "MOST_FRAMEWORKS", 10)
        world = World(*(FrameworkRecord(FrameworkId(f"X{n}"), 1) for n in range(10)))
        forgotten = records(world.do(self.launch("a", 1, "X10")))
        assert [r for r in forgotten if isinstance(r, ForgetFramework)] == [
            ForgetFramework(FrameworkId(f"X{n}")) for n in range(5)
        ]
        assert len(world.state.epochs) == 6
