"""A scrape costs as much as the roles that it exports; all others are one series."""

from __future__ import annotations

from functools import partial

import pytest
from prometheus_client.core import Metric

from croupier.master.core.state import State
from croupier.master.metrics.series import ROLES, TopNames, role_series
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.process.metric_families import FamilyCollector
from tests.harness.world import World, make_task
from tests.unit.master.test_what_if import count_calls


def with_roles(number: int) -> World:
    world = World()
    world.agent("cpus:1")
    for at in range(0, number, 10):
        world.framework(roles=tuple(f"r{at}/{below}" for below in range(10)), allocate=False)
    world.state.allocator.set_role(Role("set"), RoleSettings(weight=2000))
    world.state.allocator.queries.role_entitlement(Role("set"))
    return world


def scrape(state: State, names: TopNames, now: float = 0.0) -> list[Metric]:
    series = role_series(state, names, now)
    return list(FamilyCollector(ROLES, lambda: series).collect())


def values(metric: Metric) -> dict[str, float]:
    return {sample.labels["role"]: sample.value for sample in metric.samples}


def test_roles_beyond_the_limit_cost_little() -> None:
    calls = []
    for number in (10, 400):
        state, names = with_roles(number).state, TopNames(5)
        scrape(state, names)
        calls.append(count_calls(partial(scrape, state, names)))
        shares = scrape(state, names)[0]
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
    shares = scrape(world.state, TopNames(2))[0]
    assert values(shares) == {"big": 0.5, "mid": 0.3, "other": 0.2}
    entitled = values(scrape(world.state, TopNames(2))[1])
    assert entitled == pytest.approx({"big": 1 / 3, "mid": 1 / 3, "other": 1 / 3})
    assert values(scrape(world.state, TopNames(9))[0])["other"] == 0


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
