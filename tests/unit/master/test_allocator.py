"""The allocator, one rule at a time."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Allocator, Grant, Rules
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import MAX_WEIGHT, RoleSettings
from tests.harness.allocator_invariants import check_allocator, check_tree

A1, A2 = AgentId("a1"), AgentId("a2")
F1, F2 = FrameworkId("f1"), FrameworkId("f2")
R1 = Role("f1")


def numbers(grant: Grant) -> int:
    return sum(number for _, number in grant.units)


def decline(allocator: Allocator, grant: Grant, until: float | None = None) -> None:
    """Decline a grant; with `until`, set a filter until then."""
    allocator.settle_offers(*grant.place, grant.units, unused=grant.resources, refused_until=until)


def make_allocator(*frameworks: FrameworkId, **weights: int) -> Allocator:
    settings = {Role(role): RoleSettings(weight) for role, weight in weights.items()}
    allocator = Allocator(roles=settings)
    for framework_id in frameworks:
        allocator.add_framework(framework_id, (Role(framework_id),))
        allocator.connect(framework_id, True)
    return allocator


class TestShares:
    def make_leaves(self, total: str, *held: tuple[str, int]) -> list[Leaf]:
        totals = Totals()
        totals.add(Resources.parse(total).scalars)
        roles = {Role(f"r{n}"): RoleSettings(weight) for n, (_, weight) in enumerate(held)}
        tree = Tree(totals, None, roles)
        leaves = [tree.add(FrameworkId("f"), role) for role in roles]
        tree.refresh()
        for leaf, (amount, _) in zip(leaves, held, strict=True):
            tree.charge(leaf, Resources.parse(amount).scalars)
            leaf.is_connected = True
            tree.relist(leaf)
        check_tree(tree)
        return list(tree.in_order())

    def test_equal_rationals_are_equal_where_floats_are_not(self) -> None:
        """5/9 over 5 and 1/9 over 1 differ as floats: the first arrival is first."""
        assert (5 / 9) / 5 != (1 / 9) / 1
        for held in ((("cpus:5", 5000), ("cpus:1", 1000)), (("cpus:1", 1000), ("cpus:5", 5000))):
            assert [leaf.role for leaf in self.make_leaves("cpus:9", *held)] == ["r0", "r1"]

    def test_the_closest_unequal_weighted_shares_stay_apart(self) -> None:
        big = MAX_WEIGHT
        held = ((f"cpus:{big - 1}", big), (f"cpus:{big - 2}", big - 1))
        leaves = self.make_leaves(f"cpus:{2 * big}", *held)
        assert [leaf.role for leaf in leaves] == ["r1", "r0"]

    def test_the_dominant_share_is_the_largest(self) -> None:
        totals = Totals()
        totals.add({"cpus": 9_000, "mem": 18_000})
        assert totals.share({"cpus": 3_000, "mem": 1_000}) == Fraction(1, 3)

    def test_resources_that_no_agent_has_do_not_count(self) -> None:
        totals = Totals()
        totals.add({"cpus": 9_000})
        assert totals.share({"gpus": 1_000}) == 0

    def test_uniform_growth_keeps_the_scale(self) -> None:
        totals = Totals()
        stale = []
        for more in ({"cpus": 3_000, "mem": 7_000}, {"cpus": 3_000, "mem": 7_000}, {"cpus": 1}):
            totals.add(more)
            stale.append(totals.is_stale)
            totals.refresh()
        assert stale == [True, False, True]


class TestAllocation:
    def test_a_pass_is_sliced_by_its_budget(self) -> None:
        allocator = make_allocator(F1)
        for number in range(10):
            allocator.add_agent(AgentId(str(number)), Resources.parse("cpus:1"))
        assert len(allocator.run(0.0, budget=4)) == 2
        assert allocator.has_dirty_agents
        assert len(allocator.run(0.0)) == 8
        assert allocator.passes == 1

    def test_very_many_tiny_units_do_not_block_the_loop(self) -> None:
        """The agent is visited again after some hundred deals, until all of it is dealt."""
        allocator = make_allocator(F1, F2)
        for framework_id in (F1, F2):
            allocator.set_demand(framework_id, (Demand(Resources.parse("cpus:0.001")),))
        allocator.add_agent(A1, Resources.parse("cpus:4"))
        slices = []
        while allocator.has_dirty_agents:
            slices.append(sum(numbers(grant) for grant in allocator.run(0.0, budget=100)))
            check_allocator(allocator)
        assert max(slices) <= 500
        assert sum(slices) == 4000
        assert allocator.queries.share(F1) == allocator.queries.share(F2)


class TestFilters:
    def test_more_free_resources_break_a_filter(self) -> None:
        allocator = make_allocator(F1)
        allocator.add_agent(A1, Resources.parse("cpus:4"))
        (grant,) = allocator.run(0.0)
        part = Resources.parse("cpus:3")
        rest = grant.resources - part
        allocator.charges.launch(F1, R1, A1, rest)
        allocator.settle_offers(F1, R1, A1, grant.units, [rest], part, 100.0)
        assert allocator.run(0.0) == []
        allocator.charges.release(F1, R1, A1, rest)
        assert [str(each.resources) for each in allocator.run(0.0)] == ["cpus:4"]

    def test_a_hundred_decliners_cost_no_passes(self) -> None:
        allocator = Allocator()
        ids = [FrameworkId(f"f{number}") for number in range(100)]
        for framework_id in ids:
            allocator.add_framework(framework_id, (Role("*"),))
            allocator.connect(framework_id, True)
        for number in range(20):
            allocator.add_agent(AgentId(str(number)), Resources.parse("cpus:4"))
        while grants := allocator.run(0.0):
            for grant in grants:
                decline(allocator, grant, 3600.0)
        assert allocator.queries.filter_count() == 2000
        passes = allocator.passes
        for second in range(1000):
            allocator.wake(float(second))
            assert not allocator.has_dirty_agents
            assert allocator.run(float(second)) == []
        assert allocator.passes == passes


class TestReservations:
    def test_a_framework_far_behind_reserves_one_agent_in_eight(self) -> None:
        """16 agents of 2 cpus full of F1's small tasks; F2 needs both cpus of one at once."""
        allocator = Allocator(None, Rules(hold_s=30.0, remembers_misfits=True))
        for framework_id, unit in ((F1, "cpus:1"), (F2, "cpus:2")):
            allocator.add_framework(framework_id, (Role(framework_id),))
            allocator.set_demand(framework_id, (Demand(Resources.parse(unit)),))
        allocator.connect(F1, True)
        agents = [AgentId(f"a{number}") for number in range(16)]
        for agent_id in agents:
            allocator.add_agent(agent_id, Resources.parse("cpus:2"))
        one = Resources.parse("cpus:1")
        for grant in allocator.run(0.0):
            allocator.charges.launch(F1, R1, grant.agent_id, grant.resources)
            allocator.settle_offers(*grant.place, grant.units, [one, one])
        allocator.connect(F2, True)

        def end_one_task_each() -> list[str]:
            for agent_id in agents:
                allocator.charges.release(F1, R1, agent_id, one)
            return sorted(grant.agent_id for grant in allocator.run(1.0))

        dealt = end_one_task_each()
        assert len(dealt) == len(agents) - 3
        # Once the rest of an agent is free, it is dealt to the framework it was reserved for.
        (kept, *_) = (agent_id for agent_id in agents if agent_id not in dealt)
        allocator.charges.release(F1, R1, kept, one)
        grants = allocator.run(2.0)
        assert [(grant.framework_id, grant.agent_id) for grant in grants] == [(F2, kept)]
        # A reservation ends in time, and does not begin again at once.
        allocator.wake(31.0)
        assert len(allocator.run(31.0)) == 2
        check_allocator(allocator)


def test_a_capacity_change_keys_every_node_again() -> None:
    allocator = make_allocator(F1, F2)
    allocator.set_demand(F1, (Demand(Resources.parse("cpus:1")),))
    allocator.set_demand(F2, (Demand(Resources.parse("mem:1GB")),))
    allocator.add_agent(A1, Resources.parse("cpus:4;mem:4GB"))
    allocator.run(0.0)
    check_allocator(allocator)
    allocator.add_agent(A2, Resources.parse("cpus:4;mem:400GB"))
    allocator.run(0.0)
    check_allocator(allocator)
    assert allocator.queries.share(F1) == 1


def test_a_grant_by_the_caller_ignores_demand_and_filters() -> None:
    allocator = make_allocator(F1)
    allocator.add_agent(A1, Resources.parse("cpus:4;mem:4GB"))
    allocator.set_demand(F1, (Demand(Resources.parse("cpus:100")),))
    allocator.suppress(F1)
    assert allocator.run(0.0) == []
    granted = allocator.charges.grant(F1, R1, A1, Resources.parse("cpus:3"))
    assert granted.resources == Resources.parse("cpus:3")
    assert allocator.queries.free(A1) == Resources.parse("cpus:1;mem:4GB")
    assert allocator.queries.share(F1) == Fraction(3, 4)
    check_allocator(allocator)
    with pytest.raises(ValueError, match="cpus"):
        allocator.charges.grant(F1, R1, A1, Resources.parse("cpus:2"))
    decline(allocator, granted)
    assert allocator.queries.free(A1) == Resources.parse("cpus:4;mem:4GB")
    check_allocator(allocator)


def test_an_agent_changes_around_what_is_charged_on_it() -> None:
    allocator = make_allocator(F1)
    allocator.add_agent(A1, Resources.parse("cpus:4"))
    allocator.charges.grant(F1, R1, A1, Resources.parse("cpus:3"))
    with pytest.raises(ValueError, match="cpus"):
        allocator.change_agent(A1, Resources.parse("cpus:2;mem:1GB"), "h", {})
    allocator.change_agent(A1, Resources.parse("cpus:3;mem:1GB"), "h", {"rack": "r1"})
    assert allocator.queries.free(A1) == Resources.parse("mem:1GB")
    assert allocator.queries.share(F1) == 1
    check_allocator(allocator)
