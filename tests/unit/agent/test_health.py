"""The agent's health: problems, refused launches, and the waits between checks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from croupier.agent.core import events as ev
from croupier.agent.core import health
from croupier.agent.core.effects import (
    CheckHealth,
    Checkpoint,
    Effect,
    HealthChanged,
    RefuseLaunch,
    Spawn,
)
from croupier.agent.core.events import Event, HealthChecked, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.model.agent_orders import LaunchTask
from croupier.model.health import DISK, LAUNCH, WORK_DIR, Problem
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo

GONE = Problem(WORK_DIR, "it was removed")
FULL = Problem(DISK, "the disk of the agent's work dir is full")


class World:
    """The core of a registered agent, and a clock that the test sets."""

    def __init__(self) -> None:
        self.state = AgentState.of(Resources.parse("cpus:100"))
        self.now = 0.0
        self.count = 0
        self.do(ev.AgentStarted(), ev.Connected(1), ev.Registered(self.state.agent_id))

    def do(self, *events: Event) -> list[Effect]:
        done: list[Effect] = []
        for event in events:
            done += step(self.state, event, Now(self.now, 0))
            self.state.check()
        return done

    def launch(self, framework_id: str = "F1") -> list[Effect]:
        self.count += 1
        info = TaskInfo(
            TaskId(f"t{self.count}"), Command(("x",)), Resources.parse("cpus:1"), grace_ms=0
        )
        return self.do(
            LaunchTask(FrameworkId(framework_id), info, DEFAULT_ROLE, framework_epoch=self.count)
        )

    def fail(self, framework_id: str = "F1", cause: str = "no processes") -> list[Effect]:
        """Launch a task whose process cannot be started; return the effects."""
        self.launch(framework_id)
        key = (FrameworkId(framework_id), TaskId(f"t{self.count}"))
        return self.do(ev.LaunchFailed(key, "it failed", cause=cause))

    def check(self, *problems: Problem, after: float = 0.0) -> list[Effect]:
        """Let time pass, and answer the check that the state requests."""
        self.now += after
        return self.do(HealthChecked(problems, not self.state.health.is_healthy))

    @property
    def is_healthy(self) -> bool:
        return self.state.health.is_healthy


def wait(effects: list[Effect]) -> float:
    """Return the longest wait for the next check."""
    (asked,) = [each for each in effects if isinstance(each, CheckHealth)]
    return asked.within_s


def test_a_healthy_agent_is_checked_at_intervals() -> None:
    assert World().check() == [CheckHealth(health.CHECK_EVERY_S)]


def test_a_problem_is_reported_at_once_and_launches_are_refused_without_a_record() -> None:
    world = World()
    assert HealthChanged(1, (GONE,)) in world.check(GONE)
    key = (FrameworkId("F1"), TaskId("t1"))
    message = "the agent cannot launch tasks now: work-dir: it was removed"
    assert world.launch() == [RefuseLaunch(1, key, message)]
    assert not world.state.tasks
    assert not world.state.epochs


def test_with_a_full_disk_launches_are_refused_and_ends_recorded() -> None:
    world = World()
    world.launch()
    key = (FrameworkId("F1"), TaskId("t1"))
    world.do(ev.Started(key, 7))
    assert HealthChanged(1, (FULL,)) in world.do(ev.DiskFull())
    assert not world.do(ev.DiskFull())
    assert not any(isinstance(each, Checkpoint) for each in world.launch())
    ended = world.do(ev.Exited(key, exit_code=3))
    assert any(isinstance(each, Checkpoint) for each in ended)
    world.check(after=1.0)
    assert any(isinstance(each, Spawn) for each in world.launch())


def test_a_launch_is_not_refused_after_its_session_ended() -> None:
    world = World()
    world.check(GONE)
    world.do(ev.Disconnected(1))
    assert not world.launch()


def test_waits_between_checks_double_up_to_a_bound() -> None:
    world = World()
    waits = [wait(world.check(GONE, after=waited)) for waited in (0, 1, 2, 4, 8, 16, 32, 64, 128)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_waits_continue_after_a_quick_relapse_and_restart_after_a_steady_time() -> None:
    world = World()
    waits = []
    for _ in range(4):
        waits.append(wait(world.check(GONE, after=10.0)))
        world.check(after=1.0)
        assert world.is_healthy
    assert waits == [1, 2, 4, 8]
    assert wait(world.check(GONE, after=health.STEADY_S + 1)) == 1


def test_only_a_thorough_check_ends_a_problem() -> None:
    world = World()
    world.check(GONE)
    world.do(HealthChecked(()))
    assert not world.is_healthy
    assert HealthChanged(1, ()) in world.do(HealthChecked((), is_thorough=True))
    assert world.is_healthy


class TestFailedLaunches:
    def test_the_first_one_triggers_a_check_at_once(self) -> None:
        assert CheckHealth(0.0) in World().fail()

    def test_three_of_several_frameworks_make_the_agent_unhealthy(self) -> None:
        world = World()
        world.fail("F1")
        world.fail("F2")
        assert world.is_healthy
        effects = world.fail("F1")
        (changed,) = [each for each in effects if isinstance(each, HealthChanged)]
        (problem,) = changed.problems
        assert (problem.part, problem.message) == (
            LAUNCH,
            "3 launches in a row have failed; last cause: no processes",
        )
        assert wait(effects) == health.FIRST_RETRY_S
        world.check(after=1.0)
        assert world.is_healthy

    def test_ten_of_one_framework_make_the_agent_unhealthy(self) -> None:
        world = World()
        for _ in range(health.FAILURES_OF_ONE - 1):
            world.fail()
        assert world.is_healthy
        world.fail()
        assert not world.is_healthy

    def test_bad_commands_do_not_count(self) -> None:
        world = World()
        for number in range(100):
            effects = world.fail(f"F{number % 7}", cause="")
            assert not any(isinstance(each, CheckHealth) for each in effects)
        assert world.is_healthy

    def test_a_successful_launch_resets_the_count(self) -> None:
        world = World()
        for number in range(50):
            world.fail(f"F{number}")
            world.fail(f"F{number}")
            world.launch()
            world.do(ev.Started((FrameworkId("F1"), TaskId(f"t{world.count}")), 1000 + number))
        assert world.is_healthy


EVENTS = st.sampled_from(["check", "trouble", "room", "fail", "launch", "reconnect", "start"])


@given(st.lists(EVENTS, max_size=60), st.integers(0, 99))
def test_the_master_always_has_the_current_problems(happens: list[str], seed: int) -> None:
    """The last report or REGISTER has the current problems, and a check is always planned."""
    world, rng = World(), random.Random(seed)
    session, known = 1, world.state.health.problems
    effects = world.check()
    planned = wait(effects)
    for what in happens:
        before = world.state.health.problems
        match what:
            case "check":
                effects = world.check(after=planned)
            case "trouble":
                effects = world.check(GONE, after=rng.choice((0.5, 200.0)))
            case "room":
                effects = world.do(ev.DiskFull())
            case "fail" if world.is_healthy:
                effects = world.fail(f"F{rng.randrange(3)}")
            case "launch":
                effects = world.launch()
                refused = [each for each in effects if isinstance(each, RefuseLaunch)]
                assert bool(refused) == (bool(before) and world.state.session is not None)
            case "reconnect":
                session += 1
                world.do(ev.Disconnected(session - 1))
                effects = world.do(ev.Connected(session), ev.Registered(AgentId("")))
                known = world.state.health.problems
        for each in effects:
            if isinstance(each, HealthChanged):
                assert each.session == session
                known = each.problems
            elif isinstance(each, CheckHealth):
                planned = each.within_s
                assert each.is_thorough == (not world.is_healthy)
        assert known == world.state.health.problems
        assert planned <= health.LAST_RETRY_S
