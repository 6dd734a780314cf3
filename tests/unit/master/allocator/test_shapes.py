"""Demand of several shapes: counted down, dealt in the portions and on the agents asked for."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.model.attributes import Constraint, equals, matches
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import Dealing, amount, want


def test_each_shape_is_dealt_while_it_is_wanted() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:2", 1), want("cpus:1;mem:1GB", 2))
    dealing.agent("m", "cpus:9;mem:9GB")
    assert dealing.dealt() == ["f m cpus:4;mem:2GB"]


def test_a_shape_that_does_not_fit_does_not_hold_up_the_other() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:8"), want("cpus:1"))
    dealing.agent("m", "cpus:2")
    assert dealing.dealt() == ["f m cpus:2"]


def test_each_framework_is_dealt_its_own_shape() -> None:
    """The tree looks at several frameworks before it chooses one."""
    dealing = Dealing()
    shapes = ("cpus:1", "cpus:2", "mem:1GB", "cpus:1;mem:3GB")
    for number in range(8):
        role = f"r{number % 3}/s{number}"
        dealing.framework(f"f{number}", want(shapes[number % 4]), roles=[role])
    dealing.agent("m", "cpus:50;mem:60GB")
    for grant in dealing.deal():
        ((unit, number),) = grant.units
        assert str(unit) == shapes[int(grant.framework_id[1:]) % 4]
        assert grant.resources == unit.carve(amount("cpus:50;mem:60GB"), number)


class TestCountingDown:
    def test_what_is_launched_is_counted(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:2", 3), want("cpus:1", 4))
        dealing.agent("m", "cpus:5")
        dealing.accept(dealing.deal()[0], "cpus:1", "cpus:2")
        assert dealing.counts("f") == [2, 3]

    def test_what_was_offered_and_not_launched_is_offered_again(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 3))
        dealing.agent("m", "cpus:9")
        dealing.accept(dealing.deal()[0], "cpus:1")
        assert dealing.dealt() == ["f m cpus:2"]

    def test_a_task_of_another_size_counts_for_the_first_shape_that_it_covers(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("mem:1GB", 2), want("cpus:1", 2))
        dealing.agent("m", "cpus:2")
        dealing.accept(dealing.deal()[0], "cpus:1.5")
        assert dealing.counts("f") == [2, 1]

    def test_a_task_smaller_than_any_shape_counts_for_the_first(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:2", 2), want("cpus:1", 2))
        dealing.agent("m", "cpus:2")
        dealing.accept(dealing.deal()[0], "cpus:0.1")
        assert dealing.counts("f") == [1, 2]

    def test_nothing_is_dealt_once_all_is_launched(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 2))
        dealing.agent("m", "cpus:9")
        dealing.fill()
        assert dealing.counts("f") == [0]
        assert dealing.causes("f") == [Cause.NO_DEMAND]

    def test_demand_that_is_told_again_stands_as_told(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 2))
        dealing.agent("m", "cpus:9")
        dealing.fill()
        dealing.demand("f", want("cpus:1", 3))
        assert dealing.dealt() == ["f m cpus:3"]

    def test_offers_that_stand_count_for_demand_that_is_told_again(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 2))
        dealing.agent("m", "cpus:9")
        dealing.deal()
        dealing.demand("f", want("cpus:1", 5))
        assert dealing.dealt() == ["f m cpus:3"]


class TestOfOneUnit:
    """Two demands for the same unit on different agents are two demands."""

    def make(self) -> Dealing:
        dealing = Dealing()
        shapes = [want("cpus:1", 1, equals("zone", zone)) for zone in ("a", "b")]
        dealing.framework("f", *shapes)
        return dealing

    def test_a_launch_counts_for_the_demand_that_the_agent_passes(self) -> None:
        dealing = self.make()
        dealing.agent("y", "cpus:1", zone="b")
        dealing.fill()
        assert dealing.counts("f") == [1, 0]

    def test_a_declined_offer_is_made_again(self) -> None:
        dealing = self.make()
        dealing.agent("y", "cpus:1", zone="b")
        dealing.decline(dealing.deal()[0])
        assert dealing.dealt() == ["f y cpus:1"]

    def test_offers_keep_to_their_demand_when_it_is_told_again(self) -> None:
        dealing = self.make()
        dealing.agent("y", "cpus:9", zone="b")
        dealing.deal()
        shapes = [want("cpus:1", count, equals("zone", z)) for z, count in (("a", 2), ("b", 3))]
        dealing.demand("f", *shapes)
        assert dealing.dealt() == ["f y cpus:2"]


class TestPortions:
    def test_an_offer_has_at_least_so_many(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", least=3))
        dealing.agent("m", "cpus:2")
        assert dealing.deal() == []
        assert dealing.why("f") == "agent m: an offer needs 3 units of <cpus:1>, but only 2 fit"
        dealing.agent("n", "cpus:5")
        assert dealing.dealt() == ["f n cpus:5"]

    def test_or_all_that_are_left(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 2, least=3))
        dealing.agent("m", "cpus:5")
        assert dealing.dealt() == ["f m cpus:2"]

    def test_what_is_left_after_an_offer_is_of_use_on_agents_that_were_too_small(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 4, least=3))
        dealing.agent("x", "cpus:1")
        dealing.agent("y", "cpus:3")
        assert dealing.dealt() == ["f y cpus:3", "f x cpus:1"]

    @pytest.mark.parametrize("order", ["arrival", "random", "pack", "spread"])
    def test_an_offer_has_at_most_so_many(self, order: str) -> None:
        dealing = Dealing(rules=Rules(hold_s=0, order=order))
        dealing.framework("f", want("cpus:1", most=2))
        dealing.agent("m", "cpus:5")
        sizes = [number for grant in dealing.deal() for _, number in grant.units]
        assert max(sizes) == 2

    def test_an_agent_is_offered_again_once_the_small_offer_was_accepted(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", most=2))
        dealing.agent("m", "cpus:5")
        assert [str(grant.resources) for grant in dealing.fill()] == ["cpus:2", "cpus:2", "cpus:1"]

    def test_a_full_offer_leaves_room_for_others(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", most=1))
        dealing.framework("g", want("mem:1GB", 1))
        dealing.agent("m", "cpus:5;mem:1GB")
        assert dealing.dealt() == ["f m cpus:1", "g m mem:1GB"]
        assert dealing.causes("f") == [Cause.OUTRANKED]


class TestWhatIsWantedAgain:
    """A shape that was on offer is wanted again: every agent is looked at for it."""

    def make(self) -> Dealing:
        """`x` holds the one unit that is wanted of the first shape; the second fits nowhere."""
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 1), want("mem:8GB"))
        dealing.agent("x", "cpus:1;mem:1GB")
        dealing.agent("y", "cpus:1;mem:1GB")
        return dealing

    def test_after_it_was_declined(self) -> None:
        dealing = self.make()
        dealing.decline(dealing.deal()[0], 100.0)
        assert dealing.dealt() == ["f y cpus:1"]

    def test_after_more_was_asked_for(self) -> None:
        dealing = self.make()
        dealing.fill()
        dealing.demand("f", want("cpus:1", 1), want("mem:8GB"))
        assert dealing.dealt() == ["f y cpus:1"]


class TestPorts:
    def test_numbers_of_ports_are_wanted(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1;ports:2"))
        dealing.agent("m", "cpus:9;ports:[5-9]")
        assert dealing.dealt() == ["f m cpus:2;ports:[5-8]"]

    def test_a_task_on_such_ports_is_the_unit(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 3), want("cpus:1;ports:2", 3))
        dealing.agent("m", "cpus:9;ports:[5-9]")
        (grant,) = dealing.deal()
        dealing.accept(grant, "cpus:1;ports:[6-7]")
        assert dealing.counts("f") == [3, 2]

    def test_ports_count_for_no_share(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1;ports:4", 1))
        dealing.agent("m", "cpus:4;ports:[1-4]")
        dealing.fill()
        assert dealing.allocator.queries.share(FrameworkId("f")) * 4 == 1


class TestConstraints:
    def test_only_agents_that_pass_are_dealt(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", None, matches("hostname", "node-[0-9]+")))
        dealing.agent("m", "cpus:1", "node-7")
        dealing.agent("n", "cpus:1", "node-x")
        assert dealing.dealt() == ["f m cpus:1"]

    def test_an_agent_that_comes_back_changed_is_looked_at_anew(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", None, equals("zone", "a")))
        dealing.agent("m", "cpus:1", zone="b")
        assert dealing.deal() == []
        dealing.allocator.remove_agent(AgentId("m"))
        dealing.agent("m", "cpus:1", zone="a")
        assert dealing.dealt() == ["f m cpus:1"]

    def test_an_agent_is_held_against_a_demand_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        holds = Constraint.holds

        def counted(self: Constraint, facts: dict[str, str]) -> bool:
            asked.append(facts["hostname"])
            return holds(self, facts)

        monkeypatch.setattr(Constraint, "holds", counted)
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", None, equals("zone", "a")))
        dealing.agent("m", "cpus:1", "m", zone="a")
        dealing.agent("n", "cpus:1", "n", zone="b")
        for _ in range(5):
            for grant in dealing.deal():
                dealing.decline(grant)
            dealing.allocator.revive(FrameworkId("f"))
        assert sorted(asked) == ["m", "n"]

    def test_demands_in_several_roles_are_charged_there(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 2), want("mem:1GB", 1, role="b"), roles=["a", "b"])
        dealing.agent("m", "cpus:4;mem:4GB")
        dealing.fill()
        shares = [dealing.allocator.queries.role_share(Role(role)) for role in ("a", "b")]
        assert [str(share) for share in shares] == ["1/2", "1/4"]
