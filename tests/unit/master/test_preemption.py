"""When preemption waits, and what an operator is told of it."""

from __future__ import annotations

from croupier.master.allocator import Allocator
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core.effects import SessionId
from croupier.master.core.facts import PreemptionBegun, PreemptionEnded
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.records import AgentRecord, MasterRecord, Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.ids import AgentId
from croupier.model.task import TaskState
from tests.harness.world import World, make_task

HURRY = Settings(preemption=PreemptionRules(True, fair_timeout_s=5.0, grace_s=10.0))


def fill(world: World, cpus: int = 4) -> SessionId:
    """A framework has everything of one agent, and another wants of it; the agent's session."""
    host = world.agent(f"cpus:{cpus};mem:4GB")
    early = world.framework("early", "cpus:1;mem:1MB")
    world.accept(early, *(make_task(f"t{n}", "cpus:1;mem:1MB") for n in range(cpus)))
    world.framework("late", "cpus:1;mem:1MB")
    return host


def asked(world: World) -> list[PreemptRequested]:
    return [m for sent in world.sent.values() for m in sent if isinstance(m, PreemptRequested)]


def pass_time(world: World, seconds: float) -> None:
    """Nobody falls silent meanwhile."""
    for peer in world.state.peers.values():
        peer.last_heard = world.now + seconds
    world.pass_time(seconds)


def test_it_waits_for_the_agents_that_an_earlier_master_knew() -> None:
    known = {AgentId(f"a{n}"): AgentRecord(AgentId(f"a{n}"), f"h{n}") for n in range(4)}
    registry = Registry(MasterRecord("m", 1), known)
    state = State.recovered(registry, "m-2", HURRY, Allocator(), 0.0)
    world = World(state=state)
    fill(world)
    pass_time(world, 60.0)
    assert not asked(world)
    for number in range(3):
        world.agent("cpus:1;mem:1MB", agent_id=f"a{number}")
    pass_time(world, 30.0)
    assert not asked(world), "the late one was dealt the agents that came"


def test_it_goes_on_once_the_missing_are_given_up() -> None:
    registry = Registry(MasterRecord("m", 1), {AgentId("gone"): AgentRecord(AgentId("gone"), "h")})
    world = World(state=State.recovered(registry, "m-2", HURRY, Allocator(), 0.0))
    fill(world)
    pass_time(world, 590.0)
    assert not asked(world)
    pass_time(world, 40.0)
    assert asked(world)


def test_each_step_is_told() -> None:
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
