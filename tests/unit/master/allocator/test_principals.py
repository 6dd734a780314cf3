"""Frameworks of one principal divide one share of each role that they are in."""

from __future__ import annotations

from collections import Counter

import pytest

from croupier.master.allocator import Rules, policies
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from tests.harness.allocator_fixture import AllocatorFixture, role_of, want
from tests.harness.allocator_invariants import check_allocator
from tests.harness.reasons import reasons_of


def units_of(fixture: AllocatorFixture) -> Counter[str]:
    """Deal until nothing more is free for it; return how many units each framework has."""
    units: Counter[str] = Counter()
    for grant in fixture.fill():
        units[grant.framework_id] += sum(number for _, number in grant.units)
    return units


def crowd(fixture: AllocatorFixture, owner: str, frameworks: int, role: str = "*") -> None:
    for number in range(frameworks):
        fixture.framework(f"{owner}{number}", want("cpus:1"), roles=(role,), owner=owner)


TREES = ["drf", "yarn-drf", "asset", "single-resource", "slots"]


@pytest.mark.parametrize("policy", TREES)
def test_more_frameworks_than_units_get_no_more_than_one_of_another(policy: str) -> None:
    fixture = AllocatorFixture(policies.make(policy))
    crowd(fixture, "many", 100)
    crowd(fixture, "one", 1)
    fixture.agent("a", "cpus:40;mem:40GB")
    units = units_of(fixture)
    assert units.pop("one0") == 20
    assert max(units.values()) == 1


@pytest.mark.parametrize("policy", TREES)
def test_many_frameworks_of_one_principal_get_as_much_as_one_of_another(policy: str) -> None:
    fixture = AllocatorFixture(policies.make(policy))
    crowd(fixture, "many", 9)
    crowd(fixture, "one", 1)
    fixture.agent("a", "cpus:36;mem:36GB")
    units = units_of(fixture)
    assert units.pop("one0") == 18
    assert sorted(units.values()) == [2] * 9


def test_the_lottery_draws_one_lot_for_a_principal() -> None:
    fixture = AllocatorFixture(policies.make("random", 7))
    crowd(fixture, "many", 20)
    crowd(fixture, "one", 1)
    fixture.agent("a", "cpus:2000;mem:2000GB")
    units = units_of(fixture)
    assert 900 < units["one0"] < 1100
    assert min(units[f"many{number}"] for number in range(20)) > 25


def test_a_late_framework_is_drawn_as_often_as_the_others_of_its_principal() -> None:
    fixture = AllocatorFixture(policies.make("random", 3))
    crowd(fixture, "p", 5)
    crowd(fixture, "q", 1)
    fixture.agent("a", "cpus:1000;mem:1000GB")
    units_of(fixture)
    fixture.framework("late", want("cpus:1"), roles=("*",), owner="p")
    fixture.agent("b", "cpus:1200;mem:1000GB")
    assert 60 < units_of(fixture)["late"] < 140


def test_entitlements_are_divided_among_principals_first() -> None:
    fixture = AllocatorFixture()
    crowd(fixture, "p", 4)
    crowd(fixture, "q", 1)
    fixture.agent("a", "cpus:8;mem:8GB")
    queries = fixture.allocator.queries
    assert float(queries.entitlement(FrameworkId("p0"))) == pytest.approx(1 / 8, abs=1e-4)
    assert float(queries.entitlement(FrameworkId("q0"))) == pytest.approx(1 / 2, abs=1e-4)
    assert float(queries.role_entitlement(Role("*"))) == 1


def test_the_level_is_no_role() -> None:
    fixture = AllocatorFixture()
    crowd(fixture, "p", 2, "ads/prod")
    assert list(fixture.allocator.queries.roles_in_use()) == ["ads", "ads/prod"]
    assert fixture.allocator.queries.roles_of(FrameworkId("p0")) == ["ads/prod"]
    assert fixture.allocator.queries.role_status(Role("ads")).frameworks == 2
    assert fixture.allocator.queries.role_status(Role("ads/prod/p")).frameworks == 0


def test_a_claimed_framework_takes_its_holdings_and_filters_along() -> None:
    fixture = AllocatorFixture(roles={"ads": role_of(limit="cpus:9")})
    crowd(fixture, "p", 1, "ads")
    for name in ("old0", "old1"):
        fixture.framework(name, want("cpus:1", 3), roles=("ads",))
    fixture.agent("a", "cpus:4;mem:8GB")
    offered = {grant.framework_id: grant for grant in fixture.deal()}
    fixture.accept(offered[FrameworkId("old0")])
    fixture.decline(offered[FrameworkId("old1")], refuse_s=60)
    fixture.deal()
    used = fixture.allocator.queries.share(FrameworkId("old0"))
    before = fixture.allocator.queries.role_status(Role("ads"))
    for name in ("old0", "old1"):
        fixture.allocator.set_owner(FrameworkId(name), "p")
        check_allocator(fixture.allocator)
    assert fixture.allocator.queries.role_status(Role("ads")) == before
    assert fixture.allocator.queries.share(FrameworkId("old0")) == used > 0
    assert fixture.allocator.queries.filter_count() == 1
    crowd(fixture, "q", 1, "ads")
    queries = fixture.allocator.queries
    assert float(queries.entitlement(FrameworkId("q0"))) == pytest.approx(1 / 2, abs=1e-4)
    fixture.allocator.set_owner(FrameworkId("old0"), "")
    check_allocator(fixture.allocator)


def test_tasks_found_in_a_role_that_was_left_are_charged_to_the_owner() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"), roles=("a",), owner="p")
    fixture.agent("x", "cpus:4;mem:4GB")
    place = (FrameworkId("f"), Role("b"))
    fixture.allocator.charges.charge(AgentId("x"), [(*place, Resources({"cpus": 1000}))])
    assert fixture.tree.leaves[place].owner == "p"
    check_allocator(fixture.allocator)


def test_principals_are_compared_by_name() -> None:
    fixture = AllocatorFixture()
    crowd(fixture, "p", 2)
    fixture.agent("a", "cpus:3;mem:4GB")
    fixture.fill()
    crowd(fixture, "q", 1)
    fixture.agent("b", "cpus:1;mem:1GB")
    fixture.deal()
    reason = reasons_of(fixture.allocator.queries, FrameworkId("p0"))[0]
    assert "principal q 0.250" in reason.detail
    assert "principal p 0.750" in reason.detail
    assert reason.rival == "q0"


@pytest.mark.parametrize("frameworks", [1, 4])
def test_the_frameworks_of_a_principal_reserve_agents_together(frameworks: int) -> None:
    fixture = AllocatorFixture(rules=Rules(hold_s=30.0, scarce=frozenset()))
    fixture.framework("small", want("cpus:1"), roles=("*",), owner="q")
    for number in range(frameworks):
        fixture.framework(f"large{number}", want("cpus:4"), roles=("*",), owner="p")
    for number in range(8):
        fixture.agent(f"a{number}", "cpus:4;mem:4GB")
        charge = (FrameworkId("small"), Role("*"), Resources({"cpus": 2000}))
        fixture.allocator.charges.charge(AgentId(f"a{number}"), [charge])
    assert len(fixture.deal()) == 8 - 2
    assert len(fixture.tree.roles[Role("*")].principals["p"].reserved.until) == 2
    fixture.allocator.set_owner(FrameworkId("large0"), "")
    fixture.allocator.set_owner(FrameworkId("large0"), "p")
    assert len(fixture.tree.roles[Role("*")].principals["p"].reserved.until) == 2
    fixture.wait(30.0)
    assert len(fixture.deal()) == 2
