"""Filters of lists, and the times of their items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from croupier.master.core.tasks import Task
from croupier.master.services.lists import all_tasks
from croupier.master.services.paging import KEYS_AT_ONCE, NOT_LISTED, Listed, Pages
from croupier.master.services.views import STEP_MS, WallTime
from croupier.model.errors import InvalidRequest
from croupier.model.suggestions import unknown_word
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task


class Clock:
    """A clock whose wall time is a constant ahead of it, until it is set."""

    def __init__(self, world: World) -> None:
        self.world, self.ahead_ms = world, 10_000_000

    def now(self) -> float:
        return self.world.now

    def wall_ms(self) -> int:
        return round(self.world.now * 1000) + self.ahead_ms


class Scene:
    """Two agents; a framework with three tasks in `ads/prod`; one of them runs."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = Clock(self.world)
        self.wall = WallTime(self.clock)
        self.agent = self.world.agent("cpus:4;mem:4GB", "node-1")
        self.session = self.world.framework("ads/prod")
        self.framework_id = self.world.framework_id(self.session)
        self.world.accept(
            self.session, *(make_task(f"train-{n}", "cpus:1;mem:1GB") for n in range(3))
        )
        self.world.report(self.agent, self.framework_id, "train-0", TaskState.RUNNING, 1)

    def tasks(self, **fields: object) -> list[str]:
        listed = all_tasks(pb.ListTasksRequest(**fields), self.wall)  # type: ignore[arg-type]
        keys = [key for key in listed.keys(self.world.state) if key]
        views = [listed.view(self.world.state, key) for key in keys]
        assert None not in views
        return [view.task.task_id for view in views if view is not None]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


ALL = ["train-0", "train-1", "train-2"]


def test_a_list_is_named_by_its_filter(scene: Scene) -> None:
    def key(**fields: object) -> str:
        return all_tasks(pb.ListTasksRequest(**fields), scene.wall).name  # type: ignore[arg-type]

    fields = [
        {},
        {"framework_id": "f"},
        {"role": "f"},
        {"agent": "f"},
        {"text": "f"},
        {"states": [1]},
        {"states": [1, 2]},
        {"min_age_ms": 1},
        {"max_age_ms": 1},
    ]
    assert len({key(**each) for each in fields}) == len(fields)  # type: ignore[arg-type]
    assert key(states=[2, 1]) == key(states=[1, 2])
    assert key(page_size=1, page_token="x", with_commands=True) == key()
    assert len(key(text="x" * 500)) < 30
    with pytest.raises(InvalidRequest, match="500"):
        key(text="x" * 501)
    with pytest.raises(InvalidRequest, match="state"):
        key(states=[99])


def test_times_of_tasks_are_by_the_wall_clock(scene: Scene) -> None:
    scene = Scene()
    begun_ms = scene.wall.now_ms
    scene.world.now += 5.0
    listed = all_tasks(pb.ListTasksRequest(task_id="train-0"), scene.wall)
    (key,) = (key for key in listed.keys(scene.world.state) if key)
    view = listed.view(scene.world.state, key)
    assert view is not None
    assert view.since_ms == view.placed_ms <= begun_ms
    assert not view.HasField("submitted_ms")
    assert not view.HasField("ended_ms")
    scene.clock.ahead_ms += STEP_MS
    again = listed.view(scene.world.state, key)
    assert again == view, "small steps of the clock change nothing"
    scene.clock.ahead_ms += 1
    again = listed.view(scene.world.state, key)
    assert again is not None
    assert again.since_ms == view.since_ms + STEP_MS + 1


def test_a_task_that_was_found_is_as_old_as_its_agent_says(scene: Scene) -> None:
    """After a failover: the new master found them a second ago, and they started before."""
    scene = Scene()
    (framework,) = scene.world.state.frameworks.values()
    started = {"train-0": 3_600_000, "train-1": 0, "train-2": -60_000}
    for task in framework.tasks.values():
        ago_ms = started[task.task_id]
        status = replace(
            task.status,
            state=TaskState.RUNNING if ago_ms else TaskState.STAGING,
            time_ms=scene.wall.now_ms - ago_ms,
        )
        info, role = task.info, task.role
        framework.tasks[task.task_id] = Task(
            info, task.framework_id, task.agent_id, role, status, scene.world.now
        )
    scene.world.now += 1.0
    assert scene.tasks(min_age_ms=3_600_000) == ["train-0"]
    # The start of the last one is in the future of this clock.
    assert scene.tasks(max_age_ms=2_000) == ["train-1", "train-2"]
    ages = []
    for name in ALL:
        listed = all_tasks(pb.ListTasksRequest(task_id=name), scene.wall)
        view = listed.view(scene.world.state, f"a{scene.framework_id}/{name}")
        assert view is not None
        ages.append(scene.wall.now_ms - view.since_ms)
    assert ages == [3_601_000, 1_000, 1_000]
    # A task that this master got is as old as this master knows, whatever its agent's clock says.
    for task in framework.tasks.values():
        task.placed = task.since
    assert scene.tasks(min_age_ms=2_000) == []


async def test_the_search_for_few_items_is_made_in_slices(scene: Scene) -> None:
    turns = 0

    async def read(query):  # type: ignore[no-untyped-def]
        nonlocal turns
        turns += 1
        return query(scene.world.state)

    class Slow(Clock):
        def now(self) -> float:
            self.world.now += 0.003
            return self.world.now

    def keys(_: object) -> Iterator[str]:
        for number in range(10 * KEYS_AT_ONCE):
            yield f"{number:06}" if number % 500 == 0 else NOT_LISTED
        yield "000000"

    listed = Listed("few", keys, lambda _, key: pb.AgentView(state=key))
    found, token = await Pages(read, Slow(World())).page(listed, pb.ListAgentsRequest())
    assert [each.state for each in found] == ["000000", "000500"]
    assert not token
    assert turns >= 5


def test_an_unknown_word_names_the_nearest_known_one_and_all() -> None:
    known = ("RUNNING", "FINISHED")
    assert unknown_word("state", "runing", known) == (
        "unknown state 'runing': did you mean RUNNING? It is one of RUNNING, FINISHED"
    )
    assert unknown_word("state", "x", known) == "unknown state 'x': one of RUNNING, FINISHED"
