"""Demand of several shapes: counts, units per offer, constraints."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.model.attributes import Constraint, equals, matches
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, want


def test_each_shape_is_dealt_while_it_is_demanded() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:2", 1), want("cpus:1;mem:1GB", 2))
    fixture.agent("m", "cpus:9;mem:9GB")
    assert fixture.dealt() == ["f m cpus:4;mem:2GB"]


def test_a_shape_that_does_not_fit_does_not_block_the_other() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:8"), want("cpus:1"))
    fixture.agent("m", "cpus:2")
    assert fixture.dealt() == ["f m cpus:2"]


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


class TestCountingDown:
    def test_launched_units_are_counted_down(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:2", 3), want("cpus:1", 4))
        fixture.agent("m", "cpus:5")
        fixture.accept(fixture.deal()[0], "cpus:1", "cpus:2")
        assert fixture.counts("f") == [2, 3]

    def test_unused_units_of_an_offer_are_offered_again(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 3))
        fixture.agent("m", "cpus:9")
        fixture.accept(fixture.deal()[0], "cpus:1")
        assert fixture.dealt() == ["f m cpus:2"]

    def test_a_task_of_another_size_counts_for_the_first_shape_that_it_covers(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("mem:1GB", 2), want("cpus:1", 2))
        fixture.agent("m", "cpus:2")
        fixture.accept(fixture.deal()[0], "cpus:1.5")
        assert fixture.counts("f") == [2, 1]

    def test_a_task_smaller_than_any_shape_counts_for_the_first(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:2", 2), want("cpus:1", 2))
        fixture.agent("m", "cpus:2")
        fixture.accept(fixture.deal()[0], "cpus:0.1")
        assert fixture.counts("f") == [1, 2]

    def test_nothing_is_dealt_once_all_is_launched(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 2))
        fixture.agent("m", "cpus:9")
        fixture.fill()
        assert fixture.counts("f") == [0]
        assert fixture.causes("f") == [Cause.NO_DEMAND]

    def test_demand_that_is_declared_again_is_as_declared(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 2))
        fixture.agent("m", "cpus:9")
        fixture.fill()
        fixture.demand("f", want("cpus:1", 3))
        assert fixture.dealt() == ["f m cpus:3"]

    def test_outstanding_offers_count_for_demand_that_is_declared_again(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 2))
        fixture.agent("m", "cpus:9")
        fixture.deal()
        fixture.demand("f", want("cpus:1", 5))
        assert fixture.dealt() == ["f m cpus:3"]


class TestDemandsOfOneUnit:
    """Two demands for the same unit on different agents are two demands."""

    def make(self) -> AllocatorFixture:
        fixture = AllocatorFixture()
        shapes = [want("cpus:1", 1, equals("zone", zone)) for zone in ("a", "b")]
        fixture.framework("f", *shapes)
        return fixture

    def test_a_launch_counts_for_the_demand_that_the_agent_passes(self) -> None:
        fixture = self.make()
        fixture.agent("y", "cpus:1", zone="b")
        fixture.fill()
        assert fixture.counts("f") == [1, 0]

    def test_a_declined_offer_is_made_again(self) -> None:
        fixture = self.make()
        fixture.agent("y", "cpus:1", zone="b")
        fixture.decline(fixture.deal()[0])
        assert fixture.dealt() == ["f y cpus:1"]

    def test_offers_stay_with_their_demand_when_it_is_declared_again(self) -> None:
        fixture = self.make()
        fixture.agent("y", "cpus:9", zone="b")
        fixture.deal()
        shapes = [want("cpus:1", count, equals("zone", z)) for z, count in (("a", 2), ("b", 3))]
        fixture.demand("f", *shapes)
        assert fixture.dealt() == ["f y cpus:2"]


class TestUnitsPerOffer:
    def test_an_offer_has_at_least_the_minimum_of_units(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", least=3))
        fixture.agent("m", "cpus:2")
        assert fixture.deal() == []
        assert fixture.why("f") == "agent m: an offer needs 3 units of <cpus:1>, but only 2 fit"
        fixture.agent("n", "cpus:5")
        assert fixture.dealt() == ["f n cpus:5"]

    def test_an_offer_may_have_fewer_if_fewer_are_left(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 2, least=3))
        fixture.agent("m", "cpus:5")
        assert fixture.dealt() == ["f m cpus:2"]

    def test_the_last_units_of_a_demand_fit_on_smaller_agents(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 4, least=3))
        fixture.agent("x", "cpus:1")
        fixture.agent("y", "cpus:3")
        assert fixture.dealt() == ["f y cpus:3", "f x cpus:1"]

    @pytest.mark.parametrize("order", ["arrival", "random", "pack", "spread"])
    def test_an_offer_has_at_most_the_maximum_of_units(self, order: str) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=0, order=order))
        fixture.framework("f", want("cpus:1", most=2))
        fixture.agent("m", "cpus:5")
        sizes = [number for grant in fixture.deal() for _, number in grant.units]
        assert max(sizes) == 2

    def test_an_agent_is_offered_again_once_the_small_offer_was_accepted(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", most=2))
        fixture.agent("m", "cpus:5")
        assert [str(grant.resources) for grant in fixture.fill()] == ["cpus:2", "cpus:2", "cpus:1"]

    def test_a_full_offer_leaves_room_for_others(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", most=1))
        fixture.framework("g", want("mem:1GB", 1))
        fixture.agent("m", "cpus:5;mem:1GB")
        assert fixture.dealt() == ["f m cpus:1", "g m mem:1GB"]
        assert fixture.causes("f") == [Cause.IN_USE]


class TestDemandDeclaredAgain:
    """A shape that was offered is demanded again, and every agent is visited for it."""

    def make(self) -> AllocatorFixture:
        """Return `x`, with the one unit of its first shape; the second shape fits nowhere."""
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 1), want("mem:8GB"))
        fixture.agent("x", "cpus:1;mem:1GB")
        fixture.agent("y", "cpus:1;mem:1GB")
        return fixture

    def test_after_it_was_declined(self) -> None:
        fixture = self.make()
        fixture.decline(fixture.deal()[0], 100.0)
        assert fixture.dealt() == ["f y cpus:1"]

    def test_after_demand_grew(self) -> None:
        fixture = self.make()
        fixture.fill()
        fixture.demand("f", want("cpus:1", 1), want("mem:8GB"))
        assert fixture.dealt() == ["f y cpus:1"]


class TestPorts:
    def test_a_number_of_ports_may_be_demanded(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1;ports:2"))
        fixture.agent("m", "cpus:9;ports:[5-9]")
        assert fixture.dealt() == ["f m cpus:2;ports:[5-8]"]

    def test_a_task_on_such_ports_is_the_unit(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 3), want("cpus:1;ports:2", 3))
        fixture.agent("m", "cpus:9;ports:[5-9]")
        (grant,) = fixture.deal()
        fixture.accept(grant, "cpus:1;ports:[6-7]")
        assert fixture.counts("f") == [3, 2]

    def test_ports_count_for_no_share(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1;ports:4", 1))
        fixture.agent("m", "cpus:4;ports:[1-4]")
        fixture.fill()
        assert fixture.allocator.queries.share(FrameworkId("f")) * 4 == 1


class TestConstraints:
    def test_only_agents_that_pass_are_dealt(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", None, matches("hostname", "node-[0-9]+")))
        fixture.agent("m", "cpus:1", "node-7")
        fixture.agent("n", "cpus:1", "node-x")
        assert fixture.dealt() == ["f m cpus:1"]

    def test_an_agent_that_returns_changed_is_matched_again(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", None, equals("zone", "a")))
        fixture.agent("m", "cpus:1", zone="b")
        assert fixture.deal() == []
        fixture.allocator.remove_agent(AgentId("m"))
        fixture.agent("m", "cpus:1", zone="a")
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

    def test_demands_in_several_roles_are_charged_there(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 2), want("mem:1GB", 1, role="b"), roles=["a", "b"])
        fixture.agent("m", "cpus:4;mem:4GB")
        fixture.fill()
        shares = [fixture.allocator.queries.role_share(Role(role)) for role in ("a", "b")]
        assert [str(share) for share in shares] == ["1/2", "1/4"]
