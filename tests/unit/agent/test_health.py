"""The agent's health after many events; `scenarios/agent/health.txt` tells each rule."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from croupier.agent.core import events as ev
from croupier.agent.core import health
from croupier.agent.core.effects import CheckHealth, Effect, HealthChanged, RefuseLaunch
from croupier.agent.core.events import Event, HealthChecked, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.model.agent_orders import LaunchTask
from croupier.model.health import WORK_DIR, Problem
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo

GONE = Problem(WORK_DIR, "it was removed")


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


def test_launches_that_fail_for_bad_commands_do_not_count() -> None:
    world = World()
    for number in range(100):
        effects = world.fail(f"F{number % 7}", cause="")
        assert not any(isinstance(each, CheckHealth) for each in effects)
    assert world.is_healthy


def test_a_successful_launch_resets_the_count() -> None:
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
