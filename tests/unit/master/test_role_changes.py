"""Checks of changes to roles, and their bounds; `scenarios/changed_roles.txt` tells the rest."""

from __future__ import annotations

import time

import pytest

from croupier.master.core.effects import Answer
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import (
    MAX_CHANGES,
    MAX_ROLES_SET,
    ClusterTotals,
    RoleChange,
    RolePart,
    changed_settings,
    check_against,
    check_settings,
    is_set,
)
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, parse_amounts
from tests.harness.world import World, make_task

ADS = Role("ads")
WEB = Role("web")


def settings(guarantee: str = "", limit: str = "", weight: int = 1000) -> RoleSettings:
    return RoleSettings(weight, guarantee=parse_amounts(guarantee), limit=parse_amounts(limit))


def test_change_without_settings_restores_the_flags() -> None:
    now = {ADS: settings("cpus:1", weight=5000), WEB: settings(weight=9)}
    initial = {ADS: settings(weight=2000)}
    changes = [RoleChange(ADS, None, (RolePart.WEIGHT,)), RoleChange(WEB, None)]
    wanted = changed_settings(changes, now, initial)
    assert wanted == {ADS: settings("cpus:1", weight=2000), WEB: RoleSettings()}
    assert is_set(ADS, wanted[ADS], initial)
    assert not is_set(WEB, wanted[WEB], initial)
    assert not is_set(ADS, settings(weight=2000), initial)
    assert is_set(ADS, RoleSettings(), initial), "an operator's weight of 1 wins over the flag's 2"


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [RoleChange(Role(f"r{number}"), None) for number in range(MAX_CHANGES + 1)],
        [RoleChange(ADS, None), RoleChange(ADS, settings(weight=2))],
        [RoleChange(Role("a/../a"), None)],
        [RoleChange(Role("x" * 1_000_000), None)],
        [RoleChange(ADS, RoleSettings(weight=0))],
        [RoleChange(ADS, settings(limit="cpus:1")), RoleChange(WEB, settings("cpus:2", "cpus:1"))],
    ],
)
def test_invalid_changes_are_refused(changes: list[RoleChange]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        changed_settings(changes, {}, {})
    assert len(str(refused.value)) < 500


def test_number_of_roles_is_bounded() -> None:
    full = {Role(f"r{number}"): settings(weight=2) for number in range(MAX_ROLES_SET)}
    check_settings(full)
    with pytest.raises(InvalidRequest, match="more than 10000"):
        check_settings({**full, ADS: settings(weight=2)})


def test_ten_thousand_roles_are_checked_within_a_slice() -> None:
    roles = {
        Role(f"org{number % 100}/team{number}"): settings("cpus:1;mem:1GB", "cpus:2;mem:2GB")
        for number in range(MAX_ROLES_SET)
    }
    wanted = {role: roles[role] for role in list(roles)[:MAX_CHANGES]}
    began = time.thread_time()
    amounts = parse_amounts("cpus:20000;mem:20TB")
    claims = check_settings({**roles, **wanted})
    check_against(
        wanted, roles, ClusterTotals(amounts, frozenset(amounts), frozenset(), 0, {}), claims
    )
    assert time.thread_time() - began < 1.0


def updated(world: World, change: RoleChange, dry_run: bool = False) -> object:
    """Return the answer to a change of a role."""
    (answer,) = (e for e in world.do(UpdateRoles(1, (change,), dry_run)) if isinstance(e, Answer))
    return answer.result


def test_deep_guarantee_changes_all_roles_above() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for role in ("a/x/y", "a/x/z", "b"):
        session = world.framework(role, "cpus:1;mem:1GB")
        while offers := world.offers(session)[:1]:
            world.accept(
                session, make_task(f"{role[-1]}{len(world.saved)}"), offers=[offers[0].offer_id]
            )
    updated(world, RoleChange(Role("b"), settings(weight=4000)))
    world.agent("cpus:1;mem:1GB", allocate=False)
    world._step(UpdateRoles(1, (RoleChange(Role("a/x/y"), settings("cpus:9")),)))
    tree = world.state.allocator._tree
    assert [tree.roles[Role(role)].level[0] for role in ("a", "a/x", "a/x/y", "b")] == [0, 0, 0, 1]


def test_answered_roles_are_bounded() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for number in range(503):
        world.framework(f"r{number:03}", allocate=False)
    result = updated(world, RoleChange(Role("r007"), settings(weight=2000)), dry_run=True)
    assert isinstance(result, RolesMoved)
    assert [each[0].role for each in result.named] == ["r007"]
    assert len(result.others) == 500
    assert result.others[7][0].role == "r008"
    assert result.omitted == 2
