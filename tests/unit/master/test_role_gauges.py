"""The metrics of roles cost what they show, however many roles there are."""

from __future__ import annotations

import pytest

from croupier.master import gauges
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from tests.harness.world import World
from tests.unit.master.test_what_if import count_calls


def with_roles(number: int) -> World:
    world = World()
    world.agent("cpus:1")
    for at in range(0, number, 10):
        world.framework(roles=tuple(f"r{at}/{below}" for below in range(10)), allocate=False)
    world.state.allocator.set_role(Role("set"), RoleSettings(weight=2000))
    world.state.allocator.tree.refresh()
    return world


def test_roles_that_are_not_shown_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MAX_ROLES", 5)
    few, many = (with_roles(number).state for number in (10, 400))
    assert count_calls(lambda: list(gauges._roles(many))) < 2 * count_calls(
        lambda: list(gauges._roles(few))
    )
    shares = next(gauges._roles(many))
    assert len(shares.samples) == 5
    assert shares.samples[0].labels == {"role": "set"}
