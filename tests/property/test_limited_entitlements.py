"""Under limits, each role is entitled to what it gets of a cluster that is filled."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, want
from tests.harness.effort import portion

ROLES = ("a", "a/x", "a/y", "b", "b/x", "c")
LEAVES = ("a/x", "a/y", "b/x", "c")
CPUS = 400
WORLDS = 40


def entitled(fixture: AllocatorFixture, role: str) -> Fraction:
    return fixture.allocator.queries.role_entitlement(Role(role))


@pytest.mark.parametrize("seed", range(portion(WORLDS)))
def test_what_limits_leave_goes_to_siblings(seed: int) -> None:
    random = Random(seed)
    fixture = AllocatorFixture()
    for role in ROLES:
        limit = {}
        if random.random() < 0.4:
            limit = {"cpus": random.randint(0, CPUS // 2) * 1000, "mem": CPUS * 100_000}
        fixture.set_role(role, RoleSettings(random.choice((1000, 2000, 5000)), limit=limit))
    for number, role in enumerate(LEAVES):
        fixture.framework(f"f{number}", want("cpus:1"), roles=(role,))
    before = {role: entitled(fixture, role) for role in ROLES}
    assert all(0 <= each <= 1 for each in before.values())
    fixture.agent("m", f"cpus:{CPUS};mem:{CPUS * 10}MB")
    fixture.fill()
    for role in ROLES:
        share, due = fixture.allocator.queries.role_share(Role(role)), entitled(fixture, role)
        assert abs(share - due) <= Fraction(4, CPUS), (role, float(share), float(due))


def test_a_role_is_entitled_to_its_limit_at_most() -> None:
    fixture = AllocatorFixture(roles={"a": RoleSettings(limit={"cpus": 21_000})})
    fixture.agent("m", "cpus:100;mem:100GB")
    for role in ("a", "a", "b", "c"):
        name = f"f{len(fixture.tree.leaves)}"
        fixture.framework(name, want("cpus:1"), roles=(role,))
    assert entitled(fixture, "a") == Fraction(21, 100)
    assert entitled(fixture, "b") == entitled(fixture, "c") == Fraction(79, 200)
    assert fixture.allocator.queries.entitlement(FrameworkId("f0")) == Fraction(21, 200)
    fixture.set_role("a", RoleSettings(limit={"cpus": 50_000}))
    assert entitled(fixture, "a") == Fraction(1, 3)
    what_if = fixture.allocator.queries.what_if({Role("b"): RoleSettings(limit={"cpus": 10_000})})
    assert what_if.entitlement(Role("b")) == Fraction(1, 10)
    assert what_if.entitlement(Role("a")) == Fraction(9, 20)
    assert set(what_if.moved()) == {"a", "b", "c"}
    assert fixture.agents.agents[AgentId("m")].free == fixture.agents.agents[AgentId("m")].total
