"""A scrape costs as much as the roles that it exports, however many there are."""

from __future__ import annotations

import pytest
from prometheus_client.core import Metric

from croupier.master import gauges
from croupier.master.core.state import State
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.process.metric_families import FamilyCollector
from tests.harness.world import World
from tests.unit.master.test_what_if import count_calls


def with_roles(number: int) -> World:
    world = World()
    world.agent("cpus:1")
    for at in range(0, number, 10):
        world.framework(roles=tuple(f"r{at}/{below}" for below in range(10)), allocate=False)
    world.state.allocator.set_role(Role("set"), RoleSettings(weight=2000))
    world.state.allocator.queries.role_entitlement(Role("set"))
    return world


def scrape(state: State) -> list[Metric]:
    families = [each for each in gauges.STATE if "role" in each.labels]
    assert len(families) == 5
    return list(FamilyCollector(families, lambda: state).collect())


def test_roles_beyond_the_limit_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MAX_ROLES", 5)
    few, many = (with_roles(number).state for number in (10, 400))
    assert count_calls(lambda: scrape(many)) < 2 * count_calls(lambda: scrape(few))
    shares = scrape(many)[0]
    assert shares.name == "croupier_role_dominant_share"
    assert len(shares.samples) == 5
    assert shares.samples[0].labels == {"role": "set"}
