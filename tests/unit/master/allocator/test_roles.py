"""Roles of frameworks and settings of roles, as they change."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want

F = FrameworkId("f")
A, B, C = Role("a"), Role("b"), Role("c")


class TestSetRoles:
    def test_a_role_that_is_left_keeps_what_it_holds(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.agent("m", "cpus:4")
        (grant,) = fixture.deal()
        fixture.accept(grant, "cpus:1")
        fixture.allocator.suppress(F)
        fixture.allocator.set_roles(F, [B])
        fixture.allocator.check()
        assert fixture.allocator.queries.role_share(A) == Fraction(1, 4)
        fixture.finish(grant, "cpus:1")
        assert fixture.allocator.queries.role_share(A) == 0
        assert A not in fixture.tree.roles

    def test_it_is_offered_nothing_more(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.agent("m", "cpus:4")
        (grant,) = fixture.deal()
        fixture.accept(grant, "cpus:1")
        fixture.allocator.set_roles(F, [B])
        fixture.allocator.connect(F, True)
        assert [each.role for each in fixture.deal()] == [B]

    def test_an_offer_of_a_left_role_can_still_be_settled(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 3), roles=["a"])
        fixture.agent("m", "cpus:4")
        (grant,) = fixture.deal()
        fixture.allocator.set_roles(F, [B])
        fixture.accept(grant, "cpus:1")
        assert fixture.allocator.queries.role_share(A) == Fraction(1, 4)
        fixture.finish(grant, "cpus:1")
        assert A not in fixture.tree.roles

    def test_a_framework_that_returns_to_a_role_keeps_what_it_holds(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.agent("m", "cpus:4")
        (grant,) = fixture.deal()
        fixture.accept(grant, "cpus:1")
        leaf = fixture.tree.leaves[F, A]
        for roles in ([B], [B, A], [A]):
            fixture.allocator.set_roles(F, roles)
            fixture.allocator.connect(F, True)
            fixture.allocator.check()
        assert fixture.tree.leaves[F, A] is leaf
        assert fixture.allocator.queries.share(F) == Fraction(1, 4)
        assert [each.role for each in fixture.deal()] == [A]

    def test_launched_units_stay_counted_down(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 5), want("mem:1GB", 2, role="a"), roles=["a"])
        fixture.agent("m", "cpus:2")
        fixture.fill()
        fixture.allocator.set_roles(F, [A, B])
        assert fixture.counts("f") == [3, 2]

    def test_demand_in_a_role_that_is_left_is_dropped(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 5), want("mem:1GB", 2, role="b"), roles=["a", "b"])
        fixture.allocator.set_roles(F, [A])
        assert fixture.counts("f") == [5]
        fixture.demand("f", want("cpus:1", 4))
        assert fixture.counts("f") == [4]

    def test_demand_without_a_role_is_for_the_first(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 1), roles=["a", "b"])
        fixture.allocator.set_roles(F, [B, A])
        fixture.agent("m", "cpus:4")
        assert [(grant.role, str(grant.resources)) for grant in fixture.deal()] == [(B, "cpus:1")]

    def test_a_framework_may_join_a_role_in_which_a_task_was_found(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1"), roles=["a"])
        fixture.agent("m", "cpus:4")
        fixture.allocator.charges.charge(F, B, AgentId("m"), amount("cpus:1"))
        fixture.allocator.check()
        assert {grant.role for grant in fixture.deal()} == {A}
        fixture.allocator.set_roles(F, [B])
        fixture.allocator.connect(F, True)
        fixture.allocator.check()
        fixture.allocator.charges.release(F, B, AgentId("m"), amount("cpus:1"))
        assert [grant.role for grant in fixture.deal()] == [B]

    def test_removal_removes_the_framework_from_all_roles(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a", "b/c"])
        fixture.allocator.remove_framework(F)
        fixture.allocator.check()
        assert fixture.tree.roles == {}


class TestSuppression:
    def test_single_roles_may_be_suppressed(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a", "b"])
        fixture.agent("m", "cpus:4")
        fixture.allocator.suppress(F, [A])
        assert not fixture.allocator.queries.is_suppressed(F)
        assert [grant.role for grant in fixture.deal()] == [B]

    def test_suppressing_no_role_suppresses_all(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a", "b"])
        fixture.agent("m", "cpus:4")
        fixture.allocator.suppress(F)
        assert fixture.allocator.queries.is_suppressed(F)
        assert fixture.deal() == []

    def test_a_role_that_was_left_does_not_count(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.agent("m", "cpus:4")
        fixture.accept(fixture.deal()[0], "cpus:1")
        fixture.allocator.set_roles(F, [B])
        fixture.allocator.suppress(F)
        assert fixture.allocator.queries.is_suppressed(F)
        fixture.allocator.check()

    def test_reviving_a_role_drops_only_its_filters(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a", "b"])
        fixture.agent("m", "cpus:4")
        for _ in range(2):
            fixture.decline(fixture.deal()[0], 100.0)
        assert fixture.deal() == []
        fixture.allocator.revive(F, [B])
        assert [grant.role for grant in fixture.deal()] == [B]


class TestSetRole:
    @pytest.mark.parametrize("path", ["a", "a/x", "a/x/y"])
    def test_a_weight_is_effective_at_once(self, path: str) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1"), roles=[path])
        fixture.framework("g", want("cpus:1"), roles=[path.replace("a", "b")])
        fixture.agent("m", "cpus:4")
        fixture.fill()
        fixture.set_role("a", role_of(3))
        fixture.agent("n", "cpus:4")
        fixture.fill()
        assert fixture.allocator.queries.share(F) == Fraction(3, 4)

    def test_settings_are_returned(self) -> None:
        settings = role_of(2, guarantee="cpus:1", limit="cpus:3", mem=4)
        fixture = AllocatorFixture(roles={"a": settings})
        fixture.set_role("b/c", settings)
        assert fixture.allocator.queries.roles() == {"a": settings, "b/c": settings}

    def test_default_settings_are_not_stored(self) -> None:
        fixture = AllocatorFixture(roles={"a": role_of(2)})
        fixture.set_role("a", role_of())
        assert fixture.allocator.queries.roles() == {}

    def test_settings_outlive_the_frameworks_of_the_role(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.set_role("a", role_of(limit="cpus:1"))
        fixture.allocator.remove_framework(F)
        fixture.framework("f", want("cpus:1"), roles=["a"])
        fixture.agent("m", "cpus:4")
        assert fixture.dealt() == ["f m cpus:1"]

    def test_it_marks_agents_dirty_in_a_quiet_cluster(self) -> None:
        fixture = AllocatorFixture(roles={"a": role_of(limit="cpus:0")})
        fixture.framework("f", want("cpus:1"), roles=["a/b"])
        fixture.agent("m", "cpus:4")
        assert fixture.deal() == []
        waits = [fixture.allocator.has_dirty_agents]
        fixture.set_role("a", role_of(limit="cpus:1"))
        waits.append(fixture.allocator.has_dirty_agents)
        assert waits == [False, True]
        assert fixture.dealt() == ["f m cpus:1"]


class TestShares:
    def test_a_framework_has_the_shares_of_all_its_roles(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1", 1, role="a"), want("cpus:1", 1, role="b"), roles="ab")
        fixture.agent("m", "cpus:4")
        fixture.fill()
        assert fixture.allocator.queries.share(F) == Fraction(1, 2)
        assert fixture.allocator.queries.role_share(A) == Fraction(1, 4)

    def test_roles_without_frameworks_have_no_entitlement(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a"])
        fixture.agent("m", "cpus:4")
        assert fixture.allocator.queries.role_entitlement(A) == 1
        assert (
            fixture.allocator.queries.role_entitlement(C)
            == fixture.allocator.queries.role_share(C)
            == 0
        )
        fixture.allocator.connect(F, False)
        assert fixture.allocator.queries.role_entitlement(A) == 0

    def test_roles_in_use_include_all_above_them(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a/b", "c"])
        assert list(fixture.allocator.queries.roles_in_use()) == ["a", "a/b", "c"]
