"""Guarantees: whoever is below one comes before all who are not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Cause, policies
from croupier.model.ids import FrameworkId, Role
from tests.harness.dealing import Dealing, role_of, want


def cpus(dealing: Dealing, *names: str, total: int) -> list[Fraction]:
    """How many cpus frameworks hold, of so many."""
    return [dealing.allocator.share(FrameworkId(name)) * total for name in names]


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
    dealing.allocator.tree.refresh()
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


def test_a_guarantee_is_gone_with_the_settings() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:6")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.set_role("g", role_of())
    assert dealing.allocator.roles() == {}
    dealing.agent("m", "cpus:6")
    dealing.fill()
    assert dealing.allocator.role_share(Role("g")) == Fraction(1, 2)


def test_a_guarantee_of_what_is_not_used_gives_nothing_else() -> None:
    """Who was promised gpus and runs tasks of cpus does not get all cpus."""
    dealing = Dealing(roles={"g": role_of(guarantee="gpus:2")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:10")
    dealing.agent("n", "cpus:1;gpus:2")
    dealing.deal()
    assert max(cpus(dealing, "f", "g", total=11)) <= 6
