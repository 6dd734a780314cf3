"""The allocator: who holds what, and who is dealt what next.

It is told of every change and decides in `run` only. Offered and used resources are the
same to it: both are charged to the framework that has them (pessimistic offers). Every
unit of every agent is at any time either free in the pool or charged to one framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from croupier.master.allocator.cycle import Grant, Rules, Visit
from croupier.master.allocator.pool import Pool, PooledAgent
from croupier.master.allocator.reasons import Cause, PassedOver
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import FrameworkNode, Tree
from croupier.model.attributes import Attributes, facts_of
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources


class Allocator:
    """Deals agents' free resources to frameworks in ascending weighted dominant share.

    Attributes:
        passes: how many passes were begun; a quiet cluster makes none.
    """

    def __init__(
        self, weights: Mapping[Role, int] | None = None, rules: Rules | None = None
    ) -> None:
        """`weights` of roles are in thousandths; a role that is not named weighs 1."""
        self._totals = Totals()
        self._tree = Tree(self._totals, weights or {})
        self._pool = Pool()
        self._rules = rules or Rules()
        self.passes = 0
        self._in_pass = False

    # Agents.

    def add_agent(
        self,
        agent_id: AgentId,
        total: Resources,
        hostname: str = "",
        attributes: Attributes | None = None,
    ) -> None:
        """Add an agent with everything free."""
        self._pool.add(PooledAgent(agent_id, total, facts_of(hostname, attributes or {})))
        self._totals.add(total.scalars)

    def remove_agent(self, agent_id: AgentId) -> None:
        """Take out an agent of which nothing is charged any more."""
        agent = self._pool.remove(agent_id)
        assert agent.free == agent.total, f"{agent_id} still has {agent.total - agent.free} charged"
        self._totals.add(agent.total.scalars, -1)
        for node in self._tree.frameworks.values():
            node.filters.forget(agent_id)
            if node.holding == agent_id:
                node.holding = None

    def activate_agent(self, agent_id: AgentId, active: bool) -> None:
        """Have the agent dealt, or not while it is disconnected."""
        agent = self._pool.agents[agent_id]
        agent.is_active = active
        self._pool.unsettle(agent)

    def free(self, agent_id: AgentId) -> Resources:
        """What is free on the agent."""
        return self._pool.agents[agent_id].free

    # Frameworks.

    def add_framework(self, framework_id: FrameworkId, role: Role) -> None:
        """Add a framework; it is dealt nothing until it is connected."""
        self._tree.add(framework_id, role)

    def remove_framework(self, framework_id: FrameworkId) -> None:
        """Take out a framework that holds nothing any more."""
        self._tree.remove(framework_id)

    def connect(self, framework_id: FrameworkId, connected: bool) -> None:
        """Have the framework dealt to, or not. Its filters go when it disconnects."""
        node = self._tree.frameworks[framework_id]
        node.is_connected = connected
        if not connected:
            node.filters.clear()
            node.holding = None
        self._relist(node)

    def set_demand(self, framework_id: FrameworkId, demand: Demand | None) -> None:
        """Replace what the framework wants; None is whole remainders.

        Agents it could not use before are looked at again. O(agents).
        """
        node = self._tree.frameworks[framework_id]
        if demand == node.demand:
            return
        reshaped = (
            demand is None
            or node.demand is None
            or replace(demand, count=0) != replace(node.demand, count=0)
        )
        node.demand = demand
        node.reasons.clear()
        if reshaped:
            node.holding = None
        if not self._relist(node) and node.is_listed and reshaped:
            self._pool.unsettle_all()

    def demand(self, framework_id: FrameworkId) -> Demand | None:
        """What the framework wants now, counted down by what it launched."""
        return self._tree.frameworks[framework_id].demand

    def suppress(self, framework_id: FrameworkId) -> None:
        """Deal the framework nothing until it revives."""
        node = self._tree.frameworks[framework_id]
        node.is_suppressed = True
        node.holding = None
        self._relist(node)

    def revive(self, framework_id: FrameworkId) -> None:
        """Forget the framework's filters and have every agent looked at for it. O(agents)."""
        node = self._tree.frameworks[framework_id]
        node.is_suppressed = False
        node.filters.clear()
        node.reasons.clear()
        self._relist(node)
        if node.is_listed:
            self._pool.unsettle_all()

    # What is held.

    def charge(self, framework_id: FrameworkId, agent_id: AgentId, amount: Resources) -> None:
        """Charge what a framework is found to hold, as when an agent returns with tasks.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        agent = self._pool.agents[agent_id]
        agent.free = agent.free - amount
        self._tree.charge(self._tree.frameworks[framework_id], amount.scalars)

    def release(self, framework_id: FrameworkId, agent_id: AgentId, amount: Resources) -> None:
        """Put back what a framework held; the agent is looked at again. O(log n)."""
        if not amount:
            return
        agent = self._pool.agents[agent_id]
        agent.free = agent.free + amount
        self._tree.charge(self._tree.frameworks[framework_id], amount.scalars, -1)
        self._pool.unsettle(agent)

    def refuse(
        self, framework_id: FrameworkId, agent_id: AgentId, amount: Resources, until: float
    ) -> None:
        """Do not offer the framework what `amount` contains of the agent before `until`."""
        self._tree.frameworks[framework_id].filters.add(agent_id, amount, until)
        self._pool.wake_at(agent_id, until)

    def answered(self, framework_id: FrameworkId, units: int, launched: int) -> None:
        """An offer of `units` of the demand ended, with `launched` tasks."""
        node = self._tree.frameworks[framework_id]
        node.outstanding -= min(units, node.outstanding)
        if launched and node.demand is not None and node.demand.count is not None:
            node.demand = replace(node.demand, count=max(node.demand.count - launched, 0))
        self._relist(node)

    @property
    def resource_names(self) -> set[str]:
        """The scalar resources that any agent has."""
        return set(self._totals.amounts)

    # Deciding.

    @property
    def is_unsettled(self) -> bool:
        """Whether a pass has anything to look at."""
        return self._pool.unsettled > 0

    @property
    def unsettled_agents(self) -> int:
        """How many agents wait to be looked at."""
        return self._pool.unsettled

    def next_wakeup(self) -> float | None:
        """When time alone will unsettle an agent; None if it will not."""
        return self._pool.next_wakeup()

    def wake(self, now: float) -> None:
        """Unsettle the agents whose filters ran out by `now`."""
        self._pool.wake(now)

    def run(self, now: float, budget: int = 2000) -> list[Grant]:
        """Deal unsettled agents until none is left, or about `budget` frameworks were looked at.

        The rest waits for the next call; `is_unsettled` tells. O(looks x log n).
        """
        if not self._in_pass:
            if not self._tree.has_willing:
                self._pool.settle_all()
            if not self.is_unsettled:
                return []
            self.passes += 1
        self._tree.refresh()
        grants: list[Grant] = []
        while budget > 0:
            agent = self._pool.next_unsettled()
            if agent is None:
                break
            visit = Visit(agent, self._tree, self._pool, self._rules, self.passes, now)
            grants += visit.run()
            budget -= visit.looks + visit.work + 1
        self._in_pass = self.is_unsettled
        return grants

    # Telling.

    def share(self, framework_id: FrameworkId) -> tuple[int, int]:
        """The framework's dominant share as an exact fraction: numerator, denominator."""
        self._tree.refresh()
        return self._totals.dominant(self._tree.frameworks[framework_id].held), self._totals.scale

    def role_share(self, role: Role) -> tuple[int, int]:
        """The role's dominant share, before its weight, as an exact fraction."""
        self._tree.refresh()
        node = self._tree.roles.get(role)
        return (self._totals.dominant(node.held) if node else 0), self._totals.scale

    def role_weights(self) -> dict[Role, int]:
        """Weights, in thousandths, of the roles that have frameworks or a configured weight."""
        known = {role: node.weight for role, node in self._tree.roles.items()}
        return self._tree.weights | known

    def is_suppressed(self, framework_id: FrameworkId) -> bool:
        """Whether the framework asked for no offers."""
        return self._tree.frameworks[framework_id].is_suppressed

    def filter_count(self) -> int:
        """How many agents are refused by some framework, counted once for each framework."""
        return sum(len(node.filters) for node in self._tree.frameworks.values())

    def explain(self, framework_id: FrameworkId) -> list[PassedOver]:
        """Why the framework is not dealt more, the latest cause first."""
        node = self._tree.frameworks[framework_id]
        if not node.is_connected:
            return [PassedOver(Cause.DISCONNECTED, 0, "the framework is not connected")]
        if node.is_suppressed:
            return [PassedOver(Cause.SUPPRESSED, 0, "the framework asked for no offers")]
        if node.wanted() == 0:
            return [PassedOver(Cause.NO_DEMAND, 0, f"it wants {node.demand}")]
        if not self._pool.agents:
            return [PassedOver(Cause.NO_AGENTS, 0, "no agent is registered")]
        return node.reasons.tell() or [self._outranked(node)]

    def check(self) -> None:
        """Assert every invariant: what is charged is exactly what is not free."""
        self._tree.check()
        free: dict[str, int] = {}
        held: dict[str, int] = {}
        for agent in self._pool.agents.values():
            assert agent.free <= agent.total, agent.agent_id
            for name, milli in agent.free.scalars.items():
                free[name] = free.get(name, 0) + milli
        for node in self._tree.frameworks.values():
            assert node.outstanding >= 0
            assert node.holding is None or node.holding in self._pool.agents
            for name, milli in node.held.items():
                held[name] = held.get(name, 0) + milli
        for name in {*self._totals.amounts, *free, *held}:
            total = self._totals.amounts.get(name, 0)
            assert free.get(name, 0) + held.get(name, 0) == total, name

    def _relist(self, node: FrameworkNode) -> bool:
        newly = self._tree.relist(node)
        if newly:
            self._pool.unsettle_all()
        return newly

    def _outranked(self, node: FrameworkNode) -> PassedOver:
        share = self._totals.dominant(node.held) / self._totals.scale
        detail = f"others with a smaller share took what was free; its own is {share:.3f}"
        return PassedOver(Cause.OUTRANKED, len(self._pool.agents), detail)
