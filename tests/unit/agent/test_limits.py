"""Limits in the agent's core: the time to complete, and ends that exceed a limit."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL, SIGTERM

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint, Signal
from croupier.agent.core.events import Ending, Exceeded
from croupier.agent.core.records import KillRecord, Record
from croupier.agent.core.recovery import recovered
from croupier.model.agent_orders import KillTask, LaunchTask
from croupier.model.ids import DEFAULT_ROLE
from croupier.model.isolation import Usage
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from tests.harness.agent_core import KEY, TOTAL, F, T, World, kill, task

USED = Usage(cpu_ms=10, memory_peak=5_000)
DISK = Exceeded(Reason.DISK_LIMIT, "its sandbox took 12 MiB, its limit is 10 MiB")
MEMORY = Exceeded(Reason.MEMORY_LIMIT, "it needed more memory than its limit of 8 MiB")
TERM = Signal(KEY, 7, SIGTERM)
FORCE = Signal(KEY, 7, SIGKILL)


def limited(max_completion_ms: int = 60_000, grace_ms: int = 3000) -> World:
    """Return a world with a task that runs as pid 7 since second 100."""
    world = World()
    info = replace(task(grace_ms=grace_ms), max_completion_ms=max_completion_ms)
    world.do(LaunchTask(F, info, DEFAULT_ROLE))
    world.now += 30
    world.do(ev.Started(KEY, 7))
    return world


def ended(world: World) -> tuple[TaskState, Reason, str]:
    status = world.status()
    return status.state, status.reason, status.message


def signals(world: World, seconds: float) -> list[Signal]:
    return [each for each in world.sleep(seconds) if isinstance(each, Signal)]


class NextLife(World):
    """The next agent on the records of a world, after `down_s` by the wall clock."""

    def __init__(self, before: World, down_s: float) -> None:
        super().__init__(registered=False)
        records: list[Record] = [e.record for e in before.effects if isinstance(e, Checkpoint)]
        self.state = recovered(records, TOTAL, life="1")
        self.wall_ms = 5000 + round(down_s * 1000)
        self.do(ev.AgentStarted())


class TestATaskThatDoesNotCompleteInTime:
    def test_is_asked_to_end_after_its_time_since_the_start_of_its_process(self) -> None:
        world = limited()
        assert signals(world, 59.9) == []
        assert signals(world, 0.2) == [TERM]
        status = world.status()
        assert (status.state, status.reason) == (TaskState.KILLING, Reason.TIMED_OUT)
        assert status.message == "it did not complete within 60 s"
        assert Checkpoint(KillRecord(F, T, 3000, Reason.TIMED_OUT)) in world.effects

    def test_is_killed_after_its_grace(self) -> None:
        world = limited(grace_ms=5000)
        assert signals(world, 64) == [TERM]
        assert signals(world, 2) == [FORCE]

    @pytest.mark.parametrize(
        ("exited", "how"),
        [
            (ev.Exited(KEY, signal=15), "ended by signal 15 (SIGTERM)"),
            (ev.Exited(KEY, exit_code=0), "exited with code 0"),
            (
                ev.Exited(KEY, unknown=True),
                "the shim of the task was killed; how the task ended is unknown",
            ),
        ],
    )
    def test_has_failed_with_the_limit(self, exited: ev.Exited, how: str) -> None:
        world = limited(1500)
        world.sleep(2)
        world.do(exited)
        told = f"it did not complete within 1.500 s; {how}"
        assert ended(world) == (TaskState.FAILED, Reason.TIMED_OUT, told)

    def test_that_ends_in_time_is_not_touched(self) -> None:
        world = limited()
        world.sleep(59)
        world.do(ev.Exited(KEY, exit_code=0))
        assert signals(world, 1000) == []
        assert ended(world) == (TaskState.FINISHED, Reason.NONE, "")

    def test_a_task_without_a_limit_runs_on(self) -> None:
        world = World().running()
        assert signals(world, 10_000_000) == []

    def test_a_kill_before_it_counts(self) -> None:
        world = limited()
        world.sleep(59)
        world.do(kill(grace_ms=5000))
        assert signals(world, 3) == [], "the kill has its own grace"
        world.do(ev.Exited(KEY, signal=15))
        assert ended(world)[:2] == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK)

    def test_a_kill_after_it_shortens_the_grace_only(self) -> None:
        world = limited(grace_ms=50_000)
        world.sleep(61)
        world.do(kill(grace_ms=1000))
        assert signals(world, 1.1) == [FORCE]
        world.do(ev.Exited(KEY, signal=9))
        assert ended(world)[:2] == (TaskState.FAILED, Reason.TIMED_OUT)

    def test_a_kill_during_the_start_counts(self) -> None:
        world = World()
        world.do(
            LaunchTask(F, replace(task(), max_completion_ms=1000), DEFAULT_ROLE),
            kill(grace_ms=9000),
            ev.Started(KEY, 7),
        )
        assert signals(world, 5) == []
        world.do(ev.Exited(KEY, signal=15))
        assert ended(world)[:2] == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK)

    def test_a_removed_agent_has_no_deadlines_left(self) -> None:
        world = limited()
        world.do(ev.Removed())
        assert world.state.next_deadline() is None


class TestTheNextAgent:
    @pytest.mark.parametrize(
        ("down_s", "age_s", "left_s"),
        [
            (20, 25.0, 35),
            (20, None, 40),
            (1000, 25.0, 35),
            (1000, None, 0),
            (-1000, None, 60),
            (0, 1000.0, 0),
        ],
    )
    def test_lets_a_task_run_for_the_rest_of_its_time(
        self, down_s: float, age_s: float | None, left_s: float
    ) -> None:
        world = NextLife(limited(), down_s)
        world.do(ev.Adopted(KEY, 7, age_s))
        if left_s:
            assert signals(world, left_s - 0.1) == []
        assert signals(world, 0.2) == [TERM]

    def test_counts_from_the_launch_if_the_earlier_one_did_not_see_the_start(self) -> None:
        before = World()
        before.do(LaunchTask(F, replace(task(), max_completion_ms=60_000), DEFAULT_ROLE))
        world = NextLife(before, 20)
        world.do(ev.Adopted(KEY, 7))
        assert world.status().state is TaskState.RUNNING
        assert signals(world, 39.9) == []
        assert signals(world, 0.2) == [TERM]

    def test_continues_to_end_a_task_that_timed_out(self) -> None:
        before = limited()
        before.sleep(61)
        world = NextLife(before, 0)
        world.do(ev.Adopted(KEY, 7))
        assert signals(world, 3) == [FORCE]
        world.do(ev.Exited(KEY, signal=9))
        told = "it did not complete within 60 s; ended by signal 9 (SIGKILL)"
        assert ended(world) == (TaskState.FAILED, Reason.TIMED_OUT, told)

    def test_tells_the_limit_if_only_the_record_of_the_kill_is_durable(self) -> None:
        before = limited()
        before.do(ev.LimitExceeded(KEY, "0-1", DISK))
        records = [e for e in before.effects if isinstance(e, Checkpoint)]
        before.effects = list(records[: records.index(_kill_record(records)) + 1])
        world = NextLife(before, 0)
        assert world.status().state is TaskState.RUNNING
        world.do(ev.Exited(KEY, signal=9))
        told = "it exceeded its disk limit; ended by signal 9 (SIGKILL)"
        assert ended(world) == (TaskState.FAILED, Reason.DISK_LIMIT, told)

    def test_tells_the_usage_of_a_run_whose_shim_was_killed(self) -> None:
        world = NextLife(limited(), 5)
        world.do(ev.Vanished(KEY, "its shim was killed", ending=Ending(USED, MEMORY)))
        assert ended(world)[:2] == (TaskState.FAILED, Reason.MEMORY_LIMIT)
        assert world.status().usage == USED


def _kill_record(records: list[Checkpoint]) -> Checkpoint:
    return next(each for each in records if isinstance(each.record, KillRecord))


class TestAnEndWithMeasurements:
    def test_carries_the_usage(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0, ending=Ending(USED)))
        assert world.status() == TaskStatus(
            F, T, world.state.agent_id, TaskState.FINISHED, Source.EXECUTOR,
            sequence=3, time_ms=5000, exit_code=0, pid=7, usage=USED,
        )  # fmt: skip

    def test_of_a_task_that_exceeded_a_limit_is_failed_with_its_reason(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, MEMORY)))
        told = f"{MEMORY.message}; ended by signal 9 (SIGKILL)"
        assert ended(world) == (TaskState.FAILED, Reason.MEMORY_LIMIT, told)

    def test_of_a_task_that_succeeded_all_the_same_is_finished_with_a_note(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=0, ending=Ending(USED, MEMORY)))
        assert ended(world) == (TaskState.FINISHED, Reason.NONE, MEMORY.message)

    def test_of_a_task_that_was_killed_on_request_is_killed_with_a_note(self) -> None:
        world = World().running()
        world.do(kill())
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, MEMORY)))
        told = f"ended by signal 9 (SIGKILL); {MEMORY.message}"
        assert ended(world) == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK, told)
        assert world.status().usage == USED

    def test_of_a_task_that_timed_out_is_timed_out_with_a_note(self) -> None:
        world = limited()
        world.sleep(61)
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, MEMORY)))
        state, reason, message = ended(world)
        assert (state, reason) == (TaskState.FAILED, Reason.TIMED_OUT)
        assert MEMORY.message in message

    def test_appends_notes(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, exit_code=3, ending=Ending(notes=("it met its limit of pids",))))
        told = "exited with code 3; it met its limit of pids"
        assert ended(world) == (TaskState.FAILED, Reason.COMMAND_EXECUTOR_FAILED, told)

    def test_whose_shim_was_killed_for_the_limit_tells_the_limit(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, unknown=True, ending=Ending(USED, MEMORY)))
        assert ended(world)[:2] == (TaskState.FAILED, Reason.MEMORY_LIMIT)

    def test_by_the_signal_for_too_large_files_is_told_as_the_disk_limit(self) -> None:
        world = World().running()
        world.do(ev.Exited(KEY, signal=25))
        told = "one of its files grew beyond its disk limit; ended by signal 25 (SIGXFSZ)"
        assert ended(world) == (TaskState.FAILED, Reason.DISK_LIMIT, told)

    def test_of_a_removed_agents_task_is_not_told(self) -> None:
        world = World().running()
        world.do(ev.Removed())
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, MEMORY)))
        assert world.state.is_idle


class TestATaskThatExceedsALimitNow:
    def test_is_killed_at_once_and_fails_with_its_reason(self) -> None:
        world = World().running()
        world.do(ev.LimitExceeded(KEY, "0-1", DISK))
        assert signals(world, 0) == [FORCE]
        status = world.status()
        assert (status.state, status.message) == (TaskState.KILLING, DISK.message)
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, DISK)))
        told = f"{DISK.message}; ended by signal 9 (SIGKILL)"
        assert ended(world) == (TaskState.FAILED, Reason.DISK_LIMIT, told)

    def test_tells_only_the_last_peak(self) -> None:
        world = World().running()
        world.do(ev.LimitExceeded(KEY, "0-1", DISK))
        last = Exceeded(Reason.DISK_LIMIT, "its sandbox took 14 MiB, its limit is 10 MiB")
        world.do(ev.Exited(KEY, signal=9, ending=Ending(USED, last)))
        told = f"{last.message}; ended by signal 9 (SIGKILL)"
        assert ended(world) == (TaskState.FAILED, Reason.DISK_LIMIT, told)

    def test_is_killed_once(self) -> None:
        world = World().running()
        world.do(ev.LimitExceeded(KEY, "0-1", DISK))
        sequence = world.status().sequence
        assert world.do(ev.LimitExceeded(KEY, "0-1", DISK)) == []
        assert world.status().sequence == sequence

    def test_in_the_grace_of_a_kill_loses_the_rest_of_it_and_is_killed(self) -> None:
        world = World().running(grace_ms=90_000)
        world.do(kill(), ev.LimitExceeded(KEY, "0-1", DISK))
        assert signals(world, 0) == [FORCE]
        world.do(ev.Exited(KEY, signal=9))
        assert ended(world)[:2] == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK)

    @pytest.mark.parametrize("run", ["0-2", ""])
    def test_another_run_is_not_touched(self, run: str) -> None:
        world = World().running()
        assert world.do(ev.LimitExceeded(KEY, run, DISK)) == []
        world.do(ev.Exited(KEY, exit_code=0))
        assert world.do(ev.LimitExceeded(KEY, run, DISK)) == []

    def test_an_unknown_task_is_no_error(self) -> None:
        assert World().do(ev.LimitExceeded(KEY, "0-1", DISK)) == []

    def test_a_task_that_is_being_started_waits_for_its_start(self) -> None:
        world = World()
        world.do(LaunchTask(F, task(), DEFAULT_ROLE))
        assert world.do(ev.LimitExceeded(KEY, "0-1", DISK)) == []
        world.do(ev.Started(KEY, 7), ev.LimitExceeded(KEY, "0-1", DISK))
        assert world.status().reason is Reason.DISK_LIMIT


def test_an_operator_kills_a_task_that_timed_out() -> None:
    """The first cause counts, not a later kill."""
    world = limited()
    world.sleep(61)
    world.do(KillTask(F, T, 0, Reason.KILLED_BY_OPERATOR), ev.Exited(KEY, signal=9))
    assert ended(world)[:2] == (TaskState.FAILED, Reason.TIMED_OUT)
