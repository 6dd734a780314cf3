"""Backfill behind soft reservations, with the times of real tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.model.task import TaskInfo
from tests.harness.world import World, make_task


def timed(task_id: str, cpus: int, seconds: int = 0) -> TaskInfo:
    return replace(make_task(task_id, f"cpus:{cpus}"), max_completion_ms=1000 * seconds)


@pytest.mark.parametrize(
    ("seconds", "launched"), [(0, False), (95, False), (65, False), (64, True), (10, True)]
)
def test_a_task_that_ends_in_time_runs_beside_a_waiting_one(seconds: int, launched: bool) -> None:
    """The large task needs 4 of 6 cpus, of which a task has 3 for 100 s; 5 s of them are over."""
    world = World()
    world.agent("cpus:2", "h2")
    busy = world.framework("small", suppressed=True)
    world.call(busy, calls.Submit((timed("elsewhere", 2),)))
    host = world.agent("cpus:6", "h1")
    world.call(busy, calls.Submit((timed("running", 3, 100),)))
    large = world.framework("large", suppressed=True)
    world.call(large, calls.Submit((timed("large", 4),)))
    world.now += 5.0
    world.call(busy, calls.Submit((timed("t", 1, seconds),)))
    assert ("t" in [task.task_id for task in world.launches(host)]) is launched
    world.finish(host, world.framework_id(busy), "running")
    assert "large" in [task.task_id for task in world.launches(host)]
