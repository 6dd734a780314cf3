"""The share tree: deep paths, exact keys, roles added and removed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import policies
from croupier.master.allocator.entitlements import Q
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.policies import Drf
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.errors import InvalidRequest
from croupier.model.ids import MAX_ROLE_DEPTH, FrameworkId, Role, check_role
from croupier.model.roles import MAX_WEIGHT, RoleSettings
from tests.harness.allocator_fixture import role_of, want
from tests.harness.allocator_invariants import check_tree


def make_tree(
    totals: dict[str, int], roles: dict[str, RoleSettings] | None = None, policy: str = "drf"
) -> Tree:
    amounts = Totals()
    amounts.add(totals)
    amounts.refresh()
    settings = {Role(role): each for role, each in (roles or {}).items()}
    return Tree(amounts, policies.make(policy), settings)


def add(tree: Tree, role: str, **held: int) -> Leaf:
    """Add a willing leaf, named as its role, with this usage."""
    leaf = tree.add(FrameworkId(role), Role(role))
    leaf.is_connected = True
    tree.relist(leaf)
    tree.charge(leaf, held)
    return leaf


def neediest(tree: Tree) -> Leaf | None:
    tree.refresh()
    check_tree(tree)
    return tree.neediest(lambda _: True)


class TestDeepPaths:
    @pytest.mark.parametrize("depth", [1, 16, MAX_ROLE_DEPTH, 200])
    def test_units_alternate_at_any_depth(self, depth: int) -> None:
        tree = make_tree({"cpus": 1000})
        one, two = (add(tree, "/".join([top, *["x"] * (depth - 1)])) for top in "ab")
        picks = []
        for _ in range(6):
            leaf = neediest(tree)
            assert leaf is not None
            tree.deal(leaf, {"cpus": 7})
            picks.append(leaf)
        assert picks == [one, two] * 3

    @pytest.mark.parametrize("depth", [16, MAX_ROLE_DEPTH])
    def test_the_widest_weights_are_distinguished_at_the_bottom(self, depth: int) -> None:
        """A thousandth of a unit more or less, under weights that no float could multiply."""
        paths = ["/".join(["x"] * depth + [end]) for end in "ab"]
        steps = ["/".join(["x"] * level) for level in range(1, depth + 1)]
        roles = {step: RoleSettings(MAX_WEIGHT - number) for number, step in enumerate(steps)}
        weights = {paths[0]: MAX_WEIGHT, paths[1]: MAX_WEIGHT - 1}
        roles |= {path: RoleSettings(weight) for path, weight in weights.items()}
        tree = make_tree({"cpus": 4 * MAX_WEIGHT}, roles)
        one = add(tree, paths[0], cpus=MAX_WEIGHT)
        two = add(tree, paths[1], cpus=MAX_WEIGHT - 2)
        assert neediest(tree) is two
        tree.charge(two, {"cpus": 2})
        assert neediest(tree) is one

    def test_entitlements_are_exact_far_down(self) -> None:
        tree = make_tree({"cpus": 10})
        for level in range(1, 20):
            add(tree, "/".join(["x"] * level) + "/leaf", cpus=1)
        due = tree.entitlements()
        assert due[tree.roles[Role("/".join(["x"] * 19))]] == Fraction(1, 2**18)

    def test_no_role_is_deeper_than_the_limit(self) -> None:
        check_role("/".join(["x"] * MAX_ROLE_DEPTH))
        with pytest.raises(InvalidRequest, match="more than 32 components"):
            check_role("/".join(["x"] * (MAX_ROLE_DEPTH + 1)))


class TestWeightsByResource:
    """The weights w_ij of the DRF paper, against shares and entitlements in fractions."""

    def test_shares_are_divided_by_weights_of_resources(self) -> None:
        roles = {"a": role_of(2, cpus=3, mem=0.5)}
        tree = make_tree({"cpus": 900, "mem": 700}, roles)
        leaf = add(tree, "a", cpus=90, mem=20)
        assert tree.share_of(leaf.role_node) == max(Fraction(1, 10) / 3, Fraction(20, 700) * 2)

    def test_the_closest_shares_stay_apart(self) -> None:
        """1/3 of a unit and the next fraction above it, of the largest denominators."""
        big = MAX_WEIGHT
        roles = {
            "a": RoleSettings(big, {"cpus": big, "mem": big - 1}),
            "b": RoleSettings(big - 1, {"cpus": big - 2, "mem": big - 3}),
        }
        tree = make_tree({"cpus": 4 * big, "mem": 4 * big}, roles)
        held = {"a": {"cpus": big, "mem": big - 7}, "b": {"cpus": big - 4, "mem": big - 5}}
        leaves = {name: add(tree, name, **amounts) for name, amounts in held.items()}

        def level(name: str) -> Fraction:
            by_resource = roles[name].resource_weights
            shares = (Fraction(m, 4 * big * by_resource[r]) for r, m in held[name].items())
            return max(shares) / roles[name].weight

        assert abs(level("a") - level("b")) < Fraction(1, 10**17)
        assert neediest(tree) is leaves[min("ab", key=level)]

    def test_many_different_weights_keep_keys_short(self) -> None:
        """Keys grow with the weight that counts, not with a common multiple of all."""
        primes = [999_999_937 - 2 * number for number in range(64)]
        weights = {f"r{number}": prime for number, prime in enumerate(primes)}
        tree = make_tree(dict.fromkeys(weights, 1000), {"a": RoleSettings(1000, weights)})
        leaf = add(tree, "a", **dict.fromkeys(weights, 10))
        neediest(tree)
        assert leaf.role_node.entry is not None
        assert leaf.role_node.entry[1].bit_length() < 2000

    def test_entitlements_follow_them(self) -> None:
        """A role of three times the weight for cpus may have three times as many."""
        tree = make_tree({"cpus": 100}, {"a": role_of(cpus=3)})
        for role in ("a", "b"):
            add(tree, role, cpus=1)
        due = tree.entitlements()
        assert due[tree.roles[Role("a")]] == due[tree.roles[Role("b")]] == Fraction(1, 4) * 1

    def test_a_role_alone_with_a_weight_is_judged_by_all_that_is_below_it(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100}, {"a": role_of(cpus=4)})
        add(tree, "a", cpus=40)
        other = add(tree, "b", cpus=12)
        assert neediest(tree) is not other


class TestDirections:
    def test_siblings_of_different_needs_are_entitled_to_nearly_all(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100})
        for role, held in (("a", {"cpus": 1}), ("b", {"mem": 1})):
            add(tree, role, **held)
        due = tree.entitlements()
        assert [due[tree.roles[Role(role)]] for role in "ab"] == [1, 1]

    def test_declared_demand_sets_the_direction_only_while_nothing_runs(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100})
        leaf = add(tree, "a")
        tree.set_pending(leaf, [PendingDemand(want("cpus:1;mem:1MB"))])
        assert leaf.weighted_direction == {"cpus": 1000 * Q, "mem": 1000 * Q}
        tree.deal(leaf, {"cpus": 1})
        tree.launch(leaf, {"cpus": 1})
        assert leaf.weighted_direction == {"cpus": 1000 * Q}

    def test_an_offer_does_not_change_the_direction(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100})
        leaf = add(tree, "a")
        tree.deal(leaf, {"cpus": 1})
        assert leaf.weighted_direction == {"cpus": 1000 * Q, "mem": 1000 * Q}

    def test_resources_that_no_agent_has_have_no_direction(self) -> None:
        tree = make_tree({"cpus": 100})
        leaf = add(tree, "a", gpus=3)
        assert neediest(tree) is leaf
        assert leaf.weighted_direction == {"cpus": 1000 * Q}

    def test_a_leaf_that_wants_nothing_counts_while_it_holds_something(self) -> None:
        tree = make_tree({"cpus": 100})
        idle, busy = add(tree, "a", cpus=5), add(tree, "b", cpus=5)
        idle.is_suppressed = True
        tree.relist(idle)
        assert tree.entitlement(busy) == Fraction(1, 2)
        tree.charge(idle, {"cpus": 5}, -1)
        assert tree.entitlement(busy) == 1
        assert tree.entitlement(idle) == 0

    def test_a_leaf_that_is_dealt_to_though_it_wants_nothing_counts(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100})
        sleeper = tree.add(FrameworkId("s"), Role("a/b"))
        add(tree, "a/c", cpus=1)
        tree.refresh()
        tree.deal(sleeper, {"mem": 1})
        check_tree(tree)
        assert tree.roles[Role("a")].weighted_direction == {"cpus": 1000 * Q, "mem": 500 * Q}


class TestTotals:
    def test_uniform_growth_does_not_key_nodes_again(self) -> None:
        tree = make_tree({"cpus": 300, "mem": 700})
        one, two = add(tree, "a", cpus=5), add(tree, "b", mem=9)
        assert neediest(tree) is two
        entries = one.entry, two.entry
        for _ in range(5):
            tree.totals.add({"cpus": 300, "mem": 700})
            assert neediest(tree) is two
        assert (one.entry, two.entry) == entries
        assert tree.share_of(one) == Fraction(5, 1800)

    def test_growth_of_one_changes_the_order(self) -> None:
        tree = make_tree({"cpus": 100, "mem": 100})
        one, two = add(tree, "a", cpus=5), add(tree, "b", mem=9)
        assert neediest(tree) is one
        tree.totals.add({"mem": 300})
        assert neediest(tree) is two

    def test_a_resource_comes_and_goes(self) -> None:
        tree = make_tree({"cpus": 100})
        one, two = add(tree, "a", cpus=5), add(tree, "b", cpus=4, gpus=9)
        assert neediest(tree) is two
        tree.totals.add({"gpus": 10})
        assert neediest(tree) is one
        tree.totals.add({"gpus": 10}, -1)
        assert neediest(tree) is two

    def test_an_empty_cluster_has_an_order(self) -> None:
        tree = make_tree({})
        assert neediest(tree) is None
        leaf = add(tree, "a")
        assert neediest(tree) is leaf
        add(tree, "b")
        assert tree.entitlements()[leaf] == Fraction(1, 2)


class TestShape:
    def test_roles_come_and_go_with_their_frameworks(self) -> None:
        tree = make_tree({"cpus": 100})
        one, two = add(tree, "a/b"), add(tree, "a/c/d")
        assert set(tree.roles) == {"a", "a/b", "a/c", "a/c/d"}
        tree.remove(two)
        assert set(tree.roles) == {"a", "a/b"}
        tree.remove(one)
        assert tree.roles == {}
        assert neediest(tree) is None

    def test_a_role_may_hold_frameworks_and_roles(self) -> None:
        tree = make_tree({"cpus": 100})
        upper, lower = add(tree, "a", cpus=3), add(tree, "a/b", cpus=2)
        assert neediest(tree) is lower
        tree.charge(lower, {"cpus": 2})
        assert neediest(tree) is upper
        assert tree.roles[Role("a")].held == {"cpus": 7}

    def test_settings_apply_to_a_role_that_is_added_later(self) -> None:
        tree = make_tree({"cpus": 100}, {"a/b": role_of(5)})
        tree.set_role(Role("a/b/c"), role_of(7))
        add(tree, "a/b/c")
        assert [tree.roles[Role(role)].weight for role in ("a", "a/b", "a/b/c")] == [
            1000,
            5000,
            7000,
        ]

    def test_a_framework_named_like_a_role_is_another_node(self) -> None:
        tree = make_tree({"cpus": 100})
        leaf = tree.add(FrameworkId("b"), Role("a"))
        pool = tree.add(FrameworkId("x"), Role("a/b")).role_node
        tree.remove(leaf)
        assert tree.roles[Role("a/b")] is pool

    def test_weights_of_any_length_are_kept_exactly(self) -> None:
        """The heaviest role is set last, and all nodes are keyed again."""
        tree = Tree(Totals(), Drf())
        tree.totals.add({"cpus": 10 * MAX_WEIGHT})
        one = add(tree, "a", cpus=MAX_WEIGHT - 1)
        two = add(tree, "b", cpus=MAX_WEIGHT - 2)
        assert neediest(tree) is two
        tree.set_role(Role("a"), RoleSettings(MAX_WEIGHT))
        tree.set_role(Role("b"), RoleSettings(MAX_WEIGHT - 1))
        assert neediest(tree) is two
        tree.charge(two, {"cpus": 1})
        assert neediest(tree) is one
