"""The life of a task in the agent's core: states, updates and effects."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL, SIGTERM

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import CancelLaunch, Forget, Signal, Spawn
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchTask
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId
from croupier.model.isolation import Feature, Isolation, Limits
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.agent_core import KEY, TOTAL, F, T, World, kill, sent, task


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
        assert (status.source, status.reason) == (Source.EXECUTOR, Reason.COMMAND_EXECUTOR_FAILED)

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
        assert effects[-1] == Signal(KEY, 7, SIGTERM)
        assert world.sleep(1.99) == []
        assert world.sleep(0.02) == [Signal(KEY, 7, SIGKILL)]

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
        assert world.sleep(0.51) == [Signal(KEY, 7, SIGKILL)]

    def test_a_second_kill_may_shorten_the_grace_but_not_lengthen_it(self) -> None:
        world = World().running()
        world.do(kill(grace_ms=5000))
        assert world.do(kill(grace_ms=60_000)) == []
        assert world.do(kill(grace_ms=1000)) == []
        assert world.sleep(1.01) == [Signal(KEY, 7, SIGKILL)]
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
        assert effects[-1] == Signal(KEY, 7, SIGTERM)
        assert world.sleep(2) == [Signal(KEY, 7, SIGKILL)]

    def test_is_forced_on_a_task_whose_start_is_never_reported(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE), kill(grace_ms=2000))
        assert world.sleep(1.99) == []
        assert world.sleep(0.02) == [Signal(KEY, 0, SIGKILL)]

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


class TestALaunchThatWaitsForItsImage:
    def started(self) -> World:
        world = World()
        world.state.features = frozenset({Feature.IMAGES})
        info = replace(task(), isolation=Isolation(image="docker://x"))
        world.do(LaunchTask(F, info, DEFAULT_ROLE))
        return world

    def test_is_started_once_the_image_is_ready(self) -> None:
        world = self.started()
        assert world.do(ev.Prepared(Spawn(KEY, "0-1", again=True))) == [
            Spawn(KEY, "0-1", again=True)
        ]
        assert sent(world.do(ev.Started(KEY, 7))) == [("RUNNING", 2)]

    def test_is_cancelled_by_a_kill(self) -> None:
        world = self.started()
        assert world.do(kill()) == [CancelLaunch(KEY)]
        assert sent(world.do(ev.NotStarted(KEY))) == [("KILLED", 2)]
        assert world.state.free == TOTAL

    def test_that_was_killed_as_the_image_became_ready_is_not_started(self) -> None:
        world = self.started()
        world.do(kill())
        assert sent(world.do(ev.Prepared(Spawn(KEY, "0-1")))) == [("KILLED", 2)]

    def test_ends_in_failed_without_the_image(self) -> None:
        world = self.started()
        world.do(ev.LaunchFailed(KEY, "cannot get image docker://x: no route"))
        assert world.status().reason is Reason.CONTAINER_LAUNCH_FAILED
        assert world.state.health.is_healthy
