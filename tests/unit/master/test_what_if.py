"""Predicted entitlements equal the entitlements after the settings are applied."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from fractions import Fraction

from croupier.master.allocator import Allocator
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.allocator_invariants import check_allocator

ROLES = [Role(r) for r in ("a", "a/x", "a/y", "a/y/1", "a/y/2", "b", "b/x", "c", "*")]


def random_settings(rng: random.Random) -> RoleSettings:
    weights = {"cpus": rng.randint(1, 9) * 250} if rng.random() < 0.3 else {}
    return RoleSettings(rng.randint(1, 9) * 500, weights)


def random_cluster(rng: random.Random) -> Allocator:
    allocator = Allocator(roles={role: random_settings(rng) for role in rng.sample(ROLES, 3)})
    for number in range(3):
        size = Resources.parse(f"cpus:{rng.randint(4, 20)};mem:{rng.randint(4, 40)}GB;gpus:1")
        allocator.add_agent(AgentId(f"a{number}"), size)
    for number, role in enumerate(rng.sample(ROLES, 6)):
        framework_id = FrameworkId(f"f{number}")
        allocator.add_framework(framework_id, [role])
        unit = Resources.parse(f"cpus:{rng.randint(1, 3)};mem:{rng.randint(1, 4)}GB")
        allocator.set_demand(framework_id, [Demand(unit)] if rng.random() < 0.7 else [])
        allocator.connect(framework_id, rng.random() < 0.8)
    for grant in allocator.run(0.0, 1000):
        if rng.random() < 0.5:
            allocator.charges.launch(
                grant.framework_id, grant.role, grant.agent_id, grant.resources
            )
    return allocator


def due(allocator: Allocator) -> dict[Role, Fraction]:
    return {
        role: allocator.queries.role_entitlement(role) for role in allocator.queries.roles_in_use()
    }


def test_predictions_come_true_and_change_nothing() -> None:
    moved = 0
    for seed in range(200):
        rng = random.Random(seed)
        allocator = random_cluster(rng)
        before, now = dict(allocator.queries.roles()), due(allocator)
        changes = {role: random_settings(rng) for role in rng.sample(ROLES, 2)}
        what_if = allocator.queries.what_if(changes)
        would_be = {role: what_if.entitlement(role) for role in now}
        would_move = list(what_if.moved())
        assert allocator.queries.roles() == before
        assert due(allocator) == now
        check_allocator(allocator)
        for role, settings in changes.items():
            allocator.set_role(role, settings)
        assert due(allocator) == would_be
        assert len(would_move) == len(set(would_move))
        assert set(would_move) == {role for role in now if would_be[role] != now[role]}
        moved += would_be != now
    assert moved > 100


def test_doubled_weight_entitles_to_two_thirds() -> None:
    allocator = Allocator()
    allocator.add_agent(AgentId("a1"), Resources.parse("cpus:9;mem:9GB"))
    for role in ("ads", "web"):
        allocator.add_framework(FrameworkId(role), [Role(role)])
        allocator.connect(FrameworkId(role), True)
    half, what_if = (
        Fraction(1, 2),
        allocator.queries.what_if({Role("ads"): RoleSettings(weight=2000)}),
    )
    assert due(allocator) == {"ads": half, "web": half}
    assert what_if.entitlement(Role("ads")) == Fraction(2, 3)
    assert what_if.entitlement(Role("web")) == Fraction(1, 3)
    assert sorted(what_if.moved()) == ["ads", "web"]
    assert what_if.entitlement(Role("none")) == 0


def test_unchanged_branches_are_not_visited() -> None:
    """A prediction about one branch costs nothing in the others, however large they are."""
    allocator = Allocator()
    allocator.add_agent(AgentId("a1"), Resources.parse("cpus:9;mem:9GB"))
    roles = [Role(f"big/{one}/{two}") for one in range(20) for two in range(20)]
    for role in (Role("small/a"), Role("small/b"), *roles):
        allocator.add_framework(FrameworkId(role.replace("/", "-")), [role])
        allocator.connect(FrameworkId(role.replace("/", "-")), True)
    what_if = allocator.queries.what_if({Role("small/a"): RoleSettings(weight=3000)})
    calls = count_calls(lambda: list(what_if.moved()))
    assert sorted(what_if.moved()) == ["small/a", "small/b"]
    assert calls < 100


def count_calls(work: Callable[[], object]) -> int:
    calls = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
