"""Gangs on a busy cluster: all that are entitled to their room are placed, so none waits for ever.

Small tasks of all frameworks fill every gap at once. They end, so what is reserved comes free.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from croupier.master.allocator import Grant
from croupier.master.allocator.gatherer import GATHER_S, WAIT_S
from croupier.master.allocator.pending_demand import Shape, gang_shape
from croupier.model.demand import ANYWHERE
from croupier.model.gang import GangPlacement
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources, total_of
from tests.harness.allocator_fixture import AllocatorFixture
from tests.harness.allocator_invariants import check_allocator
from tests.harness.effort import portion

FRAMEWORKS = {"f1": "a", "f2": "b/x", "f3": "b/y"}
SMALL = Shape(Resources.parse("cpus:1;mem:1GB"), ANYWHERE)
AGENTS, CPUS = 8, 4
LONGEST_S = 60.0
STEP_S = 5.0
GANGS = 2
# For a gang and those of its top role that go first: to wait, to gather, to run.
MOST_S = 2 * GANGS * (WAIT_S + LONGEST_S + LONGEST_S + 4 * STEP_S)
WORLDS = 60


@dataclass(frozen=True)
class Running:
    framework: str
    agent: AgentId
    amount: Resources
    ends_at: float


class Cluster:
    """Frameworks with endless small tasks, and a few gangs each."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"gangs {seed}")
        self.fixture = AllocatorFixture()
        self.allocator = self.fixture.allocator
        self.now = 0.0
        self.running: list[Running] = []
        self.waiting = 0
        for number in range(AGENTS):
            self.fixture.agent(f"m{number}", f"cpus:{CPUS};mem:64GB")
        for name, role in FRAMEWORKS.items():
            self.fixture.framework(name, roles=(role,))
            self.allocator.suppress(FrameworkId(name))
            self.allocator.queue(FrameworkId(name), Role(role), SMALL, 10_000)
        self.deal()
        for name, role in FRAMEWORKS.items():
            for _ in range(self.random.randint(1, GANGS)):
                self.allocator.queue(FrameworkId(name), Role(role), self.gang(), 1)
                self.waiting += 1

    def gang(self) -> Shape:
        """Return a gang to which a quarter of the cluster entitles its framework."""
        placement = self.random.choice(
            [GangPlacement(), GangPlacement(spread="host"), GangPlacement(pack=True)]
        )
        units = [
            Resources.parse(f"cpus:{self.random.choice((1, 1, 2))};mem:1GB")
            for _ in range(self.random.randint(2, 4))
        ]
        return Shape(total_of(units), ANYWHERE, gang=gang_shape(units, placement))

    def step(self) -> None:
        self.now += STEP_S
        for each in [task for task in self.running if task.ends_at <= self.now]:
            self.running.remove(each)
            role = Role(FRAMEWORKS[each.framework])
            charges = self.allocator.charges
            charges.release(FrameworkId(each.framework), role, each.agent, each.amount)
        self.allocator.wake(self.now)
        self.allocator.gather(self.now)
        self.deal()
        check_allocator(self.allocator)
        self.check_gatherings()

    def deal(self) -> None:
        while self.allocator.has_dirty_agents:
            for grant in self.allocator.run(self.now):
                self.launch(grant)

    def launch(self, grant: Grant) -> None:
        charges, place = self.allocator.charges, (grant.framework_id, grant.role)
        ends_at = self.now + self.random.uniform(STEP_S, LONGEST_S)
        if grant.places:
            for agent_id, amount in grant.places:
                charges.launch(*place, agent_id, amount, tasks=0)
                self.running.append(Running(grant.framework_id, agent_id, amount, ends_at))
            self.waiting -= 1
        else:
            for _ in range(sum(number for _, number in grant.units)):
                ends_at = self.now + self.random.uniform(STEP_S, LONGEST_S)
                charges.launch(*place, grant.agent_id, SMALL.unit)
                task = Running(grant.framework_id, grant.agent_id, SMALL.unit, ends_at)
                self.running.append(task)
        self.allocator.launched(grant)

    def check_gatherings(self) -> None:
        """Check that one gang gathers for each top role, and that agents have all that room."""
        gatherings = list(self.allocator._state.gatherings)
        tops = [each.leaf.path[-1].name for each in gatherings]
        assert len(set(tops)) == len(tops)
        for agent in self.allocator._state.agents.agents.values():
            cpus = sum(each.amount["cpus"] for each in agent.reservations if each.amount)
            assert cpus <= agent.total["cpus"]
        reserved = {agent for each in gatherings for agent in each.agents}
        assert reserved == set(self.allocator._state.agents.reserved)


@pytest.mark.parametrize("seed", range(portion(WORLDS)))
def test_every_gang_that_is_entitled_to_its_room_is_placed(seed: int) -> None:
    cluster = Cluster(seed)
    while cluster.waiting:
        cluster.step()
        assert cluster.now < MOST_S, f"{cluster.waiting} gangs wait"
    assert not list(cluster.allocator._state.gatherings)


def test_a_gang_that_cannot_get_its_room_gives_it_back() -> None:
    """A task that never ends has a part of what is reserved, so the gang gathers in vain."""
    fixture = AllocatorFixture()
    for number in range(2):
        fixture.agent(f"m{number}", "cpus:2;mem:8GB")
    for name in ("f", "g"):
        fixture.framework(name, roles=(name,))
        fixture.allocator.suppress(FrameworkId(name))
    allocator, g, role = fixture.allocator, FrameworkId("g"), Role("g")
    allocator.queue(g, role, SMALL, 3)
    for grant in allocator.run(0.0):
        for _ in range(sum(number for _, number in grant.units)):
            allocator.charges.launch(*grant.place, SMALL.unit)
        allocator.launched(grant)
    units = [Resources.parse("cpus:1;mem:1GB")] * 2
    gang = gang_shape(units, GangPlacement(same="host"))
    allocator.queue(FrameworkId("f"), Role("f"), Shape(total_of(units), ANYWHERE, gang=gang), 1)
    allocator.queue(g, role, SMALL, 1)
    dealt = allocator.run(0.0)
    assert [grant.framework_id for grant in dealt] == ["g"]
    for grant in dealt:
        allocator.charges.launch(*grant.place, SMALL.unit)
        allocator.launched(grant)
    allocator.gather(1.0)
    allocator.gather(1.0 + WAIT_S)
    (gathering,) = allocator._state.gatherings
    assert gathering.until == 1.0 + WAIT_S + GATHER_S
    later = gathering.until
    allocator.gather(later)
    allocator.gather(later + 1)
    assert not list(allocator._state.gatherings)
    allocator.gather(later + GATHER_S)
    assert len(list(allocator._state.gatherings)) == 1
    check_allocator(allocator)
