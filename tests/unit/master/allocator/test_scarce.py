"""Scarce resources, earmarks, and demand of several shapes."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.master.allocator.pooled_agent import Earmark
from croupier.model.attributes import Constraint, equals, matches
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


class TestEarmarks:
    def make(self) -> AllocatorFixture:
        """Earmark 4 cpus of 10 for `x`."""
        fixture = AllocatorFixture()
        fixture.framework("y", want("cpus:1"))
        fixture.framework("x", want("cpus:4", 1))
        fixture.agent("m", "cpus:10")
        self.leaf = fixture.tree.leaves[FrameworkId("x"), Role("x")]
        self.mark(fixture, "cpus:4")
        return fixture

    def mark(self, fixture: AllocatorFixture, room: str) -> None:
        pool = fixture.agents
        pool.earmark(pool.agents[AgentId("m")], Earmark(self.leaf, amount(room), 100.0))

    def test_no_other_framework_is_dealt_it(self) -> None:
        fixture = self.make()
        fixture.set_role("y", role_of(guarantee="cpus:10"))
        assert fixture.takers() == ["y", "x"]

    def test_each_cause_is_explained(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        assert fixture.causes("y", "m") == [Cause.EARMARKED]
        assert fixture.why("y", "m") == "cpus:10 was freed for x, which was starving"

    def test_it_ends_at_its_deadline(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        assert fixture.allocator.next_wakeup() == 100.0
        fixture.wait(100.0)
        assert fixture.dealt() == ["y m cpus:10"]

    def test_the_earmark_is_used_up_by_its_framework(self) -> None:
        """The rest beyond the earmark is for all, within one visit too."""
        fixture = self.make()
        fixture.fill()
        assert fixture.free("m") == ""
        assert fixture.agents.earmarks() == []

    @pytest.mark.parametrize("how", ["suppressed", "gone", "met", "removed", "declined"])
    def test_nothing_is_earmarked_for_a_framework_without_demand(self, how: str) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        x = FrameworkId("x")
        if how == "suppressed":
            fixture.allocator.suppress(x)
        elif how == "gone":
            fixture.allocator.connect(x, False)
        elif how == "met":
            fixture.demand("x", want("cpus:11", 0))
        elif how == "removed":
            fixture.allocator.remove_framework(x)
        else:
            fixture.agents.forget_earmarks(self.leaf)
        assert fixture.dealt() == ["y m cpus:10"]

    def test_part_of_it_may_be_dealt(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:8")
        fixture.fill()
        assert fixture.allocator.queries.share(FrameworkId("y")) * 10 == 6


def test_an_earmark_ends_on_time_after_an_earlier_wake_up() -> None:
    """Nothing was free on the agent when the earmark ended."""
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:8"))
    fixture.agent("m", "cpus:2")
    pool, leaf = fixture.agents, fixture.tree.leaves
    for grant in fixture.deal():
        fixture.decline(grant, 10.0)
    place = (FrameworkId("f"), Role("f"), AgentId("m"))
    fixture.allocator.charges.charge(AgentId("m"), [(*place[:2], amount("cpus:2"))])
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:2"), 50.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    fixture.wait(10.0)
    fixture.deal()
    fixture.wait(40.0)
    fixture.allocator.charges.release(*place, amount("cpus:2"))
    assert fixture.takers() == ["f"]


# Demand of several shapes: counts, units per offer, constraints.


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
