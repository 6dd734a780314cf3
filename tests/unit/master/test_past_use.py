"""The past use of roles changes their weights: in the core, across failovers, and for operators."""

from __future__ import annotations

from croupier.master.core import calls
from croupier.master.core.effects import Answer, SessionId
from croupier.master.core.events import AccountingDue, Read
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.step import step
from croupier.master.services.explanations import view_reasons
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task

# 2026-11-27 12:00 UTC.
NOON = 1_795_780_800_000
DAY_MS = 24 * 3_600_000
ADS, WEB = Role("ads"), Role("web")
CPUS = 8


def set_half_life(world: World, role: Role, half_life_ms: int = DAY_MS) -> RolesMoved:
    change = RoleChange(role, RoleSettings(half_life_ms=half_life_ms), (RolePart.HALF_LIFE,))
    return update(world, change)


def update(world: World, change: RoleChange, *, dry_run: bool = False) -> RolesMoved:
    effects = world.do(UpdateRoles(1, (change,), dry_run))
    answers = [each for each in effects if isinstance(each, Answer)]
    assert isinstance(answers[0].result, RolesMoved), answers[0].result
    return answers[0].result


def submit(world: World, session: SessionId, role: Role, *names: str) -> None:
    tasks = tuple(make_task(name, "cpus:1;mem:1GB") for name in names)
    world.call(session, calls.Submit(tasks, role))


def pass_hours(world: World, hours: int) -> None:
    for _ in range(hours):
        world.now += 3600.0
        world.do(AccountingDue(NOON + round(world.now * 1000)))


def factor(world: World, role: Role) -> int:
    past = world.state.allocator.queries.past_use(role)
    return 1000 if past is None else past.factor


def explained(world: World, framework_id: str) -> list[pb.PassedOver]:
    query = Read(
        1, lambda state: view_reasons(state, FrameworkId(framework_id), AgentId(""), world.now)
    )
    answers = [each for each in step(world.state, query, world.now) if isinstance(each, Answer)]
    assert isinstance(answers[0].result, pb.ExplainResponse)
    return list(answers[0].result.reasons)


def after_four_days() -> tuple[World, SessionId, SessionId, SessionId]:
    """Return a cluster that ads has used alone for four days, an hour after web came."""
    world = World()
    agent = world.agent(f"cpus:{CPUS};mem:8GB", agent_id="a1")
    ads = world.framework("ads", suppressed=True)
    for role in (ADS, WEB):
        set_half_life(world, role)
    submit(world, ads, ADS, *(f"old{number}" for number in range(CPUS)))
    pass_hours(world, 4 * 24)
    web = world.framework("web", suppressed=True, client_id="c2")
    submit(world, web, WEB, *(f"w{number}" for number in range(CPUS)))
    pass_hours(world, 1)
    return world, agent, ads, web


def test_who_used_everything_waits_for_who_used_nothing() -> None:
    world, agent, ads, web = after_four_days()
    submit(world, ads, ADS, *(f"a{number}" for number in range(CPUS)))
    # One sixteenth of the past is before the ledger, and counts as divided by weight.
    assert 510 <= factor(world, ADS) <= 530
    assert factor(world, WEB) == 4000

    ads_id, web_id = world.framework_id(ads), world.framework_id(web)
    (reason,) = [each for each in explained(world, ads_id) if each.cause == "past use"]
    assert reason.role == ADS
    assert reason.detail.startswith("ads used 9")
    assert "of the past (half-life 1 d, including its share of unused resources)" in reason.detail
    assert reason.detail.endswith(" times now")

    for number in range(CPUS):
        world.finish(agent, ads_id, f"old{number}")
    tasks = world.state.agents[AgentId("a1")].tasks.values()
    running = [task.framework_id for task in tasks if not task.state.is_terminal]
    # Weights of about 0.52 and 4: 8 / (0.52 + 4) * 4 is 7.
    assert (running.count(FrameworkId(ads_id)), running.count(FrameworkId(web_id))) == (1, 7)


def test_without_a_half_life_nothing_changes() -> None:
    world, _, _, _ = after_four_days()
    assert factor(world, ADS) < 1000
    for role in (ADS, WEB):
        moved = set_half_life(world, role, 0)
        assert moved.named[0][1].past is None
    assert factor(world, ADS) == factor(world, WEB) == 1000
    assert world.state.allocator.queries.role_entitlement(ADS) * 2 == 1


def test_a_half_life_counts_at_once_with_what_was_used_before() -> None:
    world, _, _, _ = after_four_days()
    before = factor(world, ADS)
    set_half_life(world, ADS, 0)
    moved = set_half_life(world, ADS)
    assert moved.named[0][1].past is not None
    assert factor(world, ADS) == before


def test_a_failover_forgets_nothing() -> None:
    world, agent, ads, _ = after_four_days()
    world.finish(agent, world.framework_id(ads), "old0")
    pass_hours(world, 1)
    before = {role: factor(world, role) for role in (ADS, WEB)}
    assert before[ADS] < 530
    world.restart()
    assert {role: factor(world, role) for role in (ADS, WEB)} == before


def test_a_role_below_another_is_compared_with_the_frameworks_in_it() -> None:
    world = World()
    world.agent(f"cpus:{CPUS};mem:8GB")
    set_half_life(world, Role("ads/prod"))
    own, below = world.framework("ads", suppressed=True), Role("ads/prod")
    prod = world.framework("ads/prod", suppressed=True, client_id="c2")
    submit(world, own, ADS, "t1", "t2", "t3", "t4", "t5", "t6")
    submit(world, prod, below, "t1", "t2")
    pass_hours(world, 5 * 24)
    past = world.state.allocator.queries.past_use(below)
    assert past is not None
    assert past.share_ppm == 500_000
    # A quarter was used by it, of all but a thirty-second of the past: s / p = 0.5 / 0.258.
    assert 1900 <= past.factor <= 1990


def test_a_dry_run_tells_what_a_half_life_then_does() -> None:
    world, _, ads, _ = after_four_days()
    submit(world, ads, ADS, *(f"a{number}" for number in range(CPUS)))
    changes = [
        (ADS, RoleSettings(half_life_ms=0), RolePart.HALF_LIFE),
        (ADS, RoleSettings(half_life_ms=3 * DAY_MS), RolePart.HALF_LIFE),
        # The weight of one changes what the past makes of the other.
        (WEB, RoleSettings(weight=5000), RolePart.WEIGHT),
        (WEB, RoleSettings(half_life_ms=0), RolePart.HALF_LIFE),
    ]
    for role, settings, part in changes:
        change = RoleChange(role, settings, (part,))
        predicted = update(world, change, dry_run=True)
        before = [world.state.allocator.queries.role_entitlement(each) for each in (ADS, WEB)]
        true = update(world, change)
        after = [world.state.allocator.queries.role_entitlement(each) for each in (ADS, WEB)]
        assert before != after, "it changes something"
        assert predicted == true
