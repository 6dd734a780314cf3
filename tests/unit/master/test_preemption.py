"""Preemption waits for absent agents, is bounded, and is explained to operators."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator
from croupier.master.allocator.entitlements import Ratio
from croupier.master.allocator.preemptor import EFFORT
from croupier.master.allocator.starvation import PreemptionRules, ShareProjection
from croupier.master.core.effects import SessionId
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.records import AgentRecord, MasterRecord, Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.model.ids import AgentId
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
