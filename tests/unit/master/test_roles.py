"""Changes of roles are durable, atomic, and take effect at once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core.effects import Answer, Happened, Save
from croupier.master.core.facts import OfferEnded, RoleChanged
from croupier.master.core.records import ForgetRole, Registry, RoleRecord
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.model.errors import Conflict, CroupierError, InvalidRequest
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, parse_amounts
from tests.harness.role_statuses import role_statuses
from tests.harness.world import World, make_task

ADS = Role("ads")
WEB = Role("web")


def change(
    role: str,
    guarantee: str = "",
    limit: str = "",
    weight: int = 1000,
    parts: tuple[RolePart, ...] = (),
) -> RoleChange:
    settings = RoleSettings(weight, guarantee=parse_amounts(guarantee), limit=parse_amounts(limit))
    return RoleChange(Role(role), settings, parts)


def update(
    world: World, *changes: RoleChange, dry_run: bool = False, force: bool = False
) -> object:
    """Return the answer to `changes`."""
    event = UpdateRoles(1, changes, dry_run, force, "somewhere")
    (answer,) = (each for each in world.do(event) if isinstance(each, Answer))
    return answer.result


def moved(answer: object) -> RolesMoved:
    assert isinstance(answer, RolesMoved), answer
    return answer


def held(world: World, role: str) -> str:
    status = role_statuses(world.state)[Role(role)]
    return f"{status.used} used, {status.offered} offered"


def test_weight_is_saved_reported_and_used_in_the_next_pass() -> None:
    world = World()
    agent = world.agent("cpus:6;mem:6GB")
    web = world.framework("web", "cpus:1;mem:1GB")
    world.accept(web, *(make_task(f"w{n}") for n in range(6)))
    ads = world.framework("ads", "cpus:1;mem:1GB")
    effects = world._step(UpdateRoles(7, (change("ads", weight=2000),), operator="me"))
    assert [e for e in effects if isinstance(e, Save)] == [
        Save(RoleRecord(ADS, RoleSettings(2000)))
    ]
    assert [e.fact for e in effects if isinstance(e, Happened)] == [
        RoleChanged(ADS, "weight 1", "weight 2", "me", False)
    ]
    answer = effects[-1]
    assert isinstance(answer, Answer)
    assert answer.request == 7
    result = moved(answer.result)
    ((was, now),) = result.named
    assert (was.role, was.settings.weight, now.settings.weight) == (ADS, 1000, 2000)
    assert (was.entitlement, now.entitlement) == (Fraction(1, 2), Fraction(2, 3))
    ((was, now),) = result.others
    assert (was.role, was.entitlement, now.entitlement) == (WEB, Fraction(1, 2), Fraction(1, 3))
    for number in range(5):
        world.finish(agent, world.framework_id(web), f"w{number}")
        while offers := world.offers(ads):
            world.accept(ads, make_task(f"a{number}"), offers=[offers[0].offer_id])
        while world.offers(web):
            world.accept(web, make_task(f"x{number}"))
    assert held(world, "ads").startswith("cpus:4")


def test_refused_change_has_no_effect() -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB")
    web = world.framework("web", "cpus:1;mem:1GB")
    world.accept(web, make_task("t1"), make_task("t2"))
    good = change("ads", weight=5000)
    for bad, kind in [
        (change("web", limit="cpus:1"), Conflict),
        (change("web", guarantee="cpus:5"), Conflict),
        (change("web", limit="gpus:1"), Conflict),
        (change("web", weight=0), InvalidRequest),
        (change("../web"), InvalidRequest),
        (change("x" * 1_000_000), InvalidRequest),
    ]:
        before = role_statuses(world.state)
        answer = update(world, good, bad)
        assert isinstance(answer, CroupierError)
        assert type(answer) is kind
        assert len(str(answer)) < 500
        assert role_statuses(world.state) == before
    assert not any(isinstance(record, RoleRecord) for record in world.saved)
    assert not world.state.allocator.queries.roles()
    assert world.state.agents[world.agent_id(agent)].in_pool


def test_dry_run_answers_the_effect_and_changes_nothing() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    for role in ("web", "ads"):
        world.framework(role, "cpus:1;mem:1GB")
    passes = world.state.allocator.passes
    before = role_statuses(world.state)
    result = moved(update(world, change("ads", "cpus:1", "cpus:3", 3000), dry_run=True))
    assert before == role_statuses(world.state)
    after = RoleSettings(3000, {}, {"cpus": 1000}, {"cpus": 3000})
    due = before[ADS].entitlement * 3 / 2
    assert result.named == ((before[ADS], replace(before[ADS], settings=after, entitlement=due)),)
    due = before[WEB].entitlement / 2
    assert result.others == ((before[WEB], replace(before[WEB], entitlement=due)),)
    assert world.state.allocator.passes == passes
    assert not any(isinstance(record, RoleRecord) for record in world.saved)
    assert isinstance(update(world, change("ads", "cpus:9"), dry_run=True), Conflict)


def test_lowered_limit_rescinds_offers_above_it() -> None:
    world = World()
    world.agent("cpus:8;mem:8GB")
    web = world.framework("web", "cpus:1;mem:1GB")
    world.accept(web, make_task("t1"), make_task("t2"))
    world.framework("web/x")
    assert held(world, "web") == "cpus:2;mem:2GB used, cpus:6;mem:6GB offered"
    result = moved(update(world, change("web", limit="cpus:3")))
    assert str(result.named[0][1].offered) == ""
    ended = [fact for fact in world.facts if isinstance(fact, OfferEnded)]
    assert (ended[-1].outcome, ended[-1].message) == (
        "rescinded",
        "the limit of role web was lowered",
    )
    assert held(world, "web").startswith("cpus:2;mem:2GB used, cpus:1")


def test_limit_below_usage_needs_force() -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB")
    web = world.framework("web", "cpus:1;mem:1GB")
    world.accept(web, *(make_task(f"t{n}") for n in range(3)))
    assert isinstance(update(world, change("web", limit="cpus:1")), Conflict)
    moved(update(world, change("web", limit="cpus:1"), force=True))
    assert held(world, "web") == "cpus:3;mem:3GB used,  offered"
    fact = next(fact for fact in world.facts if isinstance(fact, RoleChanged))
    assert fact.forced
    world.pass_time(6)  # The filter of the first offer's remainder ends.
    for number in range(3):
        world.finish(agent, world.framework_id(web), f"t{number}")
        assert len(world.offers(web)) == (number == 2)


def test_settings_survive_restart_and_override_flags() -> None:
    flags = {ADS: RoleSettings(2000), WEB: RoleSettings(3000)}
    world = World(state=State("m", Settings(), Allocator(roles=flags)))
    update(world, change("ads"), change("web/x", limit="cpus:1"))
    registry = Registry()
    for record in world.saved:
        registry.apply(record)
    again = recover_state(registry, "m2", Settings(), Allocator(roles=flags), 0.0)
    assert again.allocator.queries.roles() == {
        WEB: RoleSettings(3000),
        "web/x": RoleSettings(limit={"cpus": 1000}),
    }
    world = World(state=again)
    ((_, after),) = moved(update(world, RoleChange(ADS, None))).named
    assert after.settings.weight == 2000
    assert world.saved == [ForgetRole(ADS)]


def test_equal_settings_are_not_saved() -> None:
    world = World()
    update(world, change("ads", limit="cpus:1"))
    saved = len(world.saved)
    result = moved(update(world, change("ads", limit="cpus:1", parts=(RolePart.LIMIT,))))
    assert result.named[0][0] == result.named[0][1]
    assert len(world.saved) == saved


def test_role_status_includes_roles_below() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    prod = world.framework("ads/prod/eu", "cpus:1;mem:1GB", count=2)
    world.accept(prod, make_task("t1"))
    world.framework(roles=("ads/prod", "ads/test"), demand="cpus:1;mem:1GB", count=1)
    update(world, change("web/x", weight=2))
    statuses = role_statuses(world.state)
    assert list(statuses) == ["ads", "ads/prod", "ads/prod/eu", "ads/test", "web", "web/x"]
    assert [each.frameworks for each in statuses.values()] == [2, 2, 1, 1, 0, 0]
    assert [each.tasks for each in statuses.values()] == [1, 1, 1, 0, 0, 0]
    assert str(statuses[ADS].used) == "cpus:1;mem:1GB"


@pytest.mark.parametrize("force", [True, False])
def test_settings_never_contradict_each_other_even_with_force(force: bool) -> None:
    world = World()
    update(world, change("ads", limit="cpus:3"))
    answer = update(world, change("ads/x", "cpus:2"), change("ads/y", "cpus:2"), force=force)
    assert isinstance(answer, InvalidRequest)
    assert list(world.state.allocator.queries.roles()) == [ADS]


def test_deep_guarantee_changes_all_roles_above() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for role in ("a/x/y", "a/x/z", "b"):
        session = world.framework(role, "cpus:1;mem:1GB")
        while offers := world.offers(session)[:1]:
            world.accept(
                session, make_task(f"{role[-1]}{len(world.saved)}"), offers=[offers[0].offer_id]
            )
    update(world, change("b", weight=4000))
    world.agent("cpus:1;mem:1GB", allocate=False)
    world._step(UpdateRoles(1, (change("a/x/y", "cpus:9"),)))
    tree = world.state.allocator._tree
    assert [tree.roles[Role(role)].level[0] for role in ("a", "a/x", "a/x/y", "b")] == [0, 0, 0, 1]


def test_answered_roles_are_bounded() -> None:
    world = World()
    world.agent("cpus:10;mem:10GB")
    for number in range(503):
        world.framework(f"r{number:03}", allocate=False)
    result = moved(update(world, change("r007", weight=2000), dry_run=True))
    assert [each[0].role for each in result.named] == ["r007"]
    assert len(result.others) == 500
    assert result.others[7][0].role == "r008"
    assert result.omitted == 2
