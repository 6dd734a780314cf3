"""The life of a task in the agent's core: states, updates and effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import (
    Acknowledged,
    CancelLaunch,
    Checkpoint,
    Effect,
    Force,
    Forget,
    ForgetRun,
    Moved,
    SendRegister,
    SendUpdates,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Event, Now
from croupier.agent.core.records import (
    AgentRecord,
    ForgetTask,
    Record,
    TaskRecord,
    UpdateRecord,
    VoidRecord,
)
from croupier.agent.core.recovery import recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.core.tasks import Key
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask, ResendUpdates
from croupier.model.errors import Conflict
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Feature, Isolation, Limits
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus

F = FrameworkId("F1")
T = TaskId("t1")
KEY: Key = (F, T)
TOTAL = Resources.parse("cpus:4;mem:1GB;ports:[1-10]")


def task(task_id: str = T, resources: str = "cpus:1;mem:100MB", grace_ms: int = 3000) -> TaskInfo:
    return TaskInfo(
        TaskId(task_id), Command(argv=("true",)), Resources.parse(resources), grace_ms=grace_ms
    )


class World:
    """The core of an agent, a clock that the test sets, and all effects so far."""

    def __init__(self, registered: bool = True) -> None:
        self.state = AgentState.of(TOTAL)
        self.now = 100.0
        self.effects: list[Effect] = []
        if registered:
            self.do(ev.Connected(1), ev.Registered(AgentId("A1")))
            self.effects.clear()

    def do(self, *events: Event) -> list[Effect]:
        """Apply events; return their effects without facts and records."""
        done: list[Effect] = []
        for event in events:
            done += step(self.state, event, Now(self.now, 5000))
            self.state.check()
        self.effects += done
        return [e for e in done if not isinstance(e, Moved | Acknowledged | Checkpoint | ForgetRun)]

    def sleep(self, seconds: float) -> list[Effect]:
        """Let time pass, and act on every deadline."""
        until = self.now + seconds
        done: list[Effect] = []
        while (at := self.state.next_deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            done += self.do(ev.DeadlinePassed())
        self.now = until
        return done

    def running(self, **more: int) -> World:
        """Add a task that runs as pid 7."""
        self.do(LaunchTask(F, task(**more), DEFAULT_ROLE), ev.Started(KEY, 7))  # type: ignore[arg-type]
        return self

    def status(self) -> TaskStatus:
        """Return the latest update of the task."""
        status = self.state.tasks[KEY].status
        assert status is not None
        return status


def sent(effects: Iterable[Effect]) -> list[tuple[str, int]]:
    """Return state and number of each update in `effects`."""
    return [
        (status.state.name, status.sequence)
        for effect in effects
        if isinstance(effect, SendUpdates)
        for status in effect.statuses
    ]


def kill(grace_ms: int | None = None, reason: Reason = Reason.KILLED_BY_FRAMEWORK) -> KillTask:
    return KillTask(F, T, grace_ms, reason)


class TestASuccessfulTask:
    def test_starts_runs_and_finishes_with_numbered_updates(self) -> None:
        world = World()
        effects = world.do(LaunchTask(F, task(), DEFAULT_ROLE))
        assert sent(effects) == [("STARTING", 1)]
        assert effects[-1] == Spawn(KEY, "0-1")
        assert sent(world.do(ev.Started(KEY, 7))) == [("RUNNING", 2)]
        assert world.status().pid == 7
        assert sent(world.do(ev.Exited(KEY, exit_code=0))) == [("FINISHED", 3)]
        assert world.status() == TaskStatus(
            F, T, AgentId("A1"), TaskState.FINISHED, Source.EXECUTOR,
            sequence=3, time_ms=5000, exit_code=0, pid=7,
        )  # fmt: skip

    def test_holds_its_resources_from_launch_to_end(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(resources="cpus:1;ports:[3-4]"), DEFAULT_ROLE))
        assert str(world.state.free) == "cpus:3;mem:1GB;ports:[1-2,5-10]"
        world.do(ev.Started(KEY, 7), ev.Exited(KEY, exit_code=0))
        assert world.state.free == TOTAL

    def test_is_forgotten_when_its_last_update_is_acknowledged(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.do(AcknowledgeUpdate(F, T, 2)) == []
        assert world.do(AcknowledgeUpdate(F, T, 3)) == [Forget(KEY)]
        assert not world.state.tasks

    def test_is_not_forgotten_while_it_runs(self) -> None:
        world = World().running()
        assert world.do(AcknowledgeUpdate(F, T, 2)) == []
        assert world.state.is_live(KEY)

    def test_a_second_launch_of_a_known_task_changes_nothing(self) -> None:
        world = World().running()
        assert world.do(LaunchTask(F, task(), DEFAULT_ROLE)) == []
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.do(LaunchTask(F, task(), DEFAULT_ROLE)) == []

    def test_one_id_of_two_frameworks_is_two_tasks(self) -> None:
        world = World().running()
        other = FrameworkId("F2")
        assert world.do(LaunchTask(other, task(), DEFAULT_ROLE))[-1] == Spawn((other, T), "0-2")


class TestAFailedTask:
    def test_a_forgotten_task_with_a_sandbox_is_not_run_again(self) -> None:
        world = World().running()
        again = ev.LaunchIntoSandbox(LaunchTask(F, task(), DEFAULT_ROLE))
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.do(again) == [], "an order that was sent twice"
        world.do(AcknowledgeUpdate(F, T, 3))
        assert sent(world.do(again)) == [("DROPPED", 1)]
        assert world.status().reason is Reason.TASK_INVALID
        assert "has run on this agent before" in world.status().message
        assert world.state.free == TOTAL

    @pytest.mark.parametrize(
        ("exited", "message"),
        [
            (ev.Exited(KEY, exit_code=3), "exited with code 3"),
            (ev.Exited(KEY, signal=11), "ended by signal 11 (SIGSEGV)"),
            (ev.Exited(KEY, signal=63), "ended by signal 63 (unnamed)"),
        ],
    )
    def test_a_nonzero_exit_or_a_signal_is_failed(self, exited: ev.Exited, message: str) -> None:
        world = World().running()
        world.do(exited)
        status = world.status()
        assert (status.state, status.message) == (TaskState.FAILED, message)
        assert (status.exit_code, status.signal) == (exited.exit_code, exited.signal)
        assert (status.source, status.reason) == (
            Source.EXECUTOR,
            Reason.COMMAND_EXECUTOR_FAILED,
        )

    def test_a_failed_launch_is_failed_and_frees_its_resources(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE), ev.LaunchFailed(KEY, "no such program", 127))
        status = world.status()
        assert (status.state, status.reason) == (TaskState.FAILED, Reason.CONTAINER_LAUNCH_FAILED)
        assert (status.source, status.message) == (Source.AGENT, "no such program")
        assert status.exit_code == 127
        assert world.state.free == TOTAL

    @pytest.mark.parametrize(
        ("resources", "message"),
        [
            ("cpus:4.001", "it takes cpus:4.001, but the agent has cpus:4;mem:1GB;ports:[1-10]"),
            ("ports:[10-11]", "it takes ports:[10-11]"),
            ("gpus:1", "it takes gpus:1"),
        ],
    )
    def test_a_task_that_does_not_fit_is_dropped(self, resources: str, message: str) -> None:
        world = World()
        assert sent(world.do(LaunchTask(F, task(resources=resources), DEFAULT_ROLE))) == [
            ("DROPPED", 1)
        ]
        assert world.status().message.startswith(message)
        assert world.status().reason is Reason.INVALID_OFFERS
        assert world.do(AcknowledgeUpdate(F, T, 1)) == [Forget(KEY)]

    def test_an_invalid_task_is_dropped(self) -> None:
        world = World()
        broken = TaskInfo(T, Command(), Resources.parse("cpus:1"))
        assert sent(world.do(LaunchTask(F, broken, DEFAULT_ROLE))) == [("DROPPED", 1)]
        assert world.status().reason is Reason.TASK_INVALID

    def test_a_task_that_asks_for_more_than_the_agent_enforces_is_dropped(self) -> None:
        world = World()
        world.state.features = frozenset({Feature.MEMORY})
        wants = replace(task(), limits=Limits(mem=128_000, pids=10))
        assert sent(world.do(LaunchTask(F, wants, DEFAULT_ROLE))) == [("DROPPED", 1)]
        assert world.status().reason is Reason.TASK_INVALID
        assert world.status().message == "the agent cannot enforce what it asks for: pids"
        fits = replace(task("t2"), limits=Limits(mem=128_000))
        assert sent(world.do(LaunchTask(F, fits, DEFAULT_ROLE))) == [("STARTING", 1)]


class TestAKill:
    def test_sends_sigterm_and_after_the_grace_sigkill(self) -> None:
        world = World().running()
        effects = world.do(kill(grace_ms=2000))
        assert sent(effects) == [("KILLING", 3)]
        assert effects[-1] == Signal(KEY, 7, Force.TERMINATE)
        assert world.sleep(1.99) == []
        assert world.sleep(0.02) == [Signal(KEY, 7, Force.KILL)]

    def test_ends_in_killed_for_any_end_of_the_process(self) -> None:
        for exited in (ev.Exited(KEY, signal=15), ev.Exited(KEY, exit_code=0)):
            world = World().running()
            world.do(kill(), exited)
            status = world.status()
            assert (status.state, status.reason) == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK)
            assert (status.exit_code, status.signal) == (exited.exit_code, exited.signal)

    def test_without_a_grace_uses_the_grace_of_the_task(self) -> None:
        world = World().running(grace_ms=500)
        world.do(kill())
        assert world.sleep(0.51) == [Signal(KEY, 7, Force.KILL)]

    def test_a_second_kill_may_shorten_the_grace_but_not_lengthen_it(self) -> None:
        world = World().running()
        world.do(kill(grace_ms=5000))
        assert world.do(kill(grace_ms=60_000)) == []
        assert world.do(kill(grace_ms=1000)) == []
        assert world.sleep(1.01) == [Signal(KEY, 7, Force.KILL)]
        world.do(ev.Exited(KEY, signal=9))
        assert world.sleep(5) == []

    def test_before_the_start_prevents_the_process(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE))
        assert world.do(kill()) == []
        assert not world.state.wants_process(KEY)
        assert sent(world.do(ev.NotStarted(KEY))) == [("KILLED", 2)]
        assert world.state.free == TOTAL

    def test_during_the_start_ends_the_process_at_once(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE), kill(grace_ms=2000))
        effects = world.do(ev.Started(KEY, 7))
        assert sent(effects) == [("RUNNING", 2), ("KILLING", 3)]
        assert effects[-1] == Signal(KEY, 7, Force.TERMINATE)
        assert world.sleep(2) == [Signal(KEY, 7, Force.KILL)]

    def test_is_forced_on_a_task_whose_start_is_never_reported(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE), kill(grace_ms=2000))
        assert world.sleep(1.99) == []
        assert world.sleep(0.02) == [Signal(KEY, 0, Force.KILL)]

    def test_of_an_unknown_task_is_answered_with_gone_until_acknowledged(self) -> None:
        world = World()
        assert sent(world.do(kill())) == [("GONE", 1)]
        assert world.status().reason is Reason.TASK_UNKNOWN
        assert world.do(kill()) == []
        assert sent(world.sleep(10)) == [("GONE", 1)]
        assert world.do(AcknowledgeUpdate(F, T, 1)) == [Forget(KEY)]

    def test_of_a_task_that_has_ended_changes_nothing(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.do(kill()) == []


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
        assert world.do(ev.Removed()) == [Signal(KEY, 7, Force.KILL)]
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
        assert world.sleep(5) == [Signal(KEY, 7, Force.KILL)]
        assert sent(world.do(LaunchTask(F, task("t3"), DEFAULT_ROLE))) == [("DROPPED", 1)]
        world.do(ev.Exited(KEY, signal=9))
        assert world.status().reason is Reason.AGENT_STOPPED
        assert world.state.is_idle

    def test_when_stopping_keeps_the_reason_of_an_earlier_kill(self) -> None:
        world = World().running()
        world.do(kill(), ev.StopRequested(), ev.Exited(KEY, signal=15))
        assert world.status().reason is Reason.KILLED_BY_FRAMEWORK


class TestALaunchThatWaitsForItsImage:
    def started(self) -> World:
        world = World()
        world.state.features = frozenset({Feature.IMAGES})
        info = replace(task(), isolation=Isolation(image="docker://x"))
        world.do(LaunchTask(F, info, DEFAULT_ROLE))
        return world

    def test_is_started_once_the_image_is_ready(self) -> None:
        world = self.started()
        assert world.do(ev.Prepared(KEY, "0-1", again=True)) == [Spawn(KEY, "0-1", again=True)]
        assert sent(world.do(ev.Started(KEY, 7))) == [("RUNNING", 2)]

    def test_is_cancelled_by_a_kill(self) -> None:
        world = self.started()
        assert world.do(kill()) == [CancelLaunch(KEY)]
        assert sent(world.do(ev.NotStarted(KEY))) == [("KILLED", 2)]
        assert world.state.free == TOTAL

    def test_that_was_killed_as_the_image_became_ready_is_not_started(self) -> None:
        world = self.started()
        world.do(kill())
        assert sent(world.do(ev.Prepared(KEY, "0-1"))) == [("KILLED", 2)]

    def test_ends_in_failed_without_the_image(self) -> None:
        world = self.started()
        world.do(ev.LaunchFailed(KEY, "cannot get image docker://x: no route"))
        assert world.status().reason is Reason.CONTAINER_LAUNCH_FAILED
        assert world.state.health.is_healthy
