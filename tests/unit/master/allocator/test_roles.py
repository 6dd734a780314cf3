"""Roles and guarantees, as they change; scenarios/allocator tells the rest."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Rules, policies
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want
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


# Guarantees: frameworks below one come before all that are not.


def cpus(fixture: AllocatorFixture, *names: str, total: int) -> list[Fraction]:
    return [fixture.allocator.queries.share(FrameworkId(name)) * total for name in names]


@pytest.mark.parametrize("policy", policies.NAMES)
def test_guarantees_come_first_under_every_policy(policy: str) -> None:
    fixture = AllocatorFixture(policies.make(policy), roles={"g/x": role_of(guarantee="cpus:6")})
    for name in ("e", "f"):
        fixture.framework(name, want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=["g/x"])
    fixture.agent("m", "cpus:6")
    fixture.fill()
    assert cpus(fixture, "g", total=6) == [6]


class TestLargeUnits:
    """Units of `b` are larger than the gaps that tasks of `a` leave on 8 cpus and 8 GB."""

    SMALL, LARGE = "cpus:1;mem:512MB", "cpus:1;mem:2GB"

    def contended(self, *agents: str, **roles: RoleSettings) -> AllocatorFixture:
        """Let tasks of `a` use all resources but those of three units of `b`."""
        roles = {"b": role_of(guarantee="cpus:4"), **roles}
        fixture = AllocatorFixture(rules=Rules(hold_s=30.0), roles=roles)
        fixture.framework("b", want(self.LARGE, 3))
        fixture.agent("m", "cpus:8;mem:8GB")
        fixture.fill()
        fixture.framework("a", want(self.SMALL))
        fixture.fill()
        assert cpus(fixture, "a", total=8) == [4]
        fixture.demand("b", want(self.LARGE))
        assert fixture.deal() == []
        return fixture

    def end(self, fixture: AllocatorFixture, name: str, unit: str) -> None:
        fixture.allocator.charges.release(FrameworkId(name), Role(name), AgentId("m"), amount(unit))

    def test_the_guarantee_is_met_under_churn(self) -> None:
        """Tasks of both end all the time; freed resources go to the first in order."""
        fixture = self.contended()
        seen = []
        for second in range(24):
            for name, unit in (("a", self.SMALL), ("a", self.SMALL), ("b", self.LARGE)):
                if fixture.allocator.queries.role_share(Role(name)):
                    self.end(fixture, name, unit)
                    fixture.fill()
            fixture.wait(1.0)
            seen.append(cpus_of(fixture, "b"))
            assert second < 8 or seen[-1] == 4, seen


def cpus_of(fixture: AllocatorFixture, role: str) -> int:
    return fixture.tree.roles[Role(role)].held.get("cpus", 0) // 1000
