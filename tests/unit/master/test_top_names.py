"""Series of frameworks and roles: which have their own, and the sum of all others."""

from __future__ import annotations

from functools import partial

import pytest
from prometheus_client.core import Metric

from croupier.master.core.calls import Acknowledge, Submit
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.metrics.series import (
    FRAMEWORKS,
    MIN_STAY_S,
    RANK_AGAIN_S,
    ROLES,
    Score,
    TopNames,
    framework_series,
    role_series,
)
from croupier.master.services.views import view_framework
from croupier.model.ids import Role, TaskId
from croupier.model.roles import RoleSettings
from croupier.model.task import TaskState
from croupier.process.metric_families import FamilyCollector
from tests.harness.world import World, make_task
from tests.unit.master.test_what_if import count_calls


def choose(names: TopNames, now: float, **amounts: float) -> set[str]:
    names.update(lambda: {name: Score(amount) for name, amount in amounts.items()}, now)
    return set(names.names)


def test_the_highest_scores_are_chosen() -> None:
    assert choose(TopNames(2), 0, a=1, b=3, c=2) == {"b", "c"}


def test_pinned_names_come_first() -> None:
    names = TopNames(2)
    names.update(lambda: {"a": Score(0.0, is_pinned=True), "b": Score(2), "c": Score(3)}, 0)
    assert names.names == ("a", "c")


def test_there_is_none_that_is_called_other() -> None:
    assert choose(TopNames(2), 0, other=9, a=1) == {"a"}


def test_a_new_name_comes_in_at_once_while_there_is_room() -> None:
    names = TopNames(3)
    assert choose(names, 0, a=1) == {"a"}
    assert choose(names, 1, a=1, b=1) == {"a", "b"}


def test_a_name_stays_for_some_time() -> None:
    names = TopNames(1)
    assert choose(names, 0, a=1, b=0) == {"a"}
    assert choose(names, MIN_STAY_S - 1, a=0, b=1) == {"a"}
    assert choose(names, MIN_STAY_S - 1 + RANK_AGAIN_S, a=0, b=1) == {"b"}


def test_about_equal_names_do_not_alternate() -> None:
    names = TopNames(1)
    choose(names, 0, a=1, b=0)
    for time in range(1, 50):
        now = MIN_STAY_S * 2 + time * RANK_AGAIN_S
        assert choose(names, now, a=1 + time % 2, b=1.4) == {"a"}
    assert choose(names, now + RANK_AGAIN_S, a=1, b=1.6) == {"b"}


def test_names_that_are_gone_leave() -> None:
    names = TopNames(1)
    choose(names, 0, a=1)
    assert choose(names, RANK_AGAIN_S, b=1) == {"b"}


def test_scores_are_computed_when_due_only() -> None:
    names = TopNames(1)
    choose(names, 0, a=1)
    names.update(dict, RANK_AGAIN_S - 1)
    assert names.names == ("a",)


# Numbers of a framework's tasks: running, queued, done and failed.


def test_each_task_is_counted_once_also_after_its_end_is_acknowledged() -> None:
    world = World()
    agent, session = world.agent("cpus:3;mem:9GB"), world.framework(suppressed=True)
    framework = world.state.frameworks[world.framework_id(session)]

    def counts() -> tuple[int, ...]:
        view = view_framework(world.state, framework, world.now)
        assert view.tasks == view.running + view.queued
        return view.running, view.queued, view.done, view.failed

    world.call(session, Submit(tuple(make_task(f"t{at}") for at in range(5))))
    assert counts() == (3, 2, 0, 0)
    world.report(agent, framework.framework_id, "t0", TaskState.FINISHED, 1)
    world.report(agent, framework.framework_id, "t1", TaskState.FAILED, 1)
    assert counts() == (3, 0, 2, 1)
    for name in ("t0", "t1"):
        update = (world.agent_id(agent), TaskId(name), 1)
        world.call(session, Acknowledge((update,)))
    assert not {"t0", "t1"} & framework.tasks.keys()
    assert counts() == (3, 0, 2, 1)


# Frameworks with series of their own, and the sum of all others.


def scrape(world: World, most: int) -> dict[str, dict[str, float]]:
    series = framework_series(world.state, TopNames(most), 0.0)
    return {
        metric.name.removeprefix("croupier_framework_"): {
            sample.labels["name"]: sample.value for sample in metric.samples
        }
        for metric in FamilyCollector(FRAMEWORKS, lambda: series).collect()
    }


def cluster() -> World:
    """Three frameworks hold 6, 2 and 1 of 9 cpus; a fourth holds nothing and wants 5 units."""
    world = World()
    world.agent("cpus:9;mem:9GB")
    for name, cpus in {"big": 6, "mid": 2, "small": 1}.items():
        framework = world.framework(demand=f"cpus:{cpus};mem:1GB", count=1, name=name)
        world.accept(framework, make_task("t", f"cpus:{cpus};mem:1GB"))
    world.framework(demand="cpus:1;mem:1GB", count=5, name="starved")
    return world


def test_one_that_waits_is_exported_before_one_with_a_small_share() -> None:
    series = scrape(cluster(), 2)
    assert set(series["tasks"]) == {"big", "starved", "other"}
    assert series["pending"] == {"big": 0, "starved": 5, "other": 0}
    assert series["tasks"] == {"big": 1, "starved": 0, "other": 2}
    assert series["dominant_share"]["big"] == pytest.approx(2 / 3)
    assert series["dominant_share"]["other"] == pytest.approx(1 / 3)
    assert series["entitlement"]["starved"] == pytest.approx(1 / 4)
    assert series["entitlement"]["other"] == pytest.approx(1 / 2)


def test_without_series_of_their_own_all_are_other() -> None:
    series = scrape(cluster(), 0)
    assert series["tasks"] == {"other": 3}
    assert series["pending"] == {"other": 5}


def test_a_framework_that_is_gone_has_no_series() -> None:
    world, names = cluster(), TopNames(4)
    framework_series(world.state, names, 0.0)
    gone: Framework = world.state.frameworks.pop(next(iter(world.state.frameworks)))
    series = framework_series(world.state, names, 1.0)
    assert gone not in series.members


# A scrape costs as much as the roles that it exports; all others are one series.


def with_roles(number: int) -> World:
    world = World()
    world.agent("cpus:1")
    for at in range(0, number, 10):
        world.framework(roles=tuple(f"r{at}/{below}" for below in range(10)), allocate=False)
    world.state.allocator.set_role(Role("set"), RoleSettings(weight=2000))
    world.state.allocator.queries.role_entitlement(Role("set"))
    return world


def scrape_roles(state: State, names: TopNames, now: float = 0.0) -> list[Metric]:
    series = role_series(state, names, now)
    return list(FamilyCollector(ROLES, lambda: series).collect())


def values(metric: Metric) -> dict[str, float]:
    return {sample.labels["role"]: sample.value for sample in metric.samples}


def test_roles_beyond_the_limit_cost_little() -> None:
    calls = []
    for number in (10, 400):
        state, names = with_roles(number).state, TopNames(5)
        scrape_roles(state, names)
        calls.append(count_calls(partial(scrape_roles, state, names)))
        shares = scrape_roles(state, names)[0]
        assert shares.name == "croupier_role_dominant_share"
        assert next(iter(values(shares))) == "set"
        assert len(shares.samples) == 6
    # Of each further role at the top only its holdings are summed.
    assert calls[1] < 2 * calls[0] + 15 * (400 - 10) / 10


def test_other_holds_what_no_exported_role_holds() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for role, cpus in {"big": 5, "mid": 3, "small/a": 1, "small/b": 1}.items():
        framework = world.framework(role, f"cpus:{cpus};mem:1GB", 1)
        world.accept(framework, make_task(f"t-{cpus}", f"cpus:{cpus};mem:1GB"))
    shares = scrape_roles(world.state, TopNames(2))[0]
    assert values(shares) == {"big": 0.5, "mid": 0.3, "other": 0.2}
    entitled = values(scrape_roles(world.state, TopNames(2))[1])
    assert entitled == pytest.approx({"big": 1 / 3, "mid": 1 / 3, "other": 1 / 3})
    assert values(scrape_roles(world.state, TopNames(9))[0])["other"] == 0


def test_a_role_below_one_that_is_left_out_counts_once() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for role in ("a/x", "a/y"):
        framework = world.framework(role, "cpus:4;mem:1GB", 1)
        world.accept(framework, make_task("t", "cpus:4;mem:1GB"))
    queries = world.state.allocator.queries
    assert queries.rest_of_roles([Role("a/x")]).share == 0.4
    assert queries.rest_of_roles([Role("a"), Role("a/x")]).share == 0
    assert queries.rest_of_roles([]).share == 0.8
