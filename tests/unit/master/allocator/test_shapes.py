"""Demand of several shapes: counts, units per offer, constraints."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Rules
from croupier.model.attributes import Constraint, equals, matches
from croupier.model.ids import FrameworkId
from tests.harness.allocator_fixture import AllocatorFixture, amount, want


def test_each_framework_is_dealt_its_own_shape() -> None:
    """The tree checks several frameworks before it chooses one."""
    fixture = AllocatorFixture()
    shapes = ("cpus:1", "cpus:2", "mem:1GB", "cpus:1;mem:3GB")
    for number in range(8):
        role = f"r{number % 3}/s{number}"
        fixture.framework(f"f{number}", want(shapes[number % 4]), roles=[role])
    fixture.agent("m", "cpus:50;mem:60GB")
    for grant in fixture.deal():
        ((unit, number),) = grant.units
        assert str(unit) == shapes[int(grant.framework_id[1:]) % 4]
        assert grant.resources == unit.carve(amount("cpus:50;mem:60GB"), number)


class TestUnitsPerOffer:
    @pytest.mark.parametrize("order", ["arrival", "random", "pack", "spread"])
    def test_an_offer_has_at_most_the_maximum_of_units(self, order: str) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=0, order=order))
        fixture.framework("f", want("cpus:1", most=2))
        fixture.agent("m", "cpus:5")
        sizes = [number for grant in fixture.deal() for _, number in grant.units]
        assert max(sizes) == 2


class TestConstraints:
    def test_only_agents_that_pass_are_dealt(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", None, matches("hostname", "node-[0-9]+")))
        fixture.agent("m", "cpus:1", "node-7")
        fixture.agent("n", "cpus:1", "node-x")
        assert fixture.dealt() == ["f m cpus:1"]

    def test_an_agent_is_matched_with_a_demand_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        holds = Constraint.holds

        def counted(self: Constraint, facts: dict[str, str]) -> bool:
            asked.append(facts["hostname"])
            return holds(self, facts)

        monkeypatch.setattr(Constraint, "holds", counted)
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", None, equals("zone", "a")))
        fixture.agent("m", "cpus:1", "m", zone="a")
        fixture.agent("n", "cpus:1", "n", zone="b")
        for _ in range(5):
            for grant in fixture.allocator.run(fixture.now):
                fixture.decline(grant)
            fixture.allocator.revive(FrameworkId("f"))
        assert sorted(asked) == ["m", "n"]
