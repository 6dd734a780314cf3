"""Lined-up tasks at the agent: each starts in place of a task like it, or is returned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Effect, HealthChanged, ReturnTasks, SendUpdates, Spawn
from croupier.model.agent_orders import KillTask, LaunchTask, RecallTask
from croupier.model.health import Problem
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, Role, TaskId
from croupier.model.task import Command, Reason
from tests.harness.agent_core import KEY, F, World, task


def order(
    task_id: str, resources: str = "cpus:1;mem:100MB", role: str = DEFAULT_ROLE
) -> LaunchTask:
    return LaunchTask(F, task(task_id, resources), Role(role), lined_up=True)


def lined(*task_ids: str) -> World:
    """Return an agent that runs t1, and tasks that are lined up behind it."""
    world = World().running()
    for task_id in task_ids:
        assert not world.do(order(task_id))
    return world


def told(effects: list[Effect]) -> list[str]:
    """Return what was started, sent and returned."""
    found: list[str] = []
    for effect in effects:
        match effect:
            case Spawn(key):
                found.append(f"start {key[1]}")
            case SendUpdates(_, statuses):
                found += [
                    f"{each.task_id} {each.state.name}"
                    + (f" then {each.successor}" if each.successor else "")
                    for each in statuses
                ]
            case ReturnTasks(_, keys):
                found += [f"return {key[1]}" for key in keys]
            case _:
                pass
    return found


def key(task_id: str) -> tuple[FrameworkId, TaskId]:
    return (F, TaskId(task_id))


def test_a_lined_up_task_starts_when_one_like_it_ends() -> None:
    world = lined("t2", "t3")
    free = world.state.free
    assert told(world.do(ev.Exited(KEY, 0))) == ["t1 FINISHED then t2", "t2 STARTING", "start t2"]
    assert world.state.free == free
    world.do(ev.Started(key("t2"), 8))
    assert told(world.do(ev.Exited(key("t2"), 1)))[0] == "t2 FAILED then t3"
    world.do(ev.Started(key("t3"), 9))
    assert told(world.do(ev.Exited(key("t3"), 0))) == ["t3 FINISHED"]
    assert world.state.free == world.state.total


def test_a_task_that_could_not_be_started_is_succeeded_too() -> None:
    world = lined("t2")
    world.do(ev.Exited(KEY, 0))
    assert not world.do(order("t3"))
    failed = world.do(ev.LaunchFailed(key("t2"), "no such program", 127))
    assert told(failed) == ["t2 FAILED then t3", "t3 STARTING", "start t3"]


@pytest.mark.parametrize(
    "other",
    [
        order("t2", resources="cpus:2;mem:100MB"),
        order("t2", role="other"),
        replace(order("t2"), framework_id=FrameworkId("F2")),
    ],
)
def test_a_task_waits_for_one_that_it_can_succeed(other: LaunchTask) -> None:
    world = lined()
    assert told(world.do(other)) == []
    assert told(world.do(ev.Exited(KEY, 0))) == ["t1 FINISHED"]
    assert told(world.do(RecallTask(other.framework_id, TaskId("t2")))) == ["return t2"]


def test_a_line_that_was_late_waits_for_the_next_launch() -> None:
    world = lined()
    world.do(ev.Exited(KEY, 0))
    assert told(world.do(order("t2"))) == []
    world.do(replace(order("t3"), lined_up=False))
    world.do(ev.Started(key("t3"), 8))
    assert told(world.do(ev.Exited(key("t3"), 0)))[0] == "t3 FINISHED then t2"


def test_a_task_that_is_not_valid_is_returned() -> None:
    invalid = replace(order("t2"), task=replace(task("t2"), command=Command(argv=("",))))
    assert told(lined().do(invalid)) == ["return t2"]


def test_a_task_with_a_sandbox_is_returned() -> None:
    assert told(lined().do(ev.LaunchIntoSandbox(order("t2")))) == ["return t2"]


def test_an_order_that_comes_twice_lines_up_once() -> None:
    world = lined("t2")
    assert not world.do(order("t2"))
    world.do(ev.Exited(KEY, 0))
    assert not world.do(order("t2"))
    assert not world.state.line


def test_a_recalled_task_is_returned_once_and_not_started() -> None:
    world = lined("t2")
    assert told(world.do(RecallTask(*key("t2")))) == ["return t2"]
    assert not world.do(RecallTask(*key("t2")))
    assert told(world.do(ev.Exited(KEY, 0))) == ["t1 FINISHED"]


def test_a_recall_of_a_started_task_has_no_effect() -> None:
    world = lined("t2")
    world.do(ev.Exited(KEY, 0))
    assert not world.do(RecallTask(*key("t2")))
    assert world.state.is_live(key("t2"))


def test_a_killed_task_is_not_succeeded() -> None:
    """The kill may free its resources for another framework."""
    world = lined("t2")
    world.do(KillTask(F, KEY[1], None, Reason.PREEMPTED))
    assert told(world.do(ev.Exited(KEY, signal=15))) == ["t1 KILLED"]


def test_a_kill_order_for_a_lined_up_task_returns_it() -> None:
    world = lined("t2")
    assert told(world.do(KillTask(*key("t2"), None, Reason.KILLED_BY_FRAMEWORK))) == ["return t2"]
    assert key("t2") not in world.state.tasks


def test_the_line_is_forgotten_with_the_session() -> None:
    world = lined("t2")
    world.do(ev.Disconnected(1))
    assert not world.state.line
    assert not world.do(order("t3"))
    assert told(world.do(ev.Exited(KEY, 0))) == []
    assert list(world.state.tasks) == [KEY]


def test_an_agent_that_is_removed_forgets_its_line() -> None:
    world = lined("t2")
    world.do(ev.Removed())
    assert not world.state.line


def test_an_agent_that_stops_or_is_unhealthy_returns_its_line() -> None:
    assert "return t2" in told(lined("t2").do(ev.StopRequested()))
    world = lined("t2")
    changed = world.do(ev.HealthChecked((Problem("disk", "is full"),)))
    assert any(isinstance(each, HealthChanged) for each in changed)
    assert told(world.do(ev.Exited(KEY, 0))) == ["t1 FINISHED"]
    assert told(world.do(RecallTask(*key("t2")))) == ["return t2"]
    assert told(world.do(order("t3"))) == ["return t3"]
