"""Guarantees: whoever is below one comes before all who are not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Cause, Rules, policies
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import Dealing, amount, role_of, want


def cpus(dealing: Dealing, *names: str, total: int) -> list[Fraction]:
    """How many cpus frameworks hold, of so many."""
    return [dealing.allocator.queries.share(FrameworkId(name)) * total for name in names]


def test_who_is_below_comes_first_however_little_others_have() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:6")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:7")
    dealing.fill()
    assert cpus(dealing, "g", "f", total=7) == [6, 1]


def test_a_guarantee_is_a_floor_and_no_more() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:2")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:10")
    dealing.fill()
    assert cpus(dealing, "g", "f", total=10) == [5, 5]


@pytest.mark.parametrize("path", ["g", "g/b", "g/b/c", "g/b/c/d/e"])
def test_a_guarantee_far_down_is_seen_at_the_top(path: str) -> None:
    dealing = Dealing(roles={path: role_of(guarantee="cpus:6")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"), roles=[path])
    dealing.agent("m", "cpus:7")
    dealing.fill()
    assert cpus(dealing, "g", "f", total=7) == [6, 1]


def test_a_guarantee_that_is_set_far_down_later_is_seen_too() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"), roles=["g/b/c/d"])
    dealing.tree.refresh()
    dealing.set_role("g/b/c/d", role_of(guarantee="cpus:6"))
    dealing.agent("m", "cpus:7")
    dealing.fill()
    assert cpus(dealing, "g", "f", total=7) == [6, 1]


def test_the_least_fulfilled_guarantee_comes_first() -> None:
    """Guarantees that are too large together scale down alike."""
    roles = {"a": role_of(guarantee="cpus:8"), "b": role_of(guarantee="cpus:4")}
    dealing = Dealing(roles=roles)
    for name in "ab":
        dealing.framework(name, want("cpus:1"))
    dealing.agent("m", "cpus:6")
    dealing.fill()
    assert cpus(dealing, "a", "b", total=6) == [4, 2]


def test_within_a_role_the_guarantee_of_one_member_comes_first() -> None:
    roles = {"r": role_of(guarantee="cpus:9"), "r/b": role_of(guarantee="cpus:3")}
    dealing = Dealing(roles=roles)
    dealing.framework("a", want("cpus:1"), roles=["r/a"])
    dealing.framework("b", want("cpus:1"), roles=["r/b"])
    dealing.agent("m", "cpus:4")
    dealing.fill()
    assert cpus(dealing, "a", "b", total=4) == [1, 3]


def test_any_resource_that_is_met_meets_the_guarantee() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:2;mem:8GB")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:6;mem:8GB")
    dealing.fill()
    assert cpus(dealing, "g", "f", total=6) == [3, 3]


def test_a_guarantee_of_nothing_is_none() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:0")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:1")
    assert dealing.takers() == ["f"]


def test_who_cannot_use_the_agent_does_not_hold_it_up() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:6")})
    dealing.framework("g", want("cpus:9"))
    dealing.framework("f", want("cpus:1"))
    dealing.agent("m", "cpus:7")
    assert dealing.takers() == ["f"]


@pytest.mark.parametrize("policy", policies.NAMES)
def test_guarantees_come_first_under_every_policy(policy: str) -> None:
    dealing = Dealing(policies.make(policy), roles={"g/x": role_of(guarantee="cpus:6")})
    for name in ("e", "f"):
        dealing.framework(name, want("cpus:1"))
    dealing.framework("g", want("cpus:1"), roles=["g/x"])
    dealing.agent("m", "cpus:6")
    dealing.fill()
    assert cpus(dealing, "g", total=6) == [6]


def test_whom_a_guarantee_cost_an_agent_is_told_so() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:6")})
    dealing.framework("f", want("cpus:2"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:6")
    dealing.deal()
    assert dealing.causes("f") == [Cause.GUARANTEE]
    assert "guarantee of g (cpus:6)" in dealing.why("f")


class TestLargeUnits:
    """Units of `b` are larger than the gaps that tasks of `a` leave on 8 cpus and 8 GB."""

    SMALL, LARGE = "cpus:1;mem:512MB", "cpus:1;mem:2GB"

    def contended(self, *agents: str, **roles: RoleSettings) -> Dealing:
        """Tasks of `a` have everything but what three units of `b` take."""
        roles = {"b": role_of(guarantee="cpus:4"), **roles}
        dealing = Dealing(rules=Rules(hold_s=30.0), roles=roles)
        dealing.framework("b", want(self.LARGE, 3))
        dealing.agent("m", "cpus:8;mem:8GB")
        dealing.fill()
        dealing.framework("a", want(self.SMALL))
        dealing.fill()
        assert cpus(dealing, "a", total=8) == [4]
        dealing.demand("b", want(self.LARGE))
        assert dealing.deal() == []
        return dealing

    def end(self, dealing: Dealing, name: str, unit: str) -> None:
        dealing.allocator.charges.release(FrameworkId(name), Role(name), AgentId("m"), amount(unit))

    def test_room_is_kept_for_who_is_below_its_guarantee(self) -> None:
        dealing = self.contended()
        for _ in range(3):
            self.end(dealing, "a", self.SMALL)
            assert dealing.deal() == []
            assert dealing.causes("a") == dealing.causes("a", "m") == [Cause.KEPT]
            assert dealing.why("a") == "agent m: kept for b, below the guarantee of b (cpus:4)"
        self.end(dealing, "a", self.SMALL)
        assert dealing.dealt() == [f"b m {self.LARGE}"]

    def test_it_is_kept_for_a_bounded_time(self) -> None:
        dealing = self.contended()
        self.end(dealing, "a", self.SMALL)
        assert dealing.deal() == []
        dealing.wait(30.0)
        assert dealing.takers() == ["a"]

    def test_nothing_is_kept_once_the_guarantee_is_met(self) -> None:
        dealing = self.contended(b=role_of(guarantee="cpus:3"))
        self.end(dealing, "a", self.SMALL)
        assert dealing.takers() == ["a"]

    def test_nothing_is_kept_from_who_is_further_below_its_own(self) -> None:
        dealing = self.contended(a=role_of(guarantee="cpus:8"))
        self.end(dealing, "a", self.SMALL)
        assert dealing.takers() == ["a"]

    def test_it_is_kept_from_who_is_not_as_far_below(self) -> None:
        dealing = self.contended(a=role_of(guarantee="cpus:5"), b=role_of(guarantee="cpus:8"))
        assert dealing.deal() == []
        self.end(dealing, "a", self.SMALL)
        assert dealing.deal() == []

    def test_the_guarantee_is_met_under_churn(self) -> None:
        """Tasks of both end all the time; what comes free goes to whoever comes first."""
        dealing = self.contended()
        seen = []
        for second in range(24):
            for name, unit in (("a", self.SMALL), ("a", self.SMALL), ("b", self.LARGE)):
                if dealing.allocator.queries.role_share(Role(name)):
                    self.end(dealing, name, unit)
                    dealing.fill()
            dealing.wait(1.0)
            seen.append(cpus_of(dealing, "b"))
            assert second < 8 or seen[-1] == 4, seen


def cpus_of(dealing: Dealing, role: str) -> int:
    """How many cpus a role holds."""
    return dealing.tree.roles[Role(role)].held.get("cpus", 0) // 1000


def test_a_guarantee_is_gone_with_the_settings() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:6")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.set_role("g", role_of())
    assert dealing.allocator.queries.roles() == {}
    dealing.agent("m", "cpus:6")
    dealing.fill()
    assert dealing.allocator.queries.role_share(Role("g")) == Fraction(1, 2)


def test_a_guarantee_of_what_is_not_used_gives_nothing_else() -> None:
    """Who was promised gpus and runs tasks of cpus does not get all cpus."""
    dealing = Dealing(roles={"g": role_of(guarantee="gpus:2")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:10")
    dealing.agent("n", "cpus:1;gpus:2")
    dealing.deal()
    assert max(cpus(dealing, "f", "g", total=11)) <= 6
