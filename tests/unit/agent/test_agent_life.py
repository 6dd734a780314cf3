"""The agent's core over its own life: its id, its records, its updates, and its end."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    Checkpoint,
    Forget,
    SendRegister,
    SendUpdates,
    Signal,
)
from croupier.agent.core.events import Now
from croupier.agent.core.records import (
    AgentRecord,
    ForgetTask,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.core.recovery import recovered
from croupier.agent.core.step import step
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchTask, ResendUpdates
from croupier.model.errors import Conflict
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, Role, TaskId
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from tests.harness.agent_core import KEY, TOTAL, F, T, World, kill, sent, task


class TestTheAgent:
    def test_records_its_id_before_any_master_learns_it(self) -> None:
        world = World(registered=False)
        world.do(ev.AgentStarted(), ev.Connected(1))
        named, introduced = world.effects
        assert named == Checkpoint(AgentRecord(AgentId("A0"), "", 0))
        assert introduced == SendRegister(1)
        world.effects.clear()
        world.do(ev.Registered(AgentId("A0")))
        assert world.effects == []
        world.do(ev.Removed())
        assert world.state.agent_id == "A0.2"

    def test_after_lost_records_gives_no_number_twice_and_forgets_tasks_without_a_launch(
        self,
    ) -> None:
        starting, running = (
            TaskStatus(F, T, AgentId("A1"), state, Source.EXECUTOR, sequence=n, pid=pid)
            for n, state, pid in ((1, TaskState.STARTING, 0), (2, TaskState.RUNNING, 7))
        )
        to_forget = replace(running, task_id=TaskId("t2"))
        records: list[Record] = [
            AgentRecord(AgentId("A1"), "", 3),
            TaskRecord(task(), Role("*"), "r-1", starting),
            UpdateRecord(running),
            UpdateRecord(to_forget),
        ]
        with pytest.raises(Conflict, match="t2"):
            recovered(records, TOTAL)
        state = recovered(records, TOTAL, life="2", incomplete=True)
        effects = step(state, ev.AgentStarted(), Now(1.0, 0))
        again = UpdateRecord(replace(running, sequence=1002))
        assert [e.record for e in effects if isinstance(e, Checkpoint)] == [
            AgentRecord(AgentId("A1"), "", 3, incomplete=True),
            again,
            ForgetTask(F, TaskId("t2")),
        ]
        state.check()
        # The next life finds no damage, and still reports the loss.
        made = [e.record for e in effects if isinstance(e, Checkpoint)]
        assert recovered([*records, *made], TOTAL).incomplete

    def test_after_lost_records_keeps_the_newer_of_tasks_that_do_not_fit_together(self) -> None:
        def launched(task_id: str) -> TaskRecord:
            first = TaskStatus(F, TaskId(task_id), AgentId("A1"), TaskState.STARTING, sequence=1)
            return TaskRecord(task(task_id, "cpus:3;ports:[1-2]"), Role("*"), task_id, first)

        records = [launched("old"), launched("new")]
        state = recovered(records, TOTAL, life="2", incomplete=True)
        assert list(state.tasks) == [(F, "new")]
        assert list(state.voided) == [(F, "old")]
        effects = step(state, ev.AgentStarted(), Now(1.0, 0))
        assert Checkpoint(VoidRecord(F, TaskId("old"))) in effects
        state.check()
        made = [e.record for e in effects if isinstance(e, Checkpoint)]
        assert list(recovered([*records, *made], TOTAL, life="3").voided) == [(F, "old")]

    def test_keeps_the_id_that_the_master_gives(self) -> None:
        world = World(registered=False)
        assert world.do(ev.Connected(1)) == [SendRegister(1)]
        world.do(ev.Registered(AgentId("A1")))
        kept = Checkpoint(AgentRecord(AgentId("A1"), "", 0))
        assert world.effects[-1] == kept
        world.do(ev.Registered(AgentId("A1")))
        assert world.effects.count(kept) == 1

    def test_once_removed_kills_all_tasks_and_then_registers_with_a_new_id(self) -> None:
        world = World().running()
        world.do(LaunchTask(F, task("t2"), DEFAULT_ROLE))
        assert world.do(ev.Removed()) == [Signal(KEY, 7, SIGKILL)]
        assert not world.state.wants_process((F, TaskId("t2")))
        assert world.do(ev.Disconnected(1), ev.Connected(2)) == []
        assert world.do(ev.NotStarted((F, TaskId("t2")))) == [Forget((F, TaskId("t2")))]
        assert list(world.state.voided) == [KEY]
        assert world.do(ev.Exited(KEY, signal=9)) == [Forget(KEY), SendRegister(2)]
        assert world.state.is_idle
        assert world.state.free == TOTAL

    def test_when_stopping_ends_all_tasks_within_5_s_and_starts_no_more(self) -> None:
        world = World().running(grace_ms=60_000)
        world.do(LaunchTask(F, task("t2"), DEFAULT_ROLE))
        effects = world.do(ev.StopRequested())
        assert sent(effects) == [("KILLING", 3)]
        assert sent(world.do(ev.NotStarted((F, TaskId("t2"))))) == [("KILLED", 2)]
        assert world.sleep(5) == [Signal(KEY, 7, SIGKILL)]
        assert sent(world.do(LaunchTask(F, task("t3"), DEFAULT_ROLE))) == [("DROPPED", 1)]
        world.do(ev.Exited(KEY, signal=9))
        assert world.status().reason is Reason.AGENT_STOPPED
        assert world.state.is_idle

    def test_when_stopping_keeps_the_reason_of_an_earlier_kill(self) -> None:
        world = World().running()
        world.do(kill(), ev.StopRequested(), ev.Exited(KEY, signal=15))
        assert world.status().reason is Reason.KILLED_BY_FRAMEWORK


# Updates of tasks in the agent's core: sent, sent again, and acknowledged.


class TestUpdates:
    def test_are_sent_again_after_10_s_doubling_to_10_min_for_ever(self) -> None:
        world = World()
        world.do(kill())
        waits: list[float] = []
        last = world.now
        for _ in range(9):
            at = world.state.next_deadline()
            assert at is not None
            waits.append(at - last)
            last = at
            assert sent(world.sleep(at - world.now)) == [("GONE", 1)]
        assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]

    def test_all_unacknowledged_updates_are_sent_again_together(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        assert sent(world.sleep(10)) == [("STARTING", 1), ("RUNNING", 2), ("FINISHED", 3)]

    def test_an_acknowledgement_covers_all_earlier_updates(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        world.sleep(10)
        world.do(AcknowledgeUpdate(F, T, 2))
        assert Acknowledged(2) in world.effects
        # The framework reads, so the shortest wait begins again.
        assert world.sleep(9.9) == []
        assert sent(world.sleep(0.1)) == [("FINISHED", 3)]

    def test_stale_and_unknown_acknowledgements_change_nothing(self) -> None:
        world = World().running()
        world.do(AcknowledgeUpdate(F, T, 1))
        assert world.do(AcknowledgeUpdate(F, T, 1), AcknowledgeUpdate(F, TaskId("x"), 9)) == []
        assert len(world.state.tasks[KEY].updates.waiting) == 1

    def test_of_a_reconnected_framework_are_sent_again_at_once(self) -> None:
        world = World().running()
        world.do(LaunchTask(FrameworkId("F2"), task(), DEFAULT_ROLE))
        effects = world.do(ResendUpdates(F))
        assert sent(effects) == [("STARTING", 1), ("RUNNING", 2)]
        assert all(isinstance(e, SendUpdates) and e.again for e in effects)
        assert world.do(ResendUpdates(FrameworkId("F3"))) == []

    def test_are_kept_while_there_is_no_session(self) -> None:
        world = World().running()
        world.do(ev.Disconnected(1))
        assert world.do(ev.Exited(KEY, exit_code=0)) == []
        assert world.sleep(1000) == []
        assert world.do(ev.Connected(2)) == [SendRegister(2)]
        assert len(world.state.tasks[KEY].updates.waiting) == 3
        assert len(sent(world.sleep(10))) == 3

    def test_are_sent_in_the_open_session(self) -> None:
        world = World().running()
        world.do(ev.Disconnected(1), ev.Connected(2))
        effects = world.do(ev.Exited(KEY, exit_code=0))
        assert [e.session for e in effects if isinstance(e, SendUpdates)] == [2]

    def test_the_end_of_an_older_session_changes_nothing(self) -> None:
        world = World()
        world.do(ev.Disconnected(1), ev.Connected(2), ev.Disconnected(1))
        assert world.state.session == 2
