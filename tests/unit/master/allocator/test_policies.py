"""Policies: which framework comes next under each."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from croupier.lab.policies import Unrotated
from croupier.master.allocator import policies
from croupier.master.allocator.policies import SingleResource
from croupier.master.allocator.prng import SplitMix64
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, role_of, want
from tests.harness.allocator_invariants import check_tree


def tasks(fixture: AllocatorFixture, resource: str) -> dict[str, int]:
    return {
        str(framework_id): leaf.held.get(resource, 0) // 1000
        for (framework_id, _), leaf in fixture.tree.leaves.items()
    }


def order_of(fixture: AllocatorFixture) -> str:
    """Return the frameworks that a pass deals units to, in order."""
    deals = [(number, grant.framework_id) for grant in fixture.deal() for number in grant.deals]
    return "".join(framework_id for _, framework_id in sorted(deals))


@pytest.mark.parametrize("name", policies.NAMES)
def test_every_policy_can_be_made_by_name(name: str) -> None:
    assert policies.make(name, seed=3).name == name


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'fair' is not a policy: drf, yarn-drf"):
        policies.make("fair")


@pytest.mark.parametrize("name", policies.NAMES)
def test_all_demand_is_dealt_under_every_policy(name: str) -> None:
    fixture = AllocatorFixture(policies.make(name))
    for number in range(7):
        role = f"r{number % 2}/s{number % 3}"
        fixture.framework(f"f{number}", want("cpus:1;mem:1GB", 5), roles=[role])
    for number in range(5):
        fixture.agent(f"m{number}", "cpus:8;mem:8GB")
    fixture.fill()
    assert tasks(fixture, "cpus") == {f"f{number}": 5 for number in range(7)}


class TestDrf:
    def test_the_schedule_of_the_paper(self) -> None:
        """Table 1: B, A, B, A, A (here the tie goes to the first arrival, A)."""
        fixture = AllocatorFixture(Unrotated())
        fixture.framework("A", want("cpus:1;mem:4GB"))
        fixture.framework("B", want("cpus:3;mem:1GB"))
        fixture.agent("m", "cpus:9;mem:18GB")
        assert order_of(fixture) == "ABABA"

    @pytest.mark.parametrize("weights", [(0.001, 1_000_000), (1, 1_000_000), (0.001, 0.002)])
    def test_the_widest_weights_are_kept_exactly(self, weights: tuple[float, float]) -> None:
        """The lighter framework gets its first unit when the shares over weights are equal."""
        light, heavy = (round(weight * 1000) for weight in weights)
        fixture = AllocatorFixture(roles={"a": role_of(weights[0]), "b": role_of(weights[1])})
        leaves = [fixture.tree.add(FrameworkId(name), Role(name)) for name in ("a", "b")]
        fixture.agent("m", "cpus:2000000000000")
        fixture.tree.refresh()
        for leaf in leaves:
            leaf.is_connected = True
            fixture.tree.relist(leaf)
        fixture.tree.charge(leaves[0], {"cpus": light})
        fixture.tree.charge(leaves[1], {"cpus": heavy - 1})
        tree = fixture.tree
        assert tree.neediest(lambda _: True) is leaves[1]
        tree.charge(leaves[1], {"cpus": 2})
        assert tree.neediest(lambda _: True) is leaves[0]

    def test_a_role_with_one_child_has_the_need_of_that_child(self) -> None:
        """`a` and `a/b` are one node in all but name; a framework is not charged twice."""
        picks = []
        for role in ("a", "a/b", "a/b/c/d"):
            fixture = AllocatorFixture()
            tree = fixture.tree
            fixture.agent("m", "cpus:100;mem:100GB")
            rich, poor, other = (
                tree.add(FrameworkId(name), Role(path))
                for name, path in (("rich", f"{role}/1"), ("poor", f"{role}/2"), ("o", "o"))
            )
            tree.refresh()
            for leaf, held in ((rich, "cpus"), (poor, "mem"), (other, "cpus")):
                leaf.is_connected = True
                tree.relist(leaf)
                tree.charge(leaf, {held: 1000})
            tree.charge(rich, {"cpus": 50_000})
            tree.charge(other, {"cpus": 20_000})
            check_tree(tree)
            pick = tree.neediest(lambda _: True)
            picks.append(pick and str(pick.framework_id))
        assert picks == ["poor"] * 3


class TestSingleResource:
    def test_a_resource_other_than_cpus_may_be_measured(self) -> None:
        fixture = AllocatorFixture(SingleResource("mem"))
        fixture.framework("a", want("cpus:1;mem:1MB"))
        fixture.framework("b", want("cpus:1;mem:2MB"))
        fixture.agent("m", "cpus:9;mem:9GB")
        fixture.fill()
        assert tasks(fixture, "cpus") == {"a": 6, "b": 3}


class TestSlots:
    def test_offers_count_as_slots_until_they_are_answered(self) -> None:
        fixture = AllocatorFixture(policies.make("slots"))
        fixture.framework("f", roles=["r"])
        fixture.agent("m", "cpus:1")
        fixture.agent("n", "cpus:1")
        slots = fixture.tree.roles
        first, second = fixture.deal()
        assert slots[Role("r")].slots == 2
        fixture.accept(first, "cpus:0.2", "cpus:0.2", "cpus:0.2")
        assert slots[Role("r")].slots == 4
        fixture.decline(second)
        assert slots[Role("r")].slots == 3

    def test_each_of_several_offers_accepted_together_has_a_slot(self) -> None:
        fixture = AllocatorFixture(policies.make("slots"))
        fixture.framework("f", roles=["r"])
        fixture.agent("m", "cpus:1")
        (one,) = fixture.deal()
        fixture.accept(one, "cpus:0.5")
        (two,) = fixture.deal()
        fixture.decline(two)
        (whole,) = fixture.deal()
        fixture.decline(whole)
        assert fixture.tree.roles[Role("r")].slots == 1

    def test_a_framework_that_leaves_its_role_leaves_no_slots(self) -> None:
        fixture = AllocatorFixture(policies.make("slots"))
        fixture.framework("stays", want("cpus:100"), roles=["r"])
        fixture.framework("f", roles=["r"])
        fixture.agent("m", "cpus:1")
        (grant,) = fixture.deal()
        fixture.allocator.set_roles(FrameworkId("f"), [Role("other")])
        fixture.decline(grant)
        assert fixture.tree.roles[Role("r")].slots == 0


class TestRandom:
    def draws(self, seed: int, units: int, **weights: float) -> Counter[str]:
        fixture = AllocatorFixture(
            policies.make("random", seed), roles={n: role_of(w) for n, w in weights.items()}
        )
        for name in weights:
            fixture.framework(name, want("cpus:1"))
        fixture.agent("m", f"cpus:{units}")
        return Counter({str(grant.framework_id): len(grant.deals) for grant in fixture.fill()})

    def test_units_fall_in_proportion_to_weights(self) -> None:
        drawn = self.draws(7, 480, a=1, b=3, c=4)
        # Within four standard deviations of 60, 180, 240.
        for name, share in (("a", 1 / 8), ("b", 3 / 8), ("c", 1 / 2)):
            deviation = (480 * share * (1 - share)) ** 0.5
            assert abs(drawn[name] - 480 * share) < 4 * deviation

    def test_the_same_seed_draws_the_same(self) -> None:
        assert self.draws(3, 50, a=1, b=1) == self.draws(3, 50, a=1, b=1)
        assert len({tuple(sorted(self.draws(seed, 50, a=1, b=1).items())) for seed in range(9)}) > 3

    def test_draws_are_uniform(self) -> None:
        lots = SplitMix64(1)
        drawn = [lots.draw() for _ in range(10_000)]
        assert 0 < min(drawn) < 0.001
        assert 0.999 < max(drawn) < 1
        assert abs(sum(drawn) / len(drawn) - 0.5) < 0.015


class TestYarnDrf:
    """The comparator of the YARN fair scheduler, rule by rule."""

    def pick(self, fixture: AllocatorFixture, **held: dict[str, int]) -> str:
        """Return which role comes next when they hold these amounts."""
        tree = fixture.tree
        fixture.agent("m", "cpus:100;mem:100MB;gpus:100")
        leaves = [tree.add(FrameworkId(name), Role(name)) for name in held]
        tree.refresh()
        for leaf in leaves:
            leaf.is_connected = True
            tree.relist(leaf)
            amounts = {name: 1000 * each for name, each in held[leaf.role].items()}
            tree.charge(leaf, amounts)
        check_tree(tree)
        pick = tree.neediest(lambda _: True)
        assert pick is not None
        return str(pick.framework_id)

    def make(self, **roles: object) -> AllocatorFixture:
        return AllocatorFixture(policies.make("yarn-drf"), roles=roles)  # type: ignore[arg-type]

    def test_below_the_minimum_comes_first(self) -> None:
        fixture = self.make(b=role_of(guarantee="cpus:50"))
        assert self.pick(fixture, a={"cpus": 1}, b={"cpus": 40}) == "b"

    def test_of_two_below_the_minimum_the_least_fulfilled_comes_first(self) -> None:
        fixture = self.make(a=role_of(guarantee="cpus:80"), b=role_of(guarantee="cpus:10"))
        assert self.pick(fixture, a={"cpus": 20}, b={"cpus": 3}) == "a"

    def test_need_is_judged_by_every_guaranteed_resource(self) -> None:
        """The cluster's dominant resource alone does not decide."""
        fixture = self.make(b=role_of(guarantee="mem:50MB"))
        assert self.pick(fixture, a={"cpus": 1}, b={"cpus": 90, "mem": 1}) == "b"

    def test_a_minimum_of_zero_is_no_minimum(self) -> None:
        fixture = self.make(b=role_of(guarantee="cpus:0"))
        assert self.pick(fixture, a={"cpus": 1}, b={"cpus": 2}) == "a"

    def test_then_the_dominant_share_over_the_weight(self) -> None:
        fixture = self.make(b=role_of(3))
        assert self.pick(fixture, a={"cpus": 10}, b={"mem": 29}) == "b"
        fixture = self.make(b=role_of(3))
        assert self.pick(fixture, a={"cpus": 10}, b={"mem": 31}) == "a"

    def test_then_the_other_shares_the_largest_first(self) -> None:
        held = {"a": {"cpus": 10, "mem": 5, "gpus": 4}, "b": {"mem": 10, "cpus": 5, "gpus": 3}}
        assert self.pick(self.make(), **held) == "b"
        held = {"a": {"cpus": 10, "mem": 5}, "b": {"mem": 10, "cpus": 4, "gpus": 4}}
        assert self.pick(self.make(), **held) == "b"
        held = {"a": {"cpus": 10, "mem": 5}, "b": {"mem": 10}}
        assert self.pick(self.make(), **held) == "b"

    def test_then_the_framework_that_started_first(self) -> None:
        assert self.pick(self.make(), a={"cpus": 10}, b={"mem": 10}) == "a"

    def test_differences_are_not_rounded(self) -> None:
        fixture = self.make(a=role_of(999_999), b=role_of(1_000_000))
        assert self.pick(fixture, a={"cpus": 1}, b={"cpus": 1}) == "b"

    def test_it_does_not_rotate_between_equals(self) -> None:
        fixture = AllocatorFixture(policies.make("yarn-drf"))
        for name in ("a", "b"):
            fixture.framework(name, want("cpus:1"))
        fixture.agent("m", "cpus:4")
        assert order_of(fixture) == "abab"


def test_entitlements_of_competing_siblings_sum_to_the_whole() -> None:
    """Entitlements of competitors sum to the whole; of complementary siblings to more."""
    fixture = AllocatorFixture()
    fixture.agent("m", "cpus:10;mem:10GB")
    for name, unit in (("a", "cpus:1"), ("b", "cpus:1"), ("c", "mem:1GB")):
        fixture.framework(name, want(unit))
    due = [fixture.allocator.queries.entitlement(FrameworkId(name)) for name in "abc"]
    assert due == [Fraction(1, 2)] * 3
