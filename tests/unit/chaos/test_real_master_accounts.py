"""The checker of the master's accounts finds inconsistencies."""

from __future__ import annotations

from dataclasses import replace

from croupier.model.resources import NOTHING, Resources
from tests.chaos.real.master_accounts import (
    Holder,
    MasterAccounts,
    TaskLine,
    check_accounts,
    check_idle,
)

ALL = Resources.parse("cpus:4;mem:1GB")
UNIT = Resources.parse("cpus:1;mem:64MB")
BUSY = MasterAccounts(
    Holder("cluster", UNIT, UNIT, 1, ALL),
    (Holder("a1", UNIT, UNIT, 1, ALL),),
    (Holder("f1", UNIT, UNIT, 1, share_ppm=500_000),),
    (Holder("ads", UNIT, UNIT, 1, share_ppm=500_000),),
    (TaskLine("t1", "a1", "f1", "ads/prod", UNIT),),
)
IDLE = MasterAccounts(
    Holder("cluster", NOTHING, NOTHING, 0, ALL),
    (Holder("a1", NOTHING, NOTHING, 0, ALL),),
    (Holder("f1", NOTHING, NOTHING, 0),),
    (Holder("ads", NOTHING, NOTHING, 0),),
    (),
)


def kinds(accounts: MasterAccounts) -> set[str]:
    return {violation.kind for violation in check_accounts(accounts)}


def test_consistent_accounts_are_clean() -> None:
    assert kinds(BUSY) == set()
    assert check_idle(IDLE, ALL) == []


def test_resources_used_twice_or_not_at_all_are_found() -> None:
    (agent,) = BUSY.agents
    twice = replace(BUSY, agents=(replace(agent, used=UNIT + UNIT),))
    assert kinds(twice) == {"counted_twice"}
    assert kinds(replace(BUSY, agents=(replace(agent, used=NOTHING),))) == {"not_counted"}
    assert kinds(replace(BUSY, agents=(replace(agent, tasks=2),))) == {"miscounted"}


def test_resources_offered_twice_are_found() -> None:
    (agent,) = BUSY.agents
    more = replace(agent, offered=ALL)
    assert "counted_twice" in kinds(replace(BUSY, agents=(more,)))
    (framework,) = BUSY.frameworks
    assert "counted_twice" in kinds(replace(BUSY, frameworks=(replace(framework, offered=ALL),)))


def test_a_wrong_share_is_found() -> None:
    (framework,) = BUSY.frameworks
    assert kinds(replace(BUSY, frameworks=(replace(framework, share_ppm=250_000),))) == {"share"}
    (role,) = BUSY.roles
    assert kinds(replace(BUSY, roles=(replace(role, share_ppm=1_000_000),))) == {"share"}


def test_leftovers_of_an_idle_cluster_are_found() -> None:
    assert {violation.kind for violation in check_idle(BUSY, ALL)} == {"leak"}
    assert [violation.about for violation in check_idle(IDLE, ALL + ALL)] == ["cluster"]
