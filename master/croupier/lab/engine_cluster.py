"""The engine's allocator with the clients, machines and tasks of a forest.

It includes offers, demand and preemption, while `engine_rule` has only the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.engine_rule import Terms, role_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.master.allocator import Allocator, Grant, Rules
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.preemption import Holding
from croupier.master.allocator.preemptor import Preemptor
from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources

_MAX_ROUNDS = 20_000


@dataclass(frozen=True, slots=True)
class EngineTask:
    """A task that runs; `started` numbers tasks in the order in which they began."""

    client: Pool
    agent_id: AgentId
    started: int


class EngineCluster:
    """Frameworks that accept every unit at once; `schedule` has the client of each, in order."""

    def __init__(
        self,
        forest: Forest,
        machines: Sequence[Sequence[Fraction]],
        policy: Policy,
        rules: Rules,
        *,
        declares: bool = True,
    ) -> None:
        """Begin without tasks; every task is charged in `forest` too.

        Unless frameworks declare demand (`declares`), they are offered whole remainders. Raises
        InvalidRequest if the engine cannot hold its weights or amounts.
        """
        self.forest = forest
        self.terms = terms = Terms(forest, machines)
        self.allocator = Allocator(policy, rules, terms.settings())
        self.clients: dict[FrameworkId, Pool] = {}
        self.ids: dict[Pool, FrameworkId] = {}
        self.tasks: list[EngineTask] = []
        self.killed: list[EngineTask] = []
        self.schedule: list[Pool] = []
        self._clock = 0
        for number, client in enumerate(terms.clients()):
            framework_id = FrameworkId(f"f{number}")
            self.allocator.add_framework(framework_id, (role_of(client),))
            self.clients[framework_id], self.ids[client] = client, framework_id
            if declares:
                self.declare_demand(client)
            self.allocator.connect(framework_id, declares or client.wants)
        for index, machine in enumerate(machines):
            self.allocator.add_agent(AgentId(f"a{index}"), terms.resources(machine))

    def declare_demand(self, client: Pool) -> None:
        """Declare the client's demand in the forest."""
        framework_id = self.ids[client]
        declared = self.terms.resources(client.declared or client.demand or ())
        self.allocator.set_demand(framework_id, (Demand(declared, client.backlog),))
        if client.is_paused:
            self.allocator.suppress(framework_id)
        else:
            self.allocator.revive(framework_id)

    def found(self, client: Pool, agent_id: AgentId) -> None:
        """Charge a running task of the client; raises ValueError if the agent has no room."""
        charge = self.ids[client], role_of(client), self.unit(client)
        self.allocator.charges.charge(agent_id, [charge])
        self._started(client, agent_id)

    def fill(self) -> None:
        """Allocate until no client can use the rest; every unit becomes a task."""
        while self.allocator.has_dirty_agents:
            grants = self.allocator.run(float(self._clock))
            dealt = [(number, grant) for grant in grants for number in grant.deals]
            for _, grant in sorted(dealt, key=lambda each: each[0]):
                self._launch(grant)
            for grant in grants:
                tasks = [self.unit(self.clients[grant.framework_id])] * len(grant.deals)
                self.allocator.settle_offers(*grant.place, grant.units, tasks)

    def end(self, task: EngineTask) -> None:
        """End a task."""
        client = task.client
        self.tasks.remove(task)
        self.forest.start(client, -1)
        unit = self.unit(client)
        self.allocator.charges.release(self.ids[client], role_of(client), task.agent_id, unit)

    def preempt(self, tolerance: Fraction) -> None:
        """Fill, and preempt for starving clients while that is possible."""
        preemptor = self.preemptor(tolerance)
        self.fill()
        for _ in range(_MAX_ROUNDS):
            if not self.help_one(preemptor):
                return
            self.fill()
        raise AssertionError("preemption never ends")

    def preemptor(self, tolerance: Fraction) -> Preemptor:
        """Return a preemptor that acts at once."""
        return self.allocator.preemptor(PreemptionRules(True, tolerance, 0.0, 0.0, 0.0, at_once=1))

    def help_one(self, preemptor: Preemptor) -> bool:
        """Preempt for one task of a starving client; return whether one could be helped."""
        plans = preemptor.look(self._holdings, float(self._clock))
        for victim in plans[0].victims if plans else ():
            task = next(t for t in self.tasks if str(t.started) == victim.key)
            self.end(task)
            self.killed.append(task)
            preemptor.ended((victim.leaf.framework_id, victim.key))
            if task.client.backlog is not None:
                task.client.backlog += 1
                self.declare_demand(task.client)
        return bool(plans)

    def unit(self, client: Pool) -> Resources:
        """Return the resources of one task."""
        return self.terms.resources(client.demand or ())

    def _launch(self, grant: Grant) -> None:
        client = self.clients[grant.framework_id]
        unit = self.unit(client)
        self.allocator.charges.launch(grant.framework_id, grant.role, grant.agent_id, unit)
        self._started(client, grant.agent_id)
        self.schedule.append(client)

    def _started(self, client: Pool, agent_id: AgentId) -> None:
        self.forest.start(client)
        self.tasks.append(EngineTask(client, agent_id, self._clock))
        self._clock += 1

    def _holdings(self, leaf: Leaf) -> Iterable[Holding]:
        client = self.clients[leaf.framework_id]
        for task in self.tasks:
            if task.client is client:
                yield Holding(
                    leaf, task.agent_id, self.unit(client), str(task.started), float(task.started)
                )
