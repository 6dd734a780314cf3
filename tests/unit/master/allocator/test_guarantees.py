"""Guarantees: frameworks below one come before all that are not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Cause, Rules, policies
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


def cpus(fixture: AllocatorFixture, *names: str, total: int) -> list[Fraction]:
    return [fixture.allocator.queries.share(FrameworkId(name)) * total for name in names]


def test_a_framework_below_its_guarantee_comes_before_smaller_shares() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:6")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:7")
    fixture.fill()
    assert cpus(fixture, "g", "f", total=7) == [6, 1]


def test_a_met_guarantee_adds_nothing_to_the_share() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:2")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:10")
    fixture.fill()
    assert cpus(fixture, "g", "f", total=10) == [5, 5]


@pytest.mark.parametrize("path", ["g", "g/b", "g/b/c", "g/b/c/d/e"])
def test_a_guarantee_of_a_deep_role_counts_at_the_top(path: str) -> None:
    fixture = AllocatorFixture(roles={path: role_of(guarantee="cpus:6")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=[path])
    fixture.agent("m", "cpus:7")
    fixture.fill()
    assert cpus(fixture, "g", "f", total=7) == [6, 1]


def test_a_guarantee_that_is_set_later_counts_at_the_top() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=["g/b/c/d"])
    fixture.tree.refresh()
    fixture.set_role("g/b/c/d", role_of(guarantee="cpus:6"))
    fixture.agent("m", "cpus:7")
    fixture.fill()
    assert cpus(fixture, "g", "f", total=7) == [6, 1]


def test_the_least_fulfilled_guarantee_comes_first() -> None:
    """Guarantees that are too large together scale down alike."""
    roles = {"a": role_of(guarantee="cpus:8"), "b": role_of(guarantee="cpus:4")}
    fixture = AllocatorFixture(roles=roles)
    for name in "ab":
        fixture.framework(name, want("cpus:1"))
    fixture.agent("m", "cpus:6")
    fixture.fill()
    assert cpus(fixture, "a", "b", total=6) == [4, 2]


def test_within_a_role_the_guarantee_of_one_member_comes_first() -> None:
    roles = {"r": role_of(guarantee="cpus:9"), "r/b": role_of(guarantee="cpus:3")}
    fixture = AllocatorFixture(roles=roles)
    fixture.framework("a", want("cpus:1"), roles=["r/a"])
    fixture.framework("b", want("cpus:1"), roles=["r/b"])
    fixture.agent("m", "cpus:4")
    fixture.fill()
    assert cpus(fixture, "a", "b", total=4) == [1, 3]


def test_any_resource_that_is_met_meets_the_guarantee() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:2;mem:8GB")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:6;mem:8GB")
    fixture.fill()
    assert cpus(fixture, "g", "f", total=6) == [3, 3]


def test_a_guarantee_of_zero_is_no_guarantee() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:0")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:1")
    assert fixture.takers() == ["f"]


def test_a_framework_that_cannot_use_the_agent_does_not_block_its_round() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:6")})
    fixture.framework("g", want("cpus:9"))
    fixture.framework("f", want("cpus:1"))
    fixture.agent("m", "cpus:7")
    assert fixture.takers() == ["f"]


@pytest.mark.parametrize("policy", policies.NAMES)
def test_guarantees_come_first_under_every_policy(policy: str) -> None:
    fixture = AllocatorFixture(policies.make(policy), roles={"g/x": role_of(guarantee="cpus:6")})
    for name in ("e", "f"):
        fixture.framework(name, want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=["g/x"])
    fixture.agent("m", "cpus:6")
    fixture.fill()
    assert cpus(fixture, "g", total=6) == [6]


def test_why_names_the_guarantee_that_took_the_agent() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:7")})
    fixture.framework("f", want("cpus:2"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:6")
    fixture.deal()
    assert fixture.causes("f") == [Cause.GUARANTEE]
    assert "guarantee of g (cpus:7)" in fixture.why("f")


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

    def test_an_agent_is_reserved_for_a_framework_below_its_guarantee(self) -> None:
        fixture = self.contended()
        for _ in range(3):
            self.end(fixture, "a", self.SMALL)
            assert fixture.deal() == []
            assert fixture.causes("a") == fixture.causes("a", "m") == [Cause.KEPT]
            assert fixture.why("a") == "agent m: reserved for b, below the guarantee of b (cpus:4)"
        self.end(fixture, "a", self.SMALL)
        assert fixture.dealt() == [f"b m {self.LARGE}"]

    def test_a_reservation_is_bounded_in_time(self) -> None:
        fixture = self.contended()
        self.end(fixture, "a", self.SMALL)
        assert fixture.deal() == []
        fixture.wait(30.0)
        assert fixture.takers() == ["a"]

    def test_nothing_is_reserved_once_the_guarantee_is_met(self) -> None:
        fixture = self.contended(b=role_of(guarantee="cpus:3"))
        self.end(fixture, "a", self.SMALL)
        assert fixture.takers() == ["a"]

    def test_nothing_is_reserved_against_a_framework_further_below(self) -> None:
        fixture = self.contended(a=role_of(guarantee="cpus:8"))
        self.end(fixture, "a", self.SMALL)
        assert fixture.takers() == ["a"]

    def test_it_is_reserved_against_a_framework_less_far_below(self) -> None:
        fixture = self.contended(a=role_of(guarantee="cpus:5"), b=role_of(guarantee="cpus:8"))
        assert fixture.deal() == []
        self.end(fixture, "a", self.SMALL)
        assert fixture.deal() == []

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


def test_a_guarantee_ends_with_the_settings() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:6")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.set_role("g", role_of())
    assert fixture.allocator.queries.roles() == {}
    fixture.agent("m", "cpus:6")
    fixture.fill()
    assert fixture.allocator.queries.role_share(Role("g")) == Fraction(1, 2)


def test_a_guarantee_of_an_unused_resource_gives_no_other() -> None:
    """A role with a guarantee of gpus and tasks of cpus does not get all cpus."""
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="gpus:2")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:10")
    fixture.agent("n", "cpus:1;gpus:2")
    fixture.deal()
    assert max(cpus(fixture, "f", "g", total=11)) <= 6
