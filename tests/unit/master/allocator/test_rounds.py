"""Filters for a time and for a round; decliners starve no framework."""

from __future__ import annotations

import tracemalloc

import pytest

from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.filters import Filters
from croupier.master.allocator.node import Leaf, RoleNode
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, want
from tests.harness.allocator_invariants import check_allocator


class TestBound:
    """A willing framework that fits is offered an agent after at most one offer to each other."""

    @pytest.mark.parametrize("refuse_s", [0.0, 5.0, 1000.0])
    @pytest.mark.parametrize("order", ["arrival", "random", "pack", "spread"])
    def test_ten_decliners_do_not_starve_a_needy_framework(
        self, refuse_s: float, order: str
    ) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=0, order=order))
        fixture.framework("needy", want("cpus:1"))
        fixture.agent("big", "cpus:50")
        fixture.fill()
        for number in range(10):
            fixture.framework(f"d{number}")
        fixture.agent("m", "cpus:1")
        offers = 0
        while (grant := fixture.deal()[0]).framework_id != "needy":
            offers += 1
            fixture.decline(grant, refuse_s)
            fixture.wait(1.0)
        assert offers <= 10

    @pytest.mark.parametrize("policy_seed", range(5))
    def test_decliners_of_parts_cannot_starve_a_framework_that_needs_all(
        self, policy_seed: int
    ) -> None:
        """Some frameworks demand a part of the agent and decline it again and again."""
        fixture = AllocatorFixture(rules=Rules(hold_s=0, order="random", seed=policy_seed))
        fixture.framework("needy", want("cpus:4"))
        fixture.agent("big", "cpus:40")
        fixture.fill()
        for number in range(6):
            demands = [want(f"cpus:{1 + number % 3}", 1)] if number % 2 else []
            fixture.framework(f"d{number}", *demands)
        fixture.agent("m", "cpus:4")
        for _ in range(30):
            grants = fixture.deal()
            if any(grant.framework_id == "needy" for grant in grants):
                return
            for grant in grants:
                fixture.decline(grant, 0.0)
        pytest.fail("the needy framework is never offered the agent")


class TestFilters:
    def test_a_smaller_filter_does_not_shorten_a_larger_one(self) -> None:
        filters, leaf = Filters(), Leaf(FrameworkId("f"), RoleNode(Role("r"), None, 0), 1)
        filters.add(leaf, amount("cpus:4"), 100.0)
        filters.add(leaf, amount("cpus:2"), 10.0)
        assert filters.until(leaf, amount("cpus:2"), 20.0) == 100.0
        assert filters.until(leaf, amount("cpus:3"), 5.0) == 100.0

    def test_a_longer_filter_of_the_same_amount_replaces_a_shorter(self) -> None:
        filters, leaf = Filters(), Leaf(FrameworkId("f"), RoleNode(Role("r"), None, 0), 1)
        for until in range(100):
            filters.add(leaf, amount("cpus:4"), float(until))
        assert leaf.filters == len(filters) == 1
        assert filters.until(leaf, amount("cpus:4"), 98.5) == 99.0

    def test_ended_filters_are_dropped_beside_one_that_holds(self) -> None:
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

    def test_the_end_of_a_filter_marks_the_agent_dirty(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f")
        fixture.agent("m", "cpus:1")
        fixture.decline(fixture.deal()[0], 5.0)
        assert fixture.deal() == []
        assert fixture.allocator.next_wakeup() == 5.0
        fixture.wait(5.0)
        assert fixture.takers() == ["f"]

    def test_filters_of_a_removed_framework_are_dropped(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f")
        fixture.agent("m", "cpus:1")
        fixture.decline(fixture.deal()[0], 5.0)
        assert fixture.allocator.queries.filter_count() == 1
        fixture.allocator.connect(FrameworkId("f"), False)
        assert fixture.allocator.queries.filter_count() == 0
        check_allocator(fixture.allocator)


def test_a_filter_takes_less_than_200_bytes() -> None:
    allocator = Allocator()
    for number in range(100):
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
    assert allocator.queries.filter_count() == 100 * 50
    print(f"{size / allocator.queries.filter_count():.0f} bytes per filter")
    assert size / allocator.queries.filter_count() < 200


# Slices of a pass: each visit is bounded, however many frameworks there are.


def test_many_frameworks_that_do_not_fit_do_not_block_the_loop() -> None:
    """Each deal passes over all of them; the visit ends after some, and continues later."""
    fixture = AllocatorFixture(remembers=False)
    for number in range(1000):
        fixture.framework(f"large{number}", want("cpus:100"), roles=["r"])
    fixture.framework("small", want("cpus:0.001"), roles=["r"])
    fixture.agent("m", "cpus:1")
    slices = []
    while fixture.allocator.has_dirty_agents:
        slices.append(sum(len(grant.deals) for grant in fixture.allocator.run(0.0, budget=1)))
    check_allocator(fixture.allocator)
    assert sum(slices) == 1000
    assert max(slices) < 150


def test_misfits_take_nothing_of_a_visit() -> None:
    fixture = AllocatorFixture()
    for number in range(100):
        fixture.framework(f"large{number}", want("cpus:100"), roles=["r"])
    fixture.framework("small", want("cpus:0.001"), roles=["r"])
    fixture.agent("m", "cpus:1")
    slices = [fixture.allocator.run(0.0, budget=1) for _ in range(2)]
    assert [len(grant.deals) for grants in slices for grant in grants] == [500, 500]


def test_a_slice_deals_something_however_small_it_is() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    for number in range(20):
        fixture.agent(f"m{number}", "cpus:1")
    slices = 0
    while fixture.allocator.has_dirty_agents:
        assert len(fixture.allocator.run(0.0, budget=1)) == 1
        slices += 1
    assert slices == 20
    assert fixture.allocator.passes == 1


def test_a_change_during_a_pass_is_part_of_it() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    for number in range(3):
        fixture.agent(f"m{number}", "cpus:1")
    (first,) = fixture.deal(budget=1)
    fixture.decline(first)
    fixture.allocator.suppress(FrameworkId("f"))
    fixture.framework("g", want("cpus:1"))
    assert set(fixture.takers()) == {"g"}
    assert not fixture.allocator.has_dirty_agents
