"""Roles of frameworks and settings of roles, as they change."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import Dealing, amount, role_of, want

F = FrameworkId("f")
A, B, C = Role("a"), Role("b"), Role("c")


class TestSetRoles:
    def test_a_role_that_is_left_keeps_what_it_holds(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.agent("m", "cpus:4")
        (grant,) = dealing.deal()
        dealing.accept(grant, "cpus:1")
        dealing.allocator.suppress(F)
        dealing.allocator.set_roles(F, [B])
        dealing.allocator.check()
        assert dealing.allocator.queries.role_share(A) == Fraction(1, 4)
        dealing.finish(grant, "cpus:1")
        assert dealing.allocator.queries.role_share(A) == 0
        assert A not in dealing.tree.roles

    def test_it_is_offered_nothing_more(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.agent("m", "cpus:4")
        (grant,) = dealing.deal()
        dealing.accept(grant, "cpus:1")
        dealing.allocator.set_roles(F, [B])
        dealing.allocator.connect(F, True)
        assert [each.role for each in dealing.deal()] == [B]

    def test_an_offer_of_it_can_be_answered_still(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 3), roles=["a"])
        dealing.agent("m", "cpus:4")
        (grant,) = dealing.deal()
        dealing.allocator.set_roles(F, [B])
        dealing.accept(grant, "cpus:1")
        assert dealing.allocator.queries.role_share(A) == Fraction(1, 4)
        dealing.finish(grant, "cpus:1")
        assert A not in dealing.tree.roles

    def test_coming_back_it_goes_on_with_what_it_held(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.agent("m", "cpus:4")
        (grant,) = dealing.deal()
        dealing.accept(grant, "cpus:1")
        leaf = dealing.tree.leaves[F, A]
        for roles in ([B], [B, A], [A]):
            dealing.allocator.set_roles(F, roles)
            dealing.allocator.connect(F, True)
            dealing.allocator.check()
        assert dealing.tree.leaves[F, A] is leaf
        assert dealing.allocator.queries.share(F) == Fraction(1, 4)
        assert [each.role for each in dealing.deal()] == [A]

    def test_what_is_launched_stays_counted(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 5), want("mem:1GB", 2, role="a"), roles=["a"])
        dealing.agent("m", "cpus:2")
        dealing.fill()
        dealing.allocator.set_roles(F, [A, B])
        assert dealing.counts("f") == [3, 2]

    def test_demand_in_a_role_that_is_left_is_forgotten(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 5), want("mem:1GB", 2, role="b"), roles=["a", "b"])
        dealing.allocator.set_roles(F, [A])
        assert dealing.counts("f") == [5]
        dealing.demand("f", want("cpus:1", 4))
        assert dealing.counts("f") == [4]

    def test_demand_without_a_role_is_for_the_first(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 1), roles=["a", "b"])
        dealing.allocator.set_roles(F, [B, A])
        dealing.agent("m", "cpus:4")
        assert [(grant.role, str(grant.resources)) for grant in dealing.deal()] == [(B, "cpus:1")]

    def test_a_role_with_a_task_that_was_found_there_may_be_joined(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1"), roles=["a"])
        dealing.agent("m", "cpus:4")
        dealing.allocator.charges.charge(F, B, AgentId("m"), amount("cpus:1"))
        dealing.allocator.check()
        assert {grant.role for grant in dealing.deal()} == {A}
        dealing.allocator.set_roles(F, [B])
        dealing.allocator.connect(F, True)
        dealing.allocator.check()
        dealing.allocator.charges.release(F, B, AgentId("m"), amount("cpus:1"))
        assert [grant.role for grant in dealing.deal()] == [B]

    def test_removal_takes_all_roles(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a", "b/c"])
        dealing.allocator.remove_framework(F)
        dealing.allocator.check()
        assert dealing.tree.roles == {}


class TestSuppression:
    def test_some_roles_may_be(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a", "b"])
        dealing.agent("m", "cpus:4")
        dealing.allocator.suppress(F, [A])
        assert not dealing.allocator.queries.is_suppressed(F)
        assert [grant.role for grant in dealing.deal()] == [B]

    def test_all_of_them_are_none(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a", "b"])
        dealing.agent("m", "cpus:4")
        dealing.allocator.suppress(F)
        assert dealing.allocator.queries.is_suppressed(F)
        assert dealing.deal() == []

    def test_a_role_that_was_left_does_not_count(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.agent("m", "cpus:4")
        dealing.accept(dealing.deal()[0], "cpus:1")
        dealing.allocator.set_roles(F, [B])
        dealing.allocator.suppress(F)
        assert dealing.allocator.queries.is_suppressed(F)
        dealing.allocator.check()

    def test_to_revive_a_role_forgets_its_refusals_alone(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a", "b"])
        dealing.agent("m", "cpus:4")
        for _ in range(2):
            dealing.decline(dealing.deal()[0], 100.0)
        assert dealing.deal() == []
        dealing.allocator.revive(F, [B])
        assert [grant.role for grant in dealing.deal()] == [B]


class TestSetRole:
    @pytest.mark.parametrize("path", ["a", "a/x", "a/x/y"])
    def test_a_weight_is_effective_at_once(self, path: str) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1"), roles=[path])
        dealing.framework("g", want("cpus:1"), roles=[path.replace("a", "b")])
        dealing.agent("m", "cpus:4")
        dealing.fill()
        dealing.set_role("a", role_of(3))
        dealing.agent("n", "cpus:4")
        dealing.fill()
        assert dealing.allocator.queries.share(F) == Fraction(3, 4)

    def test_settings_are_told(self) -> None:
        settings = role_of(2, guarantee="cpus:1", limit="cpus:3", mem=4)
        dealing = Dealing(roles={"a": settings})
        dealing.set_role("b/c", settings)
        assert dealing.allocator.queries.roles() == {"a": settings, "b/c": settings}

    def test_default_settings_are_none(self) -> None:
        dealing = Dealing(roles={"a": role_of(2)})
        dealing.set_role("a", role_of())
        assert dealing.allocator.queries.roles() == {}

    def test_settings_outlive_the_frameworks_of_the_role(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.set_role("a", role_of(limit="cpus:1"))
        dealing.allocator.remove_framework(F)
        dealing.framework("f", want("cpus:1"), roles=["a"])
        dealing.agent("m", "cpus:4")
        assert dealing.dealt() == ["f m cpus:1"]

    def test_it_wakes_a_settled_cluster(self) -> None:
        dealing = Dealing(roles={"a": role_of(limit="cpus:0")})
        dealing.framework("f", want("cpus:1"), roles=["a/b"])
        dealing.agent("m", "cpus:4")
        assert dealing.deal() == []
        waits = [dealing.allocator.has_dirty_agents]
        dealing.set_role("a", role_of(limit="cpus:1"))
        waits.append(dealing.allocator.has_dirty_agents)
        assert waits == [False, True]
        assert dealing.dealt() == ["f m cpus:1"]


class TestShares:
    def test_of_a_framework_are_of_all_its_roles(self) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1", 1, role="a"), want("cpus:1", 1, role="b"), roles="ab")
        dealing.agent("m", "cpus:4")
        dealing.fill()
        assert dealing.allocator.queries.share(F) == Fraction(1, 2)
        assert dealing.allocator.queries.role_share(A) == Fraction(1, 4)

    def test_entitlements_of_roles_nobody_is_in_are_nothing(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a"])
        dealing.agent("m", "cpus:4")
        assert dealing.allocator.queries.role_entitlement(A) == 1
        assert (
            dealing.allocator.queries.role_entitlement(C)
            == dealing.allocator.queries.role_share(C)
            == 0
        )
        dealing.allocator.connect(F, False)
        assert dealing.allocator.queries.role_entitlement(A) == 0

    def test_the_pools_are_those_of_all_roles(self) -> None:
        dealing = Dealing()
        dealing.framework("f", roles=["a/b", "c"])
        assert list(dealing.allocator.queries.roles_in_use()) == ["a", "a/b", "c"]
