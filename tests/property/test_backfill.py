"""Backfill never makes a larger unit wait longer than the declared times of before promised."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from croupier.master.allocator import Rules
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.reservations import MARGIN_S
from croupier.model.demand import ANYWHERE
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from tests.harness.allocator_fixture import AllocatorFixture, role_of
from tests.harness.effort import portion

CPUS = {"m1": 6, "m2": 8}
TIMES_S = (0, 5, 20, 60, 200)
WORLDS = 150
STEPS = 80


@dataclass(frozen=True)
class Running:
    """A task; `until` is its declared end, with the time for its launch and end."""

    framework: str
    agent: str
    cpus: int
    until: float


class Cluster:
    """A framework with one large task, which comes first, and small tasks of two others."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"backfill {seed}")
        rules = Rules(hold_s=1e6, scarce=frozenset())
        self.fixture = AllocatorFixture(rules=rules, roles={"large": role_of(1000)})
        self.fixture.allocator.know_ends(self.ends_of)
        self.running: list[Running] = []
        self.promised: dict[str, float] = {}
        self.backfilled = 0
        self.large = self.random.choice((4, 5, 6))
        for name in ("large", "a", "b"):
            self.fixture.framework(name)
            self.fixture.allocator.suppress(FrameworkId(name))
        for name, cpus in CPUS.items():
            self.fixture.agent(name, f"cpus:{cpus}")
        # Without anything, the others would come before the large task, or beside it.
        self.fixture.agent("full", "cpus:2")
        for name in "ab":
            charge = FrameworkId(name), Role(name), Resources({"cpus": 1000})
            self.fixture.allocator.charges.charge(AgentId("full"), [charge])

    def ends_of(self, agent_id: AgentId) -> list[tuple[float, Resources]]:
        return [
            (each.until, Resources({"cpus": 1000 * each.cpus}))
            for each in self.running
            if each.agent == agent_id and each.until < inf
        ]

    def submit(self, name: str, cpus: int, time_s: int, number: int = 1) -> None:
        shape = Shape(Resources({"cpus": 1000 * cpus}), ANYWHERE, 1000 * time_s)
        self.fixture.allocator.queue(FrameworkId(name), Role(name), shape, number)

    def step(self) -> None:
        what = self.random.choice(("submit", "submit", "end", "wait"))
        if what == "submit":
            number = self.random.randint(1, 3)
            self.submit(self.random.choice("ab"), 1, self.random.choice(TIMES_S), number)
        elif what == "end" and self.running:
            self.finish(self.random.choice(self.running))
        elif what == "wait":
            self.fixture.wait(self.random.choice((1.0, 10.0, 40.0)))
            for each in [each for each in self.running if each.until <= self.fixture.now]:
                self.finish(each)
        self.deal()

    def finish(self, task: Running) -> None:
        self.running.remove(task)
        place = FrameworkId(task.framework), Role(task.framework), AgentId(task.agent)
        amount = Resources({"cpus": 1000 * task.cpus})
        self.fixture.allocator.charges.release(*place, amount)

    def deal(self) -> None:
        while self.fixture.allocator.has_dirty_agents:
            for grant in self.fixture.deal():
                assert grant.shape is not None
                name, agent, shape = str(grant.framework_id), str(grant.agent_id), grant.shape
                time_s = shape.max_completion_ms / 1000
                until = self.fixture.now + time_s + MARGIN_S if time_s else inf
                for _ in range(sum(number for _, number in grant.units)):
                    self.fixture.allocator.charges.launch(*grant.place, shape.unit)
                    self.running.append(Running(name, agent, shape.unit["cpus"] // 1000, until))
                    self.backfilled += agent in self.promised and name != "large"
                self.fixture.allocator.launched(grant)
        self.check()

    def check(self) -> None:
        """While the large task waits, no agent that is reserved for it is promised for later."""
        if any(each.framework == "large" for each in self.running):
            self.promised.clear()
            return
        leaf = self.fixture.tree.leaves[FrameworkId("large"), Role("large")]
        for agent in CPUS if leaf.queued else ():
            if leaf.reservations.has(AgentId(agent), self.fixture.now):
                before, promised = self.promised.get(agent, inf), self.certain_at(agent)
                assert promised <= before or before == inf, (agent, before, promised)
                assert before > self.fixture.now, (agent, before)
                self.promised[agent] = promised

    def certain_at(self, agent: str) -> float:
        """Return when the large task fits on an agent, by the declared times of what runs there."""
        here = [each for each in self.running if each.agent == agent]
        times = sorted(each.until for each in here)
        return next(
            (
                at
                for at in times
                if CPUS[agent] - sum(e.cpus for e in here if e.until > at) >= self.large
            ),
            inf,
        )


@pytest.mark.parametrize("part", range(3))
def test_the_large_task_is_never_promised_for_later(part: int) -> None:
    backfilled = 0
    for seed in range(portion(WORLDS)):
        cluster = Cluster(3 * seed + part)
        for step in range(STEPS):
            cluster.step()
            if step == STEPS // 4:
                cluster.submit("large", cluster.large, 0)
                cluster.deal()
        backfilled += cluster.backfilled
    assert backfilled > portion(WORLDS) // 10
