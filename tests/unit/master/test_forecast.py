"""When a waiting task may start: learned durations, and rehearsals of what is to come."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.allocator import Allocator
from croupier.master.allocator.node import Turn
from croupier.master.core import calls, forecast
from croupier.master.core.durations import (
    FULL,
    MAX_KINDS,
    Durations,
    Histogram,
    bucket_of,
    left_ms,
    most_ms,
)
from croupier.master.core.events import AllocationDue, TimePassed
from croupier.master.core.forecast import Forecast, foretell, picture_of, targets_of
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.services.forecasts import Forecasts
from croupier.model.demand import Placement
from croupier.model.errors import Conflict, NotFound
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.roles import RoleSettings
from croupier.model.task import TaskInfo
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import task_pb2
from tests.harness.invariants import check_state
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.still_clock import StillClock
from tests.harness.world import World, devices_of, in_gang, make_task, with_devices

MS = st.integers(1, 10**9)
LISTED = ("t0", "t3", "t1", "t2", "g0", "g1", "gone")


T = TypeVar("T")


def finished(steps: Generator[object, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found: T = over.value
            return found


@given(MS)
def test_a_bucket_is_a_fifth_wide_at_most(ms: int) -> None:
    bucket = bucket_of(ms)
    assert most_ms(bucket) >= ms
    assert bucket == 0 or most_ms(bucket - 1) < ms
    assert most_ms(bucket) <= max(ms * 1.19, ms + 1)


@given(st.lists(MS, min_size=1, max_size=100), st.integers(1, 999), st.integers(0, 10**9))
def test_quantiles_are_those_of_the_durations_that_are_longer(
    runs: list[int], per_mille: int, above: int
) -> None:
    histogram = Histogram()
    for ms in runs:
        histogram.add(ms)
    longer = sorted(bound for ms in runs if (bound := most_ms(bucket_of(ms))) > above)
    expected = longer[-(-per_mille * len(longer) // 1000) - 1] if longer else None
    assert histogram.law().quantile_ms(per_mille, above) == expected


def test_the_latest_runs_count_most() -> None:
    histogram = Histogram()
    for _ in range(FULL * 4):
        histogram.add(1_000)
    for _ in range(FULL):
        histogram.add(60_000)
    assert histogram.runs < FULL
    assert (histogram.law().quantile_ms(500) or 0) >= 60_000


def test_few_runs_of_a_name_are_taken_for_those_of_its_framework() -> None:
    known = Durations()
    for ms in (1_000, 2_000, 3_000):
        known.note("train", Role("ml"), f"epoch-{ms}", ms)
    assert known.of("train", Role("ml"), "epoch-1000") == known.of("train", Role("ml"))
    assert known.of("train", Role("ads")) is None
    for number in range(MAX_KINDS):
        known.note("batch", Role("ml"), f"t{number}", 1_000)
    assert len(known) == MAX_KINDS
    assert known.of("train", Role("ml")) is None
    assert known.of("batch", Role("ml")) is not None


def test_a_task_ends_at_its_declared_time_at_the_latest() -> None:
    law = Histogram()
    for _ in range(4):
        law.add(100_000)
    whole = law.law().quantile_ms(500)
    assert whole is not None
    assert left_ms(law.law(), 0, 40_000, 500) == whole - 40_000
    assert left_ms(law.law(), 50_000, 40_000, 500) == 10_000
    # Longer than all before: in the median as long again.
    assert left_ms(law.law(), 0, 400_000, 500) == 400_000
    assert left_ms(None, 0, 1_000, 500) is None
    assert left_ms(None, 5_000, 1_000, 999) == 4_000
    assert left_ms(None, 5_000, 9_000, 1) == 0


class Scene(World):
    """Agents of 4 cpus, and a framework whose tasks are submitted."""

    def __init__(self, agents: int = 1, features: str = "") -> None:
        super().__init__()
        for number in range(agents):
            self.agent("cpus:4;mem:64GB", agent_id=f"a{number}", features=features)
        self.train = self.framework("ml", name="train", suppressed=True)
        self.framework_id_ = self.framework_id(self.train)

    def submit(self, *tasks: TaskInfo, by: int | None = None) -> None:
        verdict = self.call(self.train, calls.Submit(tasks))
        assert not any(each.error for each in verdict.tasks), verdict

    def learn(self, seconds: float, name: str = "train", role: str = "ml") -> None:
        for _ in range(4):
            self.state.durations.note(name, Role(role), "", round(seconds * 1000))

    def forecasts(self, task_id: str = "") -> list[Forecast]:
        framework = self.state.frameworks[self.framework_id_]
        task = framework.tasks[TaskId(task_id)] if task_id else None
        targets = targets_of(self.state, framework, task)
        picture = finished(picture_of(self.state, self.now))
        assert picture is not None
        found = finished(foretell(picture, targets))
        assert finished(foretell(picture, targets)) == found
        check_state(self.state)
        return found


def ids(number: int, cpus: int = 4, first: int = 0) -> list[TaskInfo]:
    return [make_task(f"t{n}", f"cpus:{cpus};mem:1GB") for n in range(first, first + number)]


def test_tasks_of_a_queue_start_one_after_the_other() -> None:
    scene = Scene()
    scene.learn(100.0)
    scene.submit(*ids(4))
    (nxt,) = scene.forecasts()
    assert (nxt.target.number, nxt.problem) == (1, "")
    assert nxt.median_s is not None
    assert nxt.late_s is not None
    assert 100 <= nxt.median_s <= nxt.late_s <= 120
    (third,) = scene.forecasts("t3")
    assert third.median_s is not None
    assert 300 <= third.median_s <= 360
    scene.now += 60.0
    (later,) = scene.forecasts()
    assert later.median_s is not None
    assert abs(nxt.median_s - later.median_s - 60.0) < 1.0


def test_a_wide_spread_gives_a_late_quantile() -> None:
    scene = Scene()
    for seconds in (10, 10, 10, 10, 10, 10, 10, 1_000, 1_000, 1_000):
        scene.state.durations.note("train", Role("ml"), "", seconds * 1000)
    scene.submit(*ids(2))
    (found,) = scene.forecasts()
    assert found.median_s is not None
    assert found.late_s is not None
    assert found.median_s < 15 < 900 < found.late_s


def test_a_forecast_that_cannot_be_given_says_why() -> None:
    scene = Scene()
    scene.submit(*ids(2))
    assert "not known how long a task ahead" in scene.forecasts()[0].problem
    scene.learn(1.0)
    scene.submit(*ids(1, cpus=9, first=5))
    assert "makes no room" in scene.forecasts("t5")[0].problem
    assert scene.forecasts("t1")[0].problem == ""


def test_a_declared_time_is_as_good_as_a_learned_one() -> None:
    scene = Scene()
    first, second = ids(2)
    scene.submit(replace(first, max_completion_ms=30_000), second)
    (found,) = scene.forecasts()
    assert (found.median_s, found.late_s) == (30.0, 30.0)


def test_the_order_is_that_of_the_policy() -> None:
    """A role with less comes first, though its task was submitted later."""
    scene = Scene(agents=2)
    scene.learn(100.0)
    scene.submit(*ids(6))
    alone = scene.forecasts()[0].median_s
    other = scene.framework("ads", demand="cpus:4;mem:1GB", count=1, name="web")
    assert not scene.offers(other)
    scene.learn(1_000.0, "web", "ads")
    behind = scene.forecasts()[0].median_s
    assert alone is not None
    assert behind is not None
    assert behind >= alone


def test_a_role_without_a_turn_holds_nothing_back() -> None:
    scene = Scene()
    scene.learn(100.0)
    scene.learn(1_000.0, "web", "ads")
    scene.submit(*ids(2))
    web = scene.framework("ads", name="web", suppressed=True)
    assert not scene.call(web, calls.Submit(tuple(ids(1)))).tasks[0].error
    (found,) = scene.forecasts()
    assert found.median_s is not None
    assert found.median_s >= 1_000
    scene.state.allocator.set_turn(Role("ads"), Turn.NEVER, "its budget is used up")
    (found,) = scene.forecasts()
    assert found.median_s is not None
    assert found.median_s <= 120


def test_a_lined_up_task_takes_the_place_of_the_one_before() -> None:
    scene = Scene()
    scene.state.agents[AgentId("a0")].lines_up = True
    scene.learn(100.0)
    scene.submit(*ids(4))
    scene.do(AllocationDue())
    # t0 runs, and t1 is lined up behind it.
    assert [task.task_id for task in scene.state.agents[AgentId("a0")].line.values()] == ["t1"]
    (found,) = scene.forecasts("t2")
    assert found.median_s is not None
    assert 200 <= found.median_s <= 240


def test_tasks_wait_for_devices_of_their_kind() -> None:
    scene = Scene(agents=0)
    devices = devices_of("g0:a100:0,g1:a100:0,g2:v100:,g3:v100:")
    scene.agent("cpus:9;mem:64GB", agent_id="a0", devices=devices)
    pairs = [
        replace(
            with_devices(make_task(f"t{n}", "cpus:1;gpus:2"), "a100/nvlink"),
            max_completion_ms=32_000,
        )
        for n in range(3)
    ]
    scene.submit(*pairs)
    (nxt,) = scene.forecasts()
    (last,) = scene.forecasts("t2")
    assert (nxt.median_s, last.median_s) == (32.0, 64.0)


def test_a_gang_starts_when_all_of_it_fits() -> None:
    scene = Scene(agents=2, features="gangs")
    first, second = ids(2)
    scene.submit(
        replace(first, max_completion_ms=30_000), replace(second, max_completion_ms=50_000)
    )
    gang = in_gang("g", *ids(2, first=5))
    assert not scene.call(scene.train, calls.Submit(gang)).tasks[0].error
    assert [each.median_s for each in scene.forecasts()] == [50.0]


def test_the_members_of_a_gang_count_once_until_they_end() -> None:
    scene = Scene(agents=2, features="gangs")
    placement = Placement(max_per_agent=1)
    for number in range(3):
        members = ids(2, first=2 * number)
        timed = [replace(each, max_completion_ms=32_000) for each in members]
        scene.call(scene.train, calls.Submit(in_gang(f"g{number}", *timed), placement=placement))
    (last,) = scene.forecasts("t4")
    assert last.median_s == 64.0


class Reading:
    """A leader that answers reads at once, and counts them."""

    def __init__(self, state: State) -> None:
        self.state, self.reads = state, 0

    async def read(self, query: Callable[[State], Generator[object, None, T]]) -> T:
        self.reads += 1
        return finished(query(self.state))


async def test_callers_get_forecasts_of_what_they_may_view(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SecuredWorld("r1 client/owner register,run-as *", "r2 client/viewer view *")
    world.secured_agent("a1")
    session = world.owned("owner", "ml", name="train", suppressed=True)
    for _ in range(4):
        world.state.durations.note("train", Role("ml"), "", 60_000)
    world.call(session, calls.Submit(tuple(make_task(f"t{n}", "cpus:3;mem:1GB") for n in range(2))))
    framework_id = world.framework_id(session)
    leading = Reading(world.state)
    # Forecasts are kept, so each caller and task has objects of its own here.
    for name in ("owner", "viewer"):
        forecasts = Forecasts(cast("Any", leading), StillClock())
        found = await forecasts.of(framework_id, TaskId(""), caller(name))
        assert [(each.role, each.unit.cpus_milli) for each in found] == [("ml", 3000)]
        assert 60_000 <= found[0].median_ms <= found[0].late_ms <= 72_000
        reads = leading.reads
        assert await forecasts.of(framework_id, TaskId(""), caller(name)) == found
        assert leading.reads == reads
        assert (await forecasts.of(framework_id, TaskId("t1"), caller(name)))[0].median_ms
        with pytest.raises(Conflict, match="does not wait in a queue: it is STAGING"):
            await forecasts.of(framework_id, TaskId("t0"), caller(name))
        with pytest.raises(NotFound, match="no task 't9'"):
            await forecasts.of(framework_id, TaskId("t9"), caller(name))
    forecasts = Forecasts(cast("Any", leading), StillClock())
    with pytest.raises(NotFound, match="no framework"):
        await forecasts.of(framework_id, TaskId(""), caller("stranger"))
    monkeypatch.setattr(forecast, "MOST_TASKS", -1)
    found = await forecasts.of(framework_id, TaskId(""), caller("owner"))
    assert "tasks run" in found[0].problem
    assert not found[0].HasField("median_ms")


async def test_the_waiting_tasks_of_a_list_are_foretold_together() -> None:
    world = Scene(features="gangs")
    world.learn(60.0)
    tasks = [make_task(f"t{number}", "cpus:3;mem:1GB") for number in range(4)]
    world.submit(*tasks)
    world.submit(*in_gang("g", *(make_task(each, "cpus:2;mem:1GB") for each in ("g0", "g1"))))
    listed = {task_id: pb.TaskView(framework_id=world.framework_id_) for task_id in LISTED}
    for task_id, view in listed.items():
        view.task.task_id = task_id
        view.status.state = task_pb2.TASK_RUNNING if task_id == "t0" else task_pb2.TASK_QUEUED
    leading = Reading(world.state)
    forecasts = Forecasts(cast("Any", leading), StillClock())
    await forecasts.add_to(listed.values())
    assert leading.reads == 1
    alone = {task_id: world.forecasts(task_id)[0].median_s for task_id in ("t1", "t2", "t3")}
    found = {task_id: view.forecast for task_id, view in listed.items()}
    assert {task_id: found[task_id].median_ms / 1000 for task_id in alone} == alone
    assert len(set(alone.values())) == 3, "one after the other"
    assert found["g0"] == found["g1"]
    # One runs, and one has left its queue since it was listed.
    for task_id in ("t0", "gone"):
        assert not listed[task_id].HasField("forecast")


def test_the_places_of_queued_tasks_are_found_in_one_go() -> None:
    world = Scene()
    world.submit(*(make_task(f"t{number}", "cpus:3;mem:1GB") for number in range(6)))
    framework = world.state.frameworks[world.framework_id_]
    # The first one runs.
    wanted = (TaskId(f"t{number}") for number in (4, 0, 1))
    found = {task_id: place for task_id, _, place in framework.queues.positions(wanted)}
    assert found == {"t1": 1, "t4": 4}


class Exact(World):
    """Frameworks that submit tasks which run for exactly their declared times."""

    def __init__(self, sizes: list[int], limit: int) -> None:
        quiet = Settings(heartbeat_s=1e6, agent_timeout_s=1e7)
        roles = {Role("r0"): RoleSettings(limit={"cpus": limit * 1000})}
        super().__init__(state=State("m", quiet, Allocator(roles=roles)))
        self.hosts = {
            AgentId(f"a{number}"): self.agent(f"cpus:{size};mem:64GB", agent_id=f"a{number}")
            for number, size in enumerate(sizes)
        }
        self.ends: dict[tuple[FrameworkId, TaskId], float] = {}

    def run_until(self, done: Callable[[], bool]) -> None:
        """End tasks at their times, until nothing runs or `done`."""
        while not done():
            running = [
                task
                for framework in self.state.frameworks.values()
                for task in framework.tasks.values()
                if task.is_active
            ]
            if not running:
                return
            for task in running:
                key = (task.framework_id, task.task_id)
                self.ends.setdefault(key, self.now + task.info.max_completion_ms / 1000)
            first = min(running, key=lambda task: self.ends[task.framework_id, task.task_id])
            end = self.ends[first.framework_id, first.task_id]
            at = self.state.next_deadline()
            if at is not None and self.now < at < end:
                self.now = at
                self.do(TimePassed())
                continue
            self.now = end
            self.finish(self.hosts[first.agent_id], first.framework_id, first.task_id)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    limit=st.integers(1, 6),
    seconds=st.lists(st.sampled_from((8, 12, 16, 48)), min_size=4, max_size=16),
)
def test_what_is_foretold_comes_true_if_durations_are_exact(
    sizes: list[int], limit: int, seconds: list[int]
) -> None:
    """All tasks are of one framework and one size, so the order of equal ends decides nothing."""
    world = Exact(sizes, limit)
    session = world.framework("r0", suppressed=True)
    for number, each in enumerate(seconds):
        task = replace(make_task(f"t{number}"), max_completion_ms=each * 1000)
        world.call(session, calls.Submit((task,)))
    framework = world.state.frameworks[world.framework_id(session)]
    queued = list(framework.queues)
    if not queued:
        return
    picture = finished(picture_of(world.state, world.now))
    assert picture is not None
    (told,) = finished(foretell(picture, targets_of(world.state, framework, queued[-1])))
    begun = world.now
    world.run_until(lambda: not queued[-1].is_queued)
    assert told.median_s == told.late_s == world.now - begun
