"""The memory that peers take is bounded, for each and for all."""

from __future__ import annotations

import gc
import types
from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, Received
from croupier.master.core.messages import verdict_size
from croupier.master.core.settings import Settings
from croupier.model.errors import Conflict, TooSlow
from croupier.model.ids import TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.world import World, make_task

BAD = replace(make_task("x"), task_id=TaskId(""))


def call_until_cut_off(world: World, session: SessionId) -> None:
    """Make calls without ever marking a verdict as seen."""
    for seq in range(1, 200):
        world.do(FrameworkCalled(session, seq, calls.Kill(TaskId("no such task"))))
        if session in world.closed:
            return
        assert world.state.verdicts.total < 11_000


def test_equal_errors_of_a_verdict_are_shared_and_hold_no_frames() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    verdict = world.accept(session, *[BAD] * 500)
    assert len({id(task.error) for task in verdict.tasks}) == 1
    verdict = world.accept(session, offers=["c-1-O999"])
    errors = [*(task.error for task in verdict.tasks), verdict.error]
    gc.collect()
    for error in errors:
        assert error is None or error.__traceback__ is None
    held = gc.get_referents(*filter(None, errors))
    assert not any(isinstance(each, types.FrameType) for each in held)


def test_framework_that_marks_no_verdicts_as_seen_is_disconnected() -> None:
    world = World(settings=Settings(verdict_bytes=10_000))
    one, other = world.framework(), world.framework()
    world.call(other, calls.Revive())
    call_until_cut_off(world, one)
    assert isinstance(world.closed[one], TooSlow)
    world.call(other, calls.Revive())
    assert other not in world.closed


def test_framework_with_most_verdicts_is_disconnected_when_all_exceed_the_budget() -> None:
    world = World(settings=Settings(all_verdict_bytes=10_000))
    small = world.framework()
    world.call(small, calls.Revive())
    large = world.framework()
    call_until_cut_off(world, large)
    assert isinstance(world.closed[large], TooSlow)
    assert world.state.verdicts.total < 1_000
    # After it reconnected its calls are answered, but the earlier verdicts are forgotten.
    again = world.framework(framework_id=world.framework_id(large))
    verdict = world.call(again, calls.Revive(), seq=1)
    assert isinstance(verdict.error, Conflict)
    assert small not in world.closed


def test_verdicts_marked_as_seen_hold_no_memory() -> None:
    world = World()
    session = world.framework()
    for _ in range(5):
        verdict = world.call(session, calls.Revive())
    assert world.state.verdicts.total == 5 * verdict_size(verdict)
    world.do(Received(session, verdicts_seen=3))
    assert world.state.verdicts.total == 2 * verdict_size(verdict)
    world.call(session, calls.Teardown())
    assert world.state.verdicts.total == 0


def large_task(task_id: str, size: int = 10_000) -> TaskInfo:
    environment = {"WHERE": "x" * size}
    return replace(make_task(task_id), command=Command(shell="true", environment=environment))


def test_ended_tasks_are_slimmed() -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB;ports:[1-1000]")
    session = world.framework()
    framework_id = world.framework_id(session)
    ports = Resources({"cpus": 100}, {"ports": tuple((2 * n, 2 * n) for n in range(1, 100))})
    large = replace(large_task("large"), resources=ports, labels=(("a", "b"),))
    verdict = world.accept(session, make_task("small"), large)
    assert [task.error for task in verdict.tasks] == [None, None]
    before = world.state.descriptions.total
    assert before > 10_000
    for task_id in ("small", "large"):
        world.finish(agent, framework_id, task_id)
    assert world.state.descriptions.total < 100
    for task_id in ("small", "large"):
        ack = (world.agent_id(agent), TaskId(task_id), 2)
        world.call(session, calls.Acknowledge((ack,)))
    assert world.state.descriptions.total == 0
    small, slim = world.state.ended
    assert small.info == make_task("small")
    assert slim.info == TaskInfo(large.task_id, Command(), Resources.parse("cpus:0.1"))


@pytest.mark.parametrize(
    "settings",
    [Settings(description_bytes=50_000), Settings(all_description_bytes=50_000)],
    ids=["each", "all"],
)
def test_launches_above_the_text_budget_are_refused(settings: Settings) -> None:
    world = World(settings=settings)
    agent = world.agent("cpus:64;mem:64GB")
    session = world.framework()
    verdict = world.accept(session, *(large_task(f"t{number}") for number in range(8)))
    errors = [task.error for task in verdict.tasks]
    assert [error is None for error in errors] == [True] * 5 + [False] * 3
    assert isinstance(errors[-1], Conflict)
    assert "too much text" in str(errors[-1])
    for number in range(3):
        world.finish(agent, world.framework_id(session), f"t{number}")
    world.call(session, calls.Revive())
    assert world.accept(session, large_task("later")).tasks[0].error is None
