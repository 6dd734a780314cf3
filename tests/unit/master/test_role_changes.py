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
from croupier.model.errors import Conflict, CroupierError, InvalidRequest
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, parse_amounts
from tests.harness.world import World, make_task

ADS = Role("ads")
PROD = Role("ads/prod")
TEST = Role("ads/test")
WEB = Role("web")


def settings(guarantee: str = "", limit: str = "", weight: int = 1000) -> RoleSettings:
    return RoleSettings(weight, guarantee=parse_amounts(guarantee), limit=parse_amounts(limit))


def cluster(total: str = "cpus:16;mem:32GB", away: int = 0, **used: str) -> ClusterTotals:
    """Return a cluster with the resources `total`, with ports, and with this usage of roles."""
    amounts = parse_amounts(total)
    return ClusterTotals(
        amounts,
        frozenset(amounts),
        frozenset({"ports"}),
        away,
        {Role(role.replace("_", "/")): parse_amounts(text) for role, text in used.items()},
    )


def test_change_of_a_part_leaves_the_rest() -> None:
    now = {ADS: RoleSettings(2000, {"cpus": 3}, {"cpus": 1}, {"mem": 5}, False)}
    given = settings(limit="cpus:8")
    change = RoleChange(ADS, given, (RolePart.LIMIT,))
    assert changed_settings([change], now, {}) == {
        ADS: RoleSettings(2000, {"cpus": 3}, {"cpus": 1}, {"cpus": 8000}, False)
    }
    assert changed_settings([RoleChange(ADS, given)], now, {}) == {ADS: given}


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


def test_part_that_contradicts_an_unchanged_part_is_refused() -> None:
    now = {ADS: settings("cpus:4")}
    with pytest.raises(InvalidRequest, match="role ads: the guarantee cpus:4 is above the limit"):
        changed_settings([RoleChange(ADS, settings(limit="cpus:2"), (RolePart.LIMIT,))], now, {})


def test_guarantees_below_a_role_are_bounded_by_its_own() -> None:
    check_settings({PROD: settings("cpus:4"), TEST: settings("cpus:4")})
    check_settings({ADS: settings("cpus:8"), PROD: settings("cpus:4"), TEST: settings("cpus:4")})
    check_settings({ADS: settings("mem:1GB"), PROD: settings("cpus:4")})
    with pytest.raises(InvalidRequest) as refusal:
        check_settings(
            {ADS: settings("cpus:7"), PROD: settings("cpus:4"), TEST: settings("cpus:4")}
        )
    assert str(refusal.value) == (
        "cpus:8 is guaranteed to roles within ads, which itself is guaranteed cpus:7"
    )


def test_guarantees_are_bounded_by_every_limit_above() -> None:
    deep = Role("ads/prod/eu")
    check_settings({ADS: settings(limit="cpus:4"), deep: settings("cpus:4")})
    with pytest.raises(InvalidRequest) as refusal:
        check_settings({ADS: settings(limit="cpus:3"), deep: settings("cpus:4")})
    assert str(refusal.value) == (
        "cpus:4 is guaranteed to roles within ads, which is limited to cpus:3"
    )
    # The limit of a role may be above that of its parent: the smaller binds.
    check_settings({ADS: settings(limit="cpus:3"), PROD: settings(limit="cpus:9")})


def test_number_of_roles_is_bounded() -> None:
    full = {Role(f"r{number}"): settings(weight=2) for number in range(MAX_ROLES_SET)}
    check_settings(full)
    with pytest.raises(InvalidRequest, match="more than 10000"):
        check_settings({**full, ADS: settings(weight=2)})


def against(
    wanted: dict[Role, RoleSettings], now: dict[Role, RoleSettings], facing: ClusterTotals
) -> None:
    check_against(wanted, now, facing, check_settings({**now, **wanted}))


def refusal(
    wanted: dict[Role, RoleSettings],
    facing: ClusterTotals,
    now: dict[Role, RoleSettings] | None = None,
) -> CroupierError:
    with pytest.raises(CroupierError) as refused:
        against(wanted, now or {}, facing)
    return refused.value


def test_unknown_resource_is_refused_with_the_known_ones() -> None:
    error = refusal({ADS: settings(limit="gpus:1")}, cluster(away=2))
    assert isinstance(error, Conflict)
    assert str(error) == (
        "role ads: no agent has gpus (known: cpus, mem), 2 of its agents are away; "
        "--force accepts it all the same"
    )
    error = refusal({ADS: settings(limit="ports:1")}, cluster())
    assert str(error) == "role ads: ports has no amount, and only amounts count (cpus, mem)"
    assert isinstance(refusal({ADS: RoleSettings(1, {"gpus": 2})}, cluster()), Conflict)
    # Unchanged settings are not checked against the cluster.
    against({ADS: settings(limit="gpus:2", weight=9)}, {ADS: settings(limit="gpus:1")}, cluster())


def test_guarantees_above_the_cluster_are_refused() -> None:
    now = {WEB: settings("cpus:10")}
    against({ADS: settings("cpus:6")}, now, cluster())
    error = refusal({ADS: settings("cpus:7")}, cluster(), now)
    assert isinstance(error, Conflict)
    assert str(error) == (
        "cpus:17 would be guaranteed in all and the cluster has cpus:16; "
        "--force accepts it all the same"
    )
    # Guarantees below a role are part of its own.
    against({Role("web/x"): settings("cpus:9")}, now, cluster())
    # The cluster has shrunk: guarantees may be lowered, not raised.
    against({WEB: settings("cpus:9")}, now, cluster("cpus:4"))
    refusal({WEB: settings("cpus:11")}, cluster("cpus:4"), now)


def test_cluster_without_agents_contradicts_nothing() -> None:
    against({ADS: settings("cpus:9", "gpus:3")}, {}, cluster(""))


def test_limit_below_usage_is_a_conflict() -> None:
    facing = cluster(ads="cpus:4", ads_prod="cpus:3")
    against({ADS: settings(limit="cpus:4")}, {}, facing)
    error = refusal({ADS: settings(limit="cpus:3")}, facing)
    assert isinstance(error, Conflict)
    assert str(error) == (
        "role ads: tasks use cpus:4, which is more than the limit cpus:3; "
        "--force accepts it all the same: they run on, and none is added"
    )
    # A forced limit may be raised, and other settings may change.
    now = {ADS: settings(limit="cpus:1")}
    against({ADS: settings(limit="cpus:2", weight=5)}, now, facing)
    refusal({ADS: settings(limit="cpus:0")}, facing, now)


def test_ten_thousand_roles_are_checked_within_a_slice() -> None:
    roles = {
        Role(f"org{number % 100}/team{number}"): settings("cpus:1;mem:1GB", "cpus:2;mem:2GB")
        for number in range(MAX_ROLES_SET)
    }
    wanted = {role: roles[role] for role in list(roles)[:MAX_CHANGES]}
    began = time.thread_time()
    against(wanted, roles, cluster("cpus:20000;mem:20TB"))
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
