"""Preemption waits for absent agents, is bounded, and is explained to operators."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator
from croupier.master.allocator.entitlements import Ratio
from croupier.master.allocator.preemptor import EFFORT
from croupier.master.allocator.starvation import PreemptionRules, ShareProjection
from croupier.master.core import calls
from croupier.master.core.agent_commands import Deactivate, OperateAgent
from croupier.master.core.effects import SessionId
from croupier.master.core.facts import PreemptionBegun, PreemptionEnded
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.records import AgentRecord, MasterRecord, Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import TaskState
from tests.harness.explained import explained
from tests.harness.secured_world import SecuredWorld
from tests.harness.world import World, make_task

HURRY = Settings(preemption=PreemptionRules(True, fair_timeout_s=5.0, grace_s=10.0))


def fill(world: World, cpus: int = 4) -> SessionId:
    """Let one framework use a whole agent while another waits; return the agent's session."""
    host = world.agent(f"cpus:{cpus};mem:4GB")
    early = world.framework("early", "cpus:1;mem:1MB")
    world.accept(early, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(cpus)))
    world.framework("late", "cpus:1;mem:1MB")
    return host


def asked(world: World) -> list[PreemptRequested]:
    return [m for sent in world.sent.values() for m in sent if isinstance(m, PreemptRequested)]


def pass_time(world: World, seconds: float) -> None:
    """Let time pass while all peers send heartbeats."""
    for peer in world.state.peers.values():
        peer.last_received = world.now + seconds
    world.pass_time(seconds)


def test_preemption_waits_for_absent_agents() -> None:
    known = {AgentId(f"a{n}"): AgentRecord(AgentId(f"a{n}"), f"h{n}") for n in range(4)}
    registry = Registry(MasterRecord("m", 1), known)
    state = recover_state(registry, "m-2", HURRY, Allocator(), 0.0)
    world = World(state=state)
    fill(world)
    pass_time(world, 60.0)
    assert not asked(world)
    for number in range(3):
        world.agent("cpus:1;mem:1MB", agent_id=f"a{number}")
    pass_time(world, 30.0)
    assert not asked(world), "the late one was dealt the agents that came"


def test_preemption_continues_once_absent_agents_are_unreachable() -> None:
    registry = Registry(MasterRecord("m", 1), {AgentId("gone"): AgentRecord(AgentId("gone"), "h")})
    world = World(state=recover_state(registry, "m-2", HURRY, Allocator(), 0.0))
    fill(world)
    pass_time(world, 590.0)
    assert not asked(world)
    pass_time(world, 40.0)
    assert asked(world)


def test_a_decline_does_not_keep_submitted_tasks_from_preempting() -> None:
    world = World(settings=HURRY)
    host = world.agent("cpus:4;mem:4GB")
    late = world.framework("late", "cpus:1;mem:1MB")
    world.decline(late, 3600.0)
    early = world.framework("early", "cpus:1;mem:1MB")
    world.accept(early, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(4)))
    world.call(late, calls.Submit((make_task("s1", "cpus:1;mem:1MB"),)))
    pass_time(world, 7.0)
    assert [request.task_ids for request in asked(world)] == [("t3",)], "for one task, not more"
    world.report(host, world.framework_id(early), "t3", TaskState.RUNNING, 1)
    world.report(host, world.framework_id(early), "t3", TaskState.FINISHED, 2)
    assert [task.task_id for task in world.launches(host)][4:] == ["s1"]


def test_each_step_is_reported_as_a_fact() -> None:
    world = World(settings=HURRY)
    host = fill(world)
    pass_time(world, 7.0)
    begun = [fact for fact in world.facts if isinstance(fact, PreemptionBegun)]
    assert [fact.tasks for fact in begun] == [("t3",), ("t2",)]
    early = next(iter(world.state.frameworks))
    world.report(host, early, "t3", TaskState.RUNNING, 1)
    world.report(host, early, "t3", TaskState.FINISHED, 2)
    pass_time(world, 10.0)
    ended = [fact for fact in world.facts if isinstance(fact, PreemptionEnded)]
    assert [(fact.task_id, fact.outcome) for fact in ended] == [("t3", "yielded"), ("t2", "killed")]


def test_victim_that_ends_within_its_grace_has_yielded() -> None:
    world = World(settings=HURRY)
    host = fill(world)
    pass_time(world, 7.0)
    early = next(iter(world.state.frameworks))
    session = world.state.frameworks[early].session
    assert session is not None
    world.report(host, early, "t3", TaskState.RUNNING, 1)
    world.call(session, calls.Kill(TaskId("t3"), None))
    world.report(host, early, "t3", TaskState.KILLED, 2)
    ended = [fact for fact in world.facts if isinstance(fact, PreemptionEnded)]
    assert [(fact.task_id, fact.outcome) for fact in ended] == [("t3", "yielded")]


def test_check_is_bounded_when_many_starve_without_victims() -> None:
    """A hundred frameworks demand more than victims can yield: comparisons are bounded."""
    world = World(settings=HURRY)
    for _ in range(10):
        world.agent("cpus:40;mem:4GB")
    for number in range(40):
        session = world.framework(f"early{number}", "cpus:1;mem:1MB", 10)
        world.accept(session, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(10)))
    for number in range(100):
        world.framework(f"late{number}", "cpus:40;mem:1MB")
    made = 0
    original = ShareProjection.satisfaction

    def counted(self: ShareProjection, *words: object, **named: object) -> Ratio:
        nonlocal made
        made += 1
        return original(self, *words, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShareProjection, "satisfaction", counted)
        for _ in range(20):
            made = 0
            pass_time(world, 1.0)
            assert made < 10 * EFFORT


@pytest.mark.parametrize("views_all", [False, True])
def test_a_victim_learns_the_beneficiary_only_if_it_may_view_it(views_all: bool) -> None:
    world = SecuredWorld(settings=HURRY)
    world.allow("bob client/bob register,run-as *", "anna client/anna register,run-as *")
    world.member("viewer", *(["anna"] if views_all else []))
    world.secured_agent("a1")
    early = world.owned("anna", "ads", demand="cpus:1;mem:1MB")
    world.accept(early, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(4)))
    late = world.framework_id(world.owned("bob", "web", demand="cpus:1;mem:1MB"))
    pass_time(world, 7.0)
    reasons = {each.reason for each in asked(world)}
    assert reasons
    assert all((late in reason) == views_all for reason in reasons)


def preemption_reasons(world: World, name: str) -> list[str]:
    """Return the lines of `why` about preemption for the framework of this name."""
    (framework_id,) = [f for f, known in world.state.frameworks.items() if known.name == name]
    answer = explained(world.state, framework_id, AgentId(""), world.now)
    assert answer.policy == "drf"
    return [each.detail for each in answer.reasons if each.cause == "preemption"]


def test_why_explains_preemption() -> None:
    world = World(settings=HURRY)
    world.agent("cpus:4;mem:4GB")
    session = world.framework("early", "cpus:1;mem:1MB", name="early")
    world.accept(session, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(4)))
    world.framework("late", "cpus:1;mem:1MB", name="late")
    pass_time(world, 2.0)
    (line,) = preemption_reasons(world, "late")
    assert line.startswith("it has been below 0.8 of its entitlement for ")
    assert "other frameworks are asked to end tasks for it in " in line
    assert preemption_reasons(world, "early") == [
        "it has at least 0.8 of its entitlement: no room is made for it"
    ]
    pass_time(world, 10.0)
    assert preemption_reasons(world, "late") == [], "another reason says that room is being made"


def test_why_reports_missing_victims() -> None:
    world = World(settings=HURRY)
    world.agent("cpus:1;mem:4GB")
    session = world.framework("early", "cpus:1;mem:1MB", name="early")
    world.accept(session, make_task("t0", "cpus:1;mem:1MB"))
    world.framework("late", "cpus:1;mem:1MB", name="late")
    pass_time(world, 10.0)
    (line,) = preemption_reasons(world, "late")
    assert "nothing can be taken back for it now" in line


def test_why_promises_no_victims_while_no_agent_takes_tasks() -> None:
    world = World(settings=HURRY)
    fill(world)
    (late,) = [f for f, known in world.state.frameworks.items() if not known.tasks]
    (agent_id,) = world.state.agents
    world.do(OperateAgent(1, agent_id, Deactivate(), "me"))
    causes = [each.cause for each in explained(world.state, late, AgentId(""), world.now).reasons]
    assert causes == ["no agents", "agent is deactivated"]


def test_why_omits_preemption_when_it_is_off() -> None:
    world = World()
    world.agent("cpus:1;mem:4GB")
    session = world.framework("early", "cpus:1;mem:1MB", name="early")
    world.accept(session, make_task("t0", "cpus:1;mem:1MB"))
    world.framework("late", "cpus:1;mem:1MB", name="late")
    assert preemption_reasons(world, "late") == []


def test_why_says_that_a_guarantee_waits_because_preemption_is_off() -> None:
    world = World()
    world.agent("cpus:1;mem:4GB")
    session = world.framework("early", "cpus:1;mem:1MB", name="early")
    world.accept(session, make_task("t0", "cpus:1;mem:1MB"))
    world.state.allocator.set_role(Role("late"), RoleSettings(guarantee={"cpus": 1000}))
    world.framework("late", "cpus:1;mem:1MB", name="late")
    (line,) = preemption_reasons(world, "late")
    assert line == "off (--preemption): its guarantee is met as tasks of others end"


def test_guarantee_is_met_when_its_units_take_more_of_another_resource() -> None:
    """Four units of 1 cpu and 2 GB take all of the memory and half of the cpus."""
    rules = PreemptionRules(True, guarantee_timeout_s=3.0, grace_s=10.0)
    world = World(settings=Settings(preemption=rules))
    world.state.allocator.set_role(Role("b"), RoleSettings(guarantee={"cpus": 4000}))
    host = world.agent("cpus:8;mem:8GB")
    large = "cpus:1;mem:2GB"
    late = world.framework("b", large, 3)
    world.accept(late, *(make_task(f"b{n}", large) for n in range(3)))
    early = world.framework("a", "cpus:1;mem:512MB")
    world.accept(early, *(make_task(f"a{n}", "cpus:1;mem:512MB") for n in range(4)))
    world.call(late, calls.UpdateDemand((Demand(Resources.parse(large)),)))
    pass_time(world, 6.0)
    (request,) = asked(world)
    assert sorted(request.task_ids) == ["a0", "a1", "a2", "a3"]
    owner = world.framework_id(early)
    for task_id in request.task_ids:
        world.finish(host, owner, task_id)
    assert [str(offer.resources) for offer in world.offers(late)] == [large]
    # It holds its guarantee, so the other framework starves and may not preempt it.
    pass_time(world, 120.0)
    assert len(asked(world)) == 1
