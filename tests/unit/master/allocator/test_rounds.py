"""Refusals: for a time, for a round, and nobody starves for those who decline."""

from __future__ import annotations

import tracemalloc

import pytest

from croupier.master.allocator import Allocator, Cause, Rules
from croupier.master.allocator.filters import Filters
from croupier.master.allocator.node import Leaf, RoleNode
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import Dealing, amount, role_of, want


class TestBound:
    """A willing framework that fits sees an agent after one offer to each other at most."""

    @pytest.mark.parametrize("refuse_s", [0.0, 5.0, 1000.0])
    @pytest.mark.parametrize("order", ["arrival", "random", "pack", "spread"])
    def test_ten_decliners_and_one_that_is_needy(self, refuse_s: float, order: str) -> None:
        dealing = Dealing(rules=Rules(hold_s=0, order=order))
        dealing.framework("needy", want("cpus:1"))
        dealing.agent("big", "cpus:50")
        dealing.fill()
        for number in range(10):
            dealing.framework(f"d{number}")
        dealing.agent("m", "cpus:1")
        offers = 0
        while (grant := dealing.deal()[0]).framework_id != "needy":
            offers += 1
            dealing.decline(grant, refuse_s)
            dealing.wait(1.0)
        assert offers <= 10

    @pytest.mark.parametrize("policy_seed", range(5))
    def test_decliners_of_parts_cannot_starve_who_needs_the_whole(self, policy_seed: int) -> None:
        """Some want a part of the agent and give it back at once, again and again."""
        dealing = Dealing(rules=Rules(hold_s=0, order="random", seed=policy_seed))
        dealing.framework("needy", want("cpus:4"))
        dealing.agent("big", "cpus:40")
        dealing.fill()
        for number in range(6):
            demands = [want(f"cpus:{1 + number % 3}", 1)] if number % 2 else []
            dealing.framework(f"d{number}", *demands)
        dealing.agent("m", "cpus:4")
        for _ in range(30):
            grants = dealing.deal()
            if any(grant.framework_id == "needy" for grant in grants):
                return
            for grant in grants:
                dealing.decline(grant, 0.0)
        pytest.fail("the needy framework is never offered the agent")

    def test_each_is_asked_once_in_a_round(self) -> None:
        dealing = Dealing()
        for name in "abc":
            dealing.framework(name)
        dealing.agent("m", "cpus:1")
        order = []
        for _ in range(9):
            (grant,) = dealing.deal()
            order.append(grant.framework_id)
            dealing.decline(grant, 0.0)
        assert "".join(order) == "abcabcabc"

    def test_alone_it_is_asked_again_at_once(self) -> None:
        dealing = Dealing()
        dealing.framework("f")
        dealing.agent("m", "cpus:1")
        dealing.decline(dealing.deal()[0], 0.0)
        assert dealing.takers() == ["f"]


class TestTheRest:
    """Somebody takes a part of the agent while another waits for the round to end."""

    def make(self) -> Dealing:
        dealing = Dealing()
        dealing.framework("b")
        dealing.agent("m", "cpus:4")
        (grant,) = dealing.deal()
        dealing.framework("a", want("cpus:1", 1))
        dealing.decline(grant, 0.0)
        self.part = dealing.deal()[0]
        assert self.part.framework_id == "a"
        return dealing

    def test_the_round_lasts_until_the_offer_is_answered(self) -> None:
        dealing = self.make()
        dealing.allocator.revive(FrameworkId("a"))
        assert dealing.deal() == []
        assert dealing.causes("b", "m") == [Cause.FILTERED]

    def test_after_a_launch_the_rest_is_offered(self) -> None:
        dealing = self.make()
        dealing.accept(self.part)
        assert dealing.dealt() == ["b m cpus:3"]

    def test_after_a_decline_all_of_it_is_offered(self) -> None:
        dealing = self.make()
        dealing.decline(self.part, 0.0)
        assert dealing.dealt() == ["b m cpus:4"]


class TestFilters:
    def test_several_sizes_are_refused_apart(self) -> None:
        dealing = Dealing()
        dealing.framework("f")
        dealing.agent("m", "cpus:4;mem:4GB")
        place = (FrameworkId("f"), Role("f"), AgentId("m"))
        for refused, until in (("cpus:4;mem:1GB", 50.0), ("cpus:1;mem:4GB", 100.0)):
            dealing.refuse(*place, amount(refused), until)
        taken = (FrameworkId("g"), Role("g"), AgentId("m"))
        dealing.framework("g", want("cpus:100"))
        dealing.allocator.charges.charge(*taken, amount("mem:3GB"))
        assert dealing.dealt() == []
        dealing.allocator.charges.release(*taken, amount("mem:1GB"))
        assert dealing.dealt() == ["f m cpus:4;mem:2GB"]

    def test_a_smaller_refusal_does_not_shorten_a_larger_one(self) -> None:
        filters, leaf = Filters(), Leaf(FrameworkId("f"), RoleNode(Role("r"), None, 0), 1)
        filters.add(leaf, amount("cpus:4"), 100.0)
        filters.add(leaf, amount("cpus:2"), 10.0)
        assert filters.until(leaf, amount("cpus:2"), 20.0) == 100.0
        assert filters.until(leaf, amount("cpus:3"), 5.0) == 100.0

    def test_a_longer_refusal_of_as_much_takes_the_place_of_a_shorter(self) -> None:
        filters, leaf = Filters(), Leaf(FrameworkId("f"), RoleNode(Role("r"), None, 0), 1)
        for until in range(100):
            filters.add(leaf, amount("cpus:4"), float(until))
        assert leaf.filters == len(filters) == 1
        assert filters.until(leaf, amount("cpus:4"), 98.5) == 99.0

    def test_refusals_that_are_over_are_dropped_beside_one_that_is_not(self) -> None:
        filters, leaf = Filters(), Leaf(FrameworkId("f"), RoleNode(Role("r"), None, 0), 1)
        filters.add(leaf, amount("mem:1GB"), 1e6)
        for number in range(1000):
            filters.round += 1
            filters.add(leaf, amount(f"cpus:{2000 - number}"), float(number))
            filters.until(leaf, amount("cpus:1;mem:2GB"), number + 1.0)
        kept, each = 0, filters._by_leaf.get(leaf)
        while each is not None:
            kept, each = kept + 1, each.older
        assert kept <= 2

    def test_time_alone_wakes_the_agent(self) -> None:
        dealing = Dealing()
        dealing.framework("f")
        dealing.agent("m", "cpus:1")
        dealing.decline(dealing.deal()[0], 5.0)
        assert dealing.deal() == []
        assert dealing.allocator.next_wakeup() == 5.0
        dealing.wait(5.0)
        assert dealing.takers() == ["f"]

    def test_a_framework_that_left_takes_its_filters_along(self) -> None:
        dealing = Dealing()
        dealing.framework("f")
        dealing.agent("m", "cpus:1")
        dealing.decline(dealing.deal()[0], 5.0)
        assert dealing.allocator.queries.filter_count() == 1
        dealing.allocator.connect(FrameworkId("f"), False)
        assert dealing.allocator.queries.filter_count() == 0
        dealing.allocator.check()

    def test_more_room_under_a_limit_breaks_a_filter(self) -> None:
        dealing = Dealing(roles={"r": role_of(limit="cpus:3")})
        dealing.framework("g", want("cpus:1", 2), roles=["r"])
        dealing.agent("m", "cpus:9")
        (other,) = dealing.fill()
        dealing.framework("f", roles=["r"])
        dealing.decline(dealing.deal()[0], 1000.0)
        dealing.agent("n", "cpus:9")
        dealing.decline(dealing.deal()[0], 1000.0)
        assert dealing.deal() == []
        dealing.allocator.activate_agent(AgentId("m"), False)
        dealing.finish(other, "cpus:1")
        assert dealing.dealt() == ["f n cpus:2"]


def test_a_filter_takes_less_than_200_bytes() -> None:
    allocator = Allocator()
    for number in range(200):
        allocator.add_framework(FrameworkId(f"f{number}"), (Role(f"r{number % 7}"),))
        allocator.connect(FrameworkId(f"f{number}"), True)
    for number in range(50):
        allocator.add_agent(AgentId(str(number)), amount("cpus:8;mem:64GB;ports:[1-1000]"))
    allocator.run(0.0, 0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    while grants := allocator.run(0.0):
        for grant in grants:
            allocator.settle_offers(
                *grant.place, grant.units, unused=grant.resources, refused_until=3600.0
            )
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert allocator.queries.filter_count() == 200 * 50
    print(f"{size / allocator.queries.filter_count():.0f} bytes per filter")
    assert size / allocator.queries.filter_count() < 200
