"""Demand that an agent can never serve is remembered, and forgotten when it changes."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.master.allocator import kinds as kinds_module
from croupier.master.allocator import profiles as profiles_module
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.model.attributes import equals
from croupier.model.ids import AgentId, FrameworkId
from tests.harness.allocator_fixture import AllocatorFixture, want
from tests.harness.allocator_invariants import check_allocator
from tests.harness.reasons import reasons_of

LARGE = want("cpus:8", 1)
F = FrameworkId("f0")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every check of a framework against an agent is added."""
    found: list[str] = []
    check = AgentAllocation._check

    def counted(visit: AgentAllocation, leaf: object, *, only_queued: bool = False) -> object:
        before = visit.checks
        result = check(visit, leaf, only_queued=only_queued)  # type: ignore[arg-type]
        if visit.checks > before:
            found.append(f"{leaf} {visit._agent.agent_id}")
        return result

    monkeypatch.setattr(AgentAllocation, "_check", counted)
    return found


def waiting(frameworks: int = 20, *, one_role: bool = True) -> AllocatorFixture:
    """Return frameworks that wait for agents of 8 cpus in zone a; all were visited once."""
    fixture = AllocatorFixture()
    fixture.agent("m", "cpus:4", zone="a")
    fixture.agent("n", "cpus:8", zone="b")
    for number in range(frameworks):
        demand = want("cpus:8", 1, equals("zone", "a"))
        fixture.framework(f"f{number}", demand, roles=["r"] if one_role else ())
    assert fixture.deal() == []
    return fixture


@pytest.mark.parametrize("one_role", [True, False])
def test_one_framework_of_a_kind_is_checked_once_on_agents_alike(
    checks: list[str], one_role: bool
) -> None:
    fixture = waiting(one_role=one_role)
    assert len(checks) == 2
    fixture.agent("m2", "cpus:4", zone="a")
    fixture.agent("n2", "cpus:8", zone="b")
    fixture.framework("g", want("cpus:1", 1), roles=["r"])
    checks.clear()
    assert fixture.takers() == ["g"]
    assert [each for each in checks if "g" not in each] == []


def test_a_shape_that_is_met_does_not_keep_the_others_in_sight(checks: list[str]) -> None:
    fixture = AllocatorFixture()
    fixture.agent("m", "cpus:4")
    fixture.framework("f0", want("cpus:1", 1), LARGE)
    (grant,) = fixture.deal()
    fixture.accept(grant)
    fixture.agent("n", "cpus:4")
    fixture.deal()
    checks.clear()
    fixture.agent("n2", "cpus:4")
    assert fixture.deal() == []
    assert checks == []
    assert "needs cpus:8" in fixture.why("f0")


def test_demand_that_fits_only_an_empty_agent_is_checked_at_each_visit(checks: list[str]) -> None:
    fixture = AllocatorFixture(rules=Rules())
    fixture.agent("m", "cpus:4")
    fixture.framework("g", want("cpus:1"))
    taken = fixture.fill()
    fixture.framework("f0", want("cpus:4", 1))
    fixture.finish(taken[0], "cpus:1")
    checks.clear()
    fixture.deal()
    assert "<Leaf f0> m" in checks


def test_profiles_go_with_their_agents() -> None:
    fixture = waiting()
    fixture.agent("m2", "cpus:4", zone="a")
    fixture.deal()
    assert len(fixture.allocator._profiles) == 2
    for name in ("m", "m2", "n"):
        fixture.allocator.remove_agent(AgentId(name))
    check_allocator(fixture.allocator)
    assert len(fixture.allocator._profiles) == 0


def test_kinds_go_some_time_after_their_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = waiting(3)
    fixture.framework("g", want("cpus:9", 1, equals("rack", "r1")))
    fixture.demand("g", want("cpus:10", 1))
    assert set(fixture.tree.kinds.named) == {"zone", "rack"}
    monkeypatch.setattr(kinds_module, "MOST_IDLE", 1)
    fixture.allocator.remove_framework(FrameworkId("g"))
    assert set(fixture.tree.kinds.named) == {"zone"}
    for number in range(3):
        fixture.allocator.remove_framework(FrameworkId(f"f{number}"))
    assert len(fixture.tree.kinds) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles_module, "MOST_LEARNED", 10)
    fixture = AllocatorFixture()
    for number in range(5):
        fixture.agent(f"m{number}", f"cpus:{number + 1}")
    for number in range(50):
        fixture.framework(f"f{number}", want(f"cpus:{number + 10}", 1))
        assert fixture.deal() == []
        assert fixture.allocator._profiles._learned <= 10
    # What is forgotten is worked out for an operator.
    assert (
        "needs cpus:10, which fits nowhere: agent m4, the largest, has only cpus:5"
        in fixture.why("f0")
    )
    fixture.framework("g", want("cpus:1", 1))
    assert fixture.takers() == ["g"]


def test_groups_that_are_empty_are_dropped() -> None:
    fixture = waiting()
    for number in range(40):
        fixture.demand(f"f{number % 20}", want(f"cpus:{number + 9}", 1))
        fixture.agent(f"m{number}", "cpus:4")
        fixture.deal()
    groups = fixture.tree.roles[next(iter(fixture.tree.roles))].groups
    assert groups is not None
    assert len(groups._groups) <= 2 * 20 + 8


def test_a_sweep_passes_over_agents_without_room(checks: list[str]) -> None:
    fixture = AllocatorFixture()
    fixture.framework("g", want("cpus:3"))
    for number in range(10):
        fixture.agent(f"m{number}", "cpus:4")
    taken = fixture.fill()
    fixture.framework("f0", want("cpus:2", 1))
    assert fixture.deal() == []
    assert checks[-1] == "<Leaf f0> m0"
    (case,) = reasons_of(fixture.allocator.queries, F)
    assert (case.cause, case.agents) == (Cause.IN_USE, 10)
    assert fixture.why("f0") == "agent m9: needs cpus:2, but only cpus:1 is free"
    fixture.finish(taken[3], "cpus:3")
    assert "f0 m3 cpus:2" in fixture.dealt()
