"""Charges: the resources that frameworks hold.

Offered and used resources are both charged to the framework that has them. An agent that gets
resources back is dirty, and frameworks that wait for headroom under a limit are checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from croupier.master.allocator.absent_agents import AbsentAgents
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.grant import Grant
from croupier.master.allocator.limit_waiters import LimitWaiters
from croupier.master.allocator.memberships import Memberships
from croupier.master.allocator.node import Amounts, Leaf, add_amounts
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.tree import Tree
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources, sum_of, total_of

# Resources that a framework uses in one of its roles.
Charge = tuple[FrameworkId, Role, Resources]


class Charges:
    """Charges frameworks for what they hold of agents."""

    def __init__(
        self,
        tree: Tree,
        agents: AgentPool,
        absent: AbsentAgents,
        members: Memberships,
        waiters: LimitWaiters,
    ) -> None:
        self._tree, self._agents, self._absent = tree, agents, absent
        self._members, self._waiters = members, waiters

    def charge(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Charge resources that a framework uses already, as when an agent returns with tasks.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        self.charge_all(agent_id, ((framework_id, role, amount),))

    def charge_all(self, agent_id: AgentId, charges: Iterable[Charge]) -> None:
        """Charge resources of one agent that tasks use. O(charges + leaves x log n).

        Raises:
            ValueError: if that much is not free on the agent.
        """
        by_leaf = _by_leaf(charges)
        agent = self._agents.agents[agent_id]
        held = sum_of(each for amounts in by_leaf.values() for each in amounts)
        self._agents.set_free(agent, agent.free - held)
        for (framework_id, role), amounts in by_leaf.items():
            agent.count_tasks(framework_id, len(amounts))
            self._charge(framework_id, role, total_of(amounts).scalars, len(amounts))

    def charge_absent(
        self, framework_id: FrameworkId, role: Role, held: Sequence[tuple[AgentId, Resources]]
    ) -> None:
        """Charge a framework for its tasks on absent agents. O(tasks + log n)."""
        scalars: Amounts = {}
        for agent_id, amount in held:
            self._absent.charge(agent_id, amount.scalars)
            add_amounts(scalars, amount.scalars, 1)
        self._charge(framework_id, role, scalars, len(held))

    def charge_returned(
        self, agent_id: AgentId, tasks: Sequence[tuple[FrameworkId, Resources]]
    ) -> None:
        """Move charges of tasks from the absent agent to the agent that returned. O(tasks).

        Their roles and frameworks hold as much as before.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        agent = self._agents.agents[agent_id]
        self._agents.set_free(agent, agent.free - sum_of(amount for _, amount in tasks))
        for framework_id, amount in tasks:
            agent.count_tasks(framework_id, 1)
            self._absent.release(agent_id, amount.scalars)

    def release_absent(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Release a task that was charged while its agent was absent. O(log n)."""
        self._absent.release(agent_id, amount.scalars)
        self._release(self._members.leaf(framework_id, role), amount.scalars)

    def grant(
        self,
        framework_id: FrameworkId,
        role: Role,
        agent_id: AgentId,
        amount: Resources,
        shape: Shape | None = None,
    ) -> Grant:
        """Grant resources that the caller chose, past demand, filters and policy. O(log n).

        With `shape` they are for one submitted task of that shape.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        agent = self._agents.agents[agent_id]
        self._agents.set_free(agent, agent.free - amount)
        leaf = self._members.leaf(framework_id, role)
        number = self._tree.deal(leaf, amount.scalars)
        if shape is None:
            return Grant(framework_id, role, agent_id, amount, (), (number,))
        leaf.queued[shape].outstanding += 1
        units = ((shape.unit, 1),)
        return Grant(framework_id, role, agent_id, amount, units, (number,), shape)

    def launch(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Turn offered resources into resources that a task uses. O(log n)."""
        leaf = self._members.leaf(framework_id, role)
        agent = self._agents.agents[agent_id]
        self._tree.launch(leaf, amount.scalars)
        agent.count_tasks(framework_id, 1)
        agent.is_dealt = False
        if agent.is_waited_for or any(
            pending.demand.max_per_offer is not None for pending in leaf.pending or ()
        ):
            # The agent's round may be over, or the offer took only a part of the free resources.
            self._agents.mark_dirty(agent)

    def release(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Release the resources of a task; the agent is dirty. O(log n)."""
        self._agents.agents[agent_id].count_tasks(framework_id, -1)
        self._agents.give_back(agent_id, amount)
        self._release(self._members.leaf(framework_id, role), amount.scalars)

    def release_all(self, agent_id: AgentId, charges: Iterable[Charge]) -> None:
        """Release the resources of tasks on one agent. O(charges + leaves x log n)."""
        by_leaf = _by_leaf(charges)
        if not by_leaf:
            return
        freed = sum_of(each for amounts in by_leaf.values() for each in amounts)
        self._agents.give_back(agent_id, freed)
        for place, amounts in by_leaf.items():
            self._agents.agents[agent_id].count_tasks(place[0], -len(amounts))
            self._release(self._members.leaf(*place), total_of(amounts).scalars, len(amounts))

    def _charge(
        self, framework_id: FrameworkId, role: Role, scalars: Mapping[str, int], tasks: int
    ) -> None:
        leaf = self._members.leaf_to_charge(framework_id, role)
        self._tree.charge(leaf, scalars, tasks=tasks)
        if leaf.limited:
            self._agents.mark_withheld_dirty()

    def _release(self, leaf: Leaf, scalars: Mapping[str, int], tasks: int = 1) -> None:
        self._tree.charge(leaf, scalars, -1, tasks)
        self._waiters.make_room(leaf)
        self._members.drop_if_left(leaf)


def _by_leaf(charges: Iterable[Charge]) -> dict[tuple[FrameworkId, Role], list[Resources]]:
    found: dict[tuple[FrameworkId, Role], list[Resources]] = {}
    for framework_id, role, amount in charges:
        found.setdefault((framework_id, role), []).append(amount)
    return found
