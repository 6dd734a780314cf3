"""A framework that submits and one that accepts the same demand at once get the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from croupier.master.allocator import Rules
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AllocationDue
from croupier.model.agent_orders import LaunchTask
from croupier.model.attributes import Constraint, Operator
from croupier.model.demand import Demand, Placement
from croupier.model.ids import AgentId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings, parse_amounts
from croupier.model.task import Command, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.effort import portion
from tests.harness.world import World

UNITS = tuple(
    map(Resources.parse, ("cpus:1;mem:1GB", "cpus:2;mem:1GB", "cpus:1;mem:4GB", "cpus:3;mem:2GB"))
)
PLACES = (Placement(), Placement((Constraint("rack", Operator.EQUALS, "a"),)))
SHAPES = [(unit, place) for unit in UNITS for place in PLACES]
IDLE = (Demand(UNITS[0], 0),)
ROLES = ("a", "a/x", "a/y", "b", "c")
STEPS = 60

# Framework, host and unit of a launched task.
Deal = tuple[int, str, str]
Deals = list[Counter[Deal]]


@dataclass(slots=True)
class Cluster:
    """One of two worlds with the same hosts and frameworks, which have numbers.

    Attributes:
        submits: whether its frameworks submit, or else declare demand and accept each offer.
        running: the tasks of each deal.
        wanted: how many tasks of each shape a framework waits for, if it accepts offers.
    """

    submits: bool
    rules: Rules
    world: World = field(init=False)
    frameworks: list[SessionId] = field(default_factory=list)
    hosts: dict[str, SessionId] = field(default_factory=dict)
    running: dict[Deal, list[str]] = field(default_factory=dict)
    wanted: list[dict[int, int]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.world = World(rules=self.rules)

    def join(self, role: str) -> Deals:
        demands = () if self.submits else IDLE
        session = self.world.framework(
            role, suppressed=self.submits, demands=demands, allocate=False
        )
        self.frameworks.append(session)
        self.wanted.append({})
        return self._deal()

    def add_host(self, resources: str, rack: str) -> Deals:
        name = f"h{len(self.hosts)}"
        self.hosts[name] = self.world.agent(
            resources, name, f"rack:{rack}", agent_id=name, allocate=False
        )
        return self._deal()

    def set_role(self, role: str, settings: RoleSettings) -> Deals:
        self.world.state.allocator.set_role(Role(role), settings)
        return self._deal()

    def want(self, number: int, shape: int, tasks: int) -> Deals:
        """Add tasks of a shape to those that framework `number` wants."""
        unit, placement = SHAPES[shape]
        call: calls.Call
        if self.submits:
            call = calls.Submit(tuple(self._task(unit) for _ in range(tasks)), placement=placement)
        else:
            wanted = self.wanted[number]
            wanted[shape] = wanted.get(shape, 0) + tasks
            call = calls.UpdateDemand(
                tuple(
                    Demand(SHAPES[each][0], count, SHAPES[each][1].constraints)
                    for each, count in wanted.items()
                )
            )
        verdict = self.world.call(self.frameworks[number], call, allocate=False)
        assert verdict.error is None
        assert all(task.error is None for task in verdict.tasks)
        return self._deal()

    def end(self, deal: Deal) -> Deals:
        """End a task of a deal."""
        number, host, _ = deal
        session, task_id = self.hosts[host], TaskId(self.running[deal].pop())
        owner = self.world.framework_id(self.frameworks[number])
        status = TaskStatus(
            owner, task_id, AgentId(host), TaskState.FINISHED, Source.EXECUTOR, sequence=1
        )
        self.world.do(AgentReported(session, (status,)), allocate=False)
        seen = calls.Acknowledge(((AgentId(host), task_id, 1),))
        self.world.call(self.frameworks[number], seen, allocate=False)
        return self._deal()

    def _deal(self) -> Deals:
        """Run passes; return what each launched."""
        found: Deals = []
        while self.world.state.allocator.has_dirty_agents:
            before = {host: len(self.world.launches(s)) for host, s in self.hosts.items()}
            self.world.do(AllocationDue(10**6), allocate=False)
            for number, session in enumerate(self.frameworks):
                for offer in self.world.offers(session):
                    self._accept(number, offer.offer_id)
            found.append(self._launched(before))
        return [each for each in found if each]

    def _accept(self, number: int, offer_id: OfferId) -> None:
        """Launch the units that the offer was made for."""
        session, state = self.frameworks[number], self.world.state
        tasks: list[TaskInfo] = []
        for unit, count in state.offers[offer_id].units:
            tasks += (self._task(unit) for _ in range(count))
        call = calls.Accept((offer_id,), tuple(tasks))
        verdict = self.world.call(session, call, allocate=False)
        assert all(task.error is None for task in verdict.tasks)
        # The master has counted the demand down.
        left = state.allocator.queries.demands(self.world.framework_id(session))
        shapes = {(unit, place.constraints): n for n, (unit, place) in enumerate(SHAPES)}
        self.wanted[number] = {
            shapes[each.unit, each.constraints]: each.count for each in left if each.count
        }

    def _launched(self, before: dict[str, int]) -> Counter[Deal]:
        owners = {
            self.world.framework_id(session): number
            for number, session in enumerate(self.frameworks)
        }
        found: Counter[Deal] = Counter()
        for host, session in self.hosts.items():
            orders = [m for m in self.world.sent[session] if isinstance(m, LaunchTask)]
            for order in orders[before[host] :]:
                info = order.task
                deal = (owners[order.framework_id], host, str(info.resources))
                found[deal] += 1
                self.running.setdefault(deal, []).append(info.task_id)
        return found

    def _task(self, unit: Resources) -> TaskInfo:
        self.made += 1
        return TaskInfo(TaskId(f"t{self.made}"), Command(shell="true"), unit)


def random_settings(random: Random) -> RoleSettings:
    guarantee, limit = random.choice(
        (("", ""), ("cpus:3", ""), ("", "cpus:6"), ("cpus:2", "cpus:8"))
    )
    weight = random.choice((500, 1000, 3000))
    return RoleSettings(weight, {}, parse_amounts(guarantee), parse_amounts(limit))


@pytest.mark.parametrize("seed", range(portion(60)))
def test_a_framework_that_submits_gets_what_one_that_accepts_gets(seed: int) -> None:
    random = Random(seed)
    rules = Rules(hold_s=random.choice((0, 1000.0)))
    one, other = Cluster(True, rules), Cluster(False, rules)
    for role in random.choices(ROLES, k=random.randint(1, 5)):
        assert one.join(role) == other.join(role)
    launched = 0
    for _ in range(STEPS):
        running = sorted(deal for deal, tasks in one.running.items() if tasks)
        match random.choice(("want", "want", "end", "end", "end", "host", "role")):
            case "host" if len(one.hosts) < 5:
                host = random.choice(("cpus:4;mem:8GB", "cpus:8;mem:4GB", "cpus:2;mem:16GB"))
                rack = random.choice("ab")
                found = one.add_host(host, rack)
                assert found == other.add_host(host, rack)
            case "role":
                role, settings = random.choice(ROLES[3:]), random_settings(random)
                found = one.set_role(role, settings)
                assert found == other.set_role(role, settings)
            case "end" if running:
                deal = random.choice(running)
                found = one.end(deal)
                assert found == other.end(deal)
            case _:
                who, shape = random.randrange(len(one.frameworks)), random.randrange(len(SHAPES))
                number = random.randint(1, 6)
                found = one.want(who, shape, number)
                assert found == other.want(who, shape, number)
        launched += sum(map(Counter.total, found))
    assert launched or not one.hosts
