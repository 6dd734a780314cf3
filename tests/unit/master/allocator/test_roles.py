"""Roles of frameworks and settings of roles, as they change."""

from __future__ import annotations

from croupier.model.ids import FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, role_of
from tests.harness.allocator_invariants import check_allocator

F = FrameworkId("f")
A, B, C = Role("a"), Role("b"), Role("c")


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
        check_allocator(fixture.allocator)


class TestSetRole:
    def test_settings_are_returned(self) -> None:
        settings = role_of(2, guarantee="cpus:1", limit="cpus:3", mem=4)
        fixture = AllocatorFixture(roles={"a": settings})
        fixture.set_role("b/c", settings)
        assert fixture.allocator.queries.roles() == {"a": settings, "b/c": settings}

    def test_default_settings_are_not_stored(self) -> None:
        fixture = AllocatorFixture(roles={"a": role_of(2)})
        fixture.set_role("a", role_of())
        assert fixture.allocator.queries.roles() == {}


class TestShares:
    def test_roles_in_use_include_all_above_them(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", roles=["a/b", "c"])
        assert list(fixture.allocator.queries.roles_in_use()) == ["a", "a/b", "c"]
