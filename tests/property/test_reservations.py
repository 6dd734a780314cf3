"""Reservations against a plain oracle: who may be dealt of an agent, and who must be."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from croupier.master.allocator import Grant
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.reservations import MARGIN_S, Reservation
from croupier.model.demand import ANYWHERE
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from tests.harness.allocator_fixture import AllocatorFixture
from tests.harness.effort import portion

ROLES = {"f1": "a", "f2": "a/x", "f3": "b", "f4": "c"}
CPUS = {"m1": 4, "m2": 6, "m3": 8}
TIMES_S = (0, 1, 8, 32, 64)
WORLDS = 120
STEPS = 60


@dataclass
class Booking:
    """A reservation as the oracle knows it; `cpus` is None for the whole agent."""

    name: str
    agent: str
    framework: str
    role: str
    starts_at: float
    until: float
    cpus: int | None

    def is_for(self, framework: str) -> bool:
        role = ROLES[framework]
        if self.framework:
            return (self.framework, self.role) == (framework, role)
        return f"{role}/".startswith(f"{self.role}/")

    def keeps_away(self, framework: str, time_s: int, now: float) -> bool:
        ends_in_time = time_s > 0 and now + time_s + MARGIN_S <= self.starts_at
        return now < self.until and not self.is_for(framework) and not ends_in_time


class Cluster:
    """A few agents and frameworks with submitted tasks of 1 or 2 cpus."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"reservations {seed}")
        self.fixture = AllocatorFixture()
        self.bookings: list[Booking] = []
        self.queued: dict[tuple[str, int, int], int] = {}
        self.running: list[tuple[str, str, int, int, float]] = []
        self.made = 0
        for name, role in ROLES.items():
            self.fixture.framework(name, roles=(role,))
            self.fixture.allocator.suppress(FrameworkId(name))
        for name, cpus in CPUS.items():
            self.fixture.agent(name, f"cpus:{cpus}")

    def step(self) -> None:
        actions = (self.submit, self.submit, self.reserve, self.unreserve, self.end, self.wait)
        self.random.choice(actions)()
        self.deal()
        self.check_nothing_is_left()

    def submit(self) -> None:
        name, cpus = self.random.choice(list(ROLES)), self.random.choice((1, 2))
        time_s, number = self.random.choice(TIMES_S), self.random.randint(1, 3)
        key = name, cpus, time_s
        self.queued[key] = self.queued.get(key, 0) + number
        self.fixture.allocator.queue(
            FrameworkId(name), Role(ROLES[name]), self.shape(cpus, time_s), number
        )

    def reserve(self) -> None:
        self.made += 1
        now, agent = self.fixture.now, self.random.choice(list(CPUS))
        framework = self.random.choice(("", "", "f1", "f3"))
        role = ROLES[framework] if framework else self.random.choice(("a", "a/x", "b", "c"))
        starts_at = now + self.random.choice((0.0, 5.0, 20.0, 60.0))
        until = starts_at + self.random.choice((10.0, 40.0))
        cpus = self.random.choice((None, 1, 3))
        made = Booking(f"R{self.made}", agent, framework, role, starts_at, until, cpus)
        self.bookings.append(made)
        owner = FrameworkId(framework) if framework else NO_FRAMEWORK, Role(role)
        amount = None if cpus is None else Resources({"cpus": 1000 * cpus})
        reservation = Reservation(made.name, owner, starts_at, until, amount)
        self.fixture.allocator.reservations.add(AgentId(agent), reservation)

    def unreserve(self) -> None:
        if self.bookings:
            ended = self.bookings.pop(self.random.randrange(len(self.bookings)))
            self.fixture.allocator.reservations.remove(AgentId(ended.agent), ended.name)

    def end(self) -> None:
        if self.running:
            self.finish(self.random.randrange(len(self.running)))

    def wait(self) -> None:
        self.fixture.wait(self.random.choice((1.0, 10.0, 30.0)))
        now = self.fixture.now
        self.bookings = [each for each in self.bookings if each.until > now]
        for number, (_, _, _, time_s, since) in reversed(list(enumerate(self.running))):
            if time_s and since + time_s <= now:
                self.finish(number)

    def finish(self, number: int) -> None:
        name, agent, cpus, _, _ = self.running.pop(number)
        place = FrameworkId(name), Role(ROLES[name]), AgentId(agent)
        self.fixture.allocator.charges.release(*place, self.shape(cpus, 0).unit)

    def deal(self) -> None:
        allocator = self.fixture.allocator
        while allocator.has_dirty_agents:
            before = {name: self.free(name) for name in CPUS}
            for grant in self.fixture.deal():
                self.launch(grant, before)

    def launch(self, grant: Grant, free: dict[str, int]) -> None:
        """Launch a grant, if the oracle permits it; grants are in the order of their deals."""
        assert grant.shape is not None
        name, agent = str(grant.framework_id), str(grant.agent_id)
        cpus, time_s = grant.shape.unit["cpus"] // 1000, grant.shape.max_completion_ms // 1000
        for _ in range(sum(number for _, number in grant.units)):
            self.queued[name, cpus, time_s] -= 1
            self.running.append((name, agent, cpus, time_s, self.fixture.now))
            self.fixture.allocator.charges.launch(*grant.place, grant.shape.unit)
            free[agent] -= cpus
        self.fixture.allocator.launched(grant)
        kept = 0
        for each in self.of(agent):
            if each.keeps_away(name, time_s, self.fixture.now):
                assert each.cpus is not None, (each, grant)
                kept += each.cpus
        # A visit deals to several frameworks in turn, so the owner may have taken its part first.
        mine = sum(number for _, number in grant.units) * cpus
        assert kept <= free[agent] + self.owners_took(agent, name), (grant, kept, free, mine)
        self.use_up(agent, name, mine)

    def owners_took(self, agent: str, name: str) -> int:
        """Return the cpus that running tasks have of frameworks with reservations of the agent."""
        owners = [each for each in ROLES if any(b.is_for(each) for b in self.of(agent))]
        now = self.fixture.now
        return sum(
            cpus
            for framework, where, cpus, _, since in self.running
            if where == agent and framework in owners and framework != name and since == now
        )

    def use_up(self, agent: str, name: str, cpus: int) -> None:
        for each in self.of(agent):
            if each.cpus is not None and each.is_for(name):
                used = min(cpus, each.cpus)
                each.cpus -= used
                cpus -= used
        self.bookings = [each for each in self.bookings if each.cpus != 0]

    def check_nothing_is_left(self) -> None:
        """Nobody waits for a unit that an agent has free, unless a reservation keeps it away."""
        now = self.fixture.now
        for (name, cpus, time_s), number in self.queued.items():
            for agent in CPUS if number else ():
                room = self.free(agent)
                for each in self.of(agent):
                    if each.keeps_away(name, time_s, now):
                        room -= room if each.cpus is None else each.cpus
                assert room < cpus, (name, agent, cpus, time_s, self.bookings)

    def check_reserved(self) -> None:
        """The allocator has the same reservations."""
        for agent in CPUS:
            found = self.fixture.allocator.reservations.of(AgentId(agent))
            amounts = [(r.name, None if r.amount is None else r.amount["cpus"]) for r in found]
            assert amounts == [
                (each.name, None if each.cpus is None else 1000 * each.cpus)
                for each in self.of(agent)
            ]

    def of(self, agent: str) -> list[Booking]:
        return [each for each in self.bookings if each.agent == agent]

    def free(self, agent: str) -> int:
        return self.fixture.allocator.queries.free(AgentId(agent))["cpus"] // 1000

    def shape(self, cpus: int, time_s: int) -> Shape:
        return Shape(Resources({"cpus": 1000 * cpus}), ANYWHERE, 1000 * time_s)


@pytest.mark.parametrize("part", range(5))
def test_reservations_keep_others_away_and_nobody_else(part: int) -> None:
    for seed in range(portion(WORLDS)):
        cluster = Cluster(5 * seed + part)
        for _ in range(STEPS):
            cluster.step()
            cluster.check_reserved()
