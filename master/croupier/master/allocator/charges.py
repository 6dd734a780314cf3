"""Charges: the resources that frameworks hold.

Offered and used resources are both charged to the framework that has them. An agent that gets
resources back is dirty, and frameworks that wait for headroom under a limit are checked again.

Agents of the master's records that have not returned to it are absent. Their capacity counts in the
cluster's totals, and the resources of their tasks are charged to roles and frameworks. So shares
and limits stay as they were under the previous master. Absent agents are not in the pool: nothing
of them is dealt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.node import Amounts, Leaf, add_amounts
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources, sum_of, total_of

# Resources that a framework uses in one of its roles.
Charge = tuple[FrameworkId, Role, Resources]


class Charges:
    """Charges frameworks for what they hold of agents.

    Attributes:
        absent: the capacity of each agent that has not returned to this master.
        absent_held: the part of it that tasks hold.
    """

    def __init__(self, state: AllocatorState) -> None:
        self._tree, self._agents, self._totals = state.tree, state.agents, state.totals
        self._members, self._waiters = state.members, state.waiters
        self.absent: dict[AgentId, Amounts] = {}
        self.absent_held: Amounts = {}

    def charge(self, agent_id: AgentId, charges: Iterable[Charge]) -> None:
        """Charge resources of one agent that tasks use already. O(charges + leaves x log n).

        Raises ValueError if that much is not free on the agent.
        """
        by_leaf = _by_leaf(charges)
        agent = self._agents.agents[agent_id]
        held = sum_of(each for amounts in by_leaf.values() for each in amounts)
        self._agents.set_free(agent, agent.free - held)
        for (framework_id, role), amounts in by_leaf.items():
            agent.count_tasks(framework_id, len(amounts))
            self._charge(framework_id, role, total_of(amounts).scalars, len(amounts))

    def add_absent(self, agent_id: AgentId, capacity: Mapping[str, int]) -> None:
        """Count capacity of an absent agent; it must have room for what its tasks hold."""
        add_amounts(self.absent.setdefault(agent_id, {}), capacity, 1)
        self._totals.add(capacity)

    def remove_absent(self, agent_id: AgentId) -> None:
        """Stop counting the capacity of an agent; do nothing if it is not absent.

        Each of its tasks is then charged to it on its return, or released.
        """
        self._totals.add(self.absent.pop(agent_id, {}), -1)

    def charge_absent(
        self, framework_id: FrameworkId, role: Role, held: Sequence[Resources]
    ) -> None:
        """Charge a framework for its tasks on absent agents. O(tasks + log n)."""
        scalars: Amounts = {}
        for amount in held:
            add_amounts(scalars, amount.scalars, 1)
        add_amounts(self.absent_held, scalars, 1)
        self._charge(framework_id, role, scalars, len(held))

    def charge_returned(
        self, agent_id: AgentId, tasks: Sequence[tuple[FrameworkId, Resources]]
    ) -> None:
        """Move charges of tasks from the absent agent to the agent that returned. O(tasks).

        Their roles and frameworks hold as much as before. Raises ValueError if that much is not
        free on the agent.
        """
        agent = self._agents.agents[agent_id]
        self._agents.set_free(agent, agent.free - sum_of(amount for _, amount in tasks))
        for framework_id, amount in tasks:
            agent.count_tasks(framework_id, 1)
            add_amounts(self.absent_held, amount.scalars, -1)

    def charge_part(
        self,
        framework_id: FrameworkId,
        role: Role,
        place: AgentId,
        part: Resources,
        *,
        is_absent: bool = False,
    ) -> None:
        """Charge the part of a task that it takes from a hold, beside the rest on its agent.

        With `is_absent`, role and framework are charged already, and only the hold has to be.
        Raises ValueError if that much is not free in the hold.
        """
        hold = self._agents.agents[place]
        owner = hold.owner
        assert owner is not None
        self._agents.set_free(hold, hold.free - part)
        if is_absent:
            add_amounts(self.absent_held, part.scalars, -1)
            self._tree.charge(owner, part.scalars, -1, tasks=0)
        else:
            leaf = self._members.leaf_to_charge(framework_id, role)
            self._tree.charge(leaf, part.scalars, tasks=0, owner=owner)

    def release_absent(self, framework_id: FrameworkId, role: Role, amount: Resources) -> None:
        """Release a task that was charged while its agent was absent. O(log n)."""
        add_amounts(self.absent_held, amount.scalars, -1)
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

        With `shape` they are for one submitted task, group or gang of that shape. Raises ValueError
        if that much is not free on the agent.
        """
        agent = self._agents.agents[agent_id]
        self._agents.set_free(agent, agent.free - amount)
        leaf = self._members.leaf(framework_id, role)
        members = [] if shape is None or shape.gang is None else shape.gang.members
        number = self._tree.deal(leaf, amount.scalars, max(1, len(members)), agent.owner)
        if shape is None:
            return Grant(framework_id, role, agent_id, amount, (), (number,))
        leaf.queued[shape].outstanding += 1
        agent.count_tasks(framework_id, len(members))
        places = tuple(GangPlace(agent_id, member) for member in members)
        units = ((shape.unit, 1),)
        return Grant(framework_id, role, agent_id, amount, units, (number,), shape, places)

    def note_deals(self, places: Iterable[tuple[FrameworkId, Role]]) -> None:
        """Note that these frameworks were dealt to, in this order: so ties break as before."""
        for place in places:
            self._tree.deal(self._members.leaf(*place), {}, 0)

    def launch(
        self,
        framework_id: FrameworkId,
        role: Role,
        agent_id: AgentId,
        amount: Resources,
        tasks: int = 1,
    ) -> None:
        """Turn offered resources into resources that a task uses. O(log n).

        The part of a task that it takes from a hold is no task of its own: `tasks` is 0.
        """
        leaf = self._members.leaf(framework_id, role)
        agent = self._agents.agents[agent_id]
        self._tree.launch(leaf, amount.scalars, agent.owner)
        agent.count_tasks(framework_id, tasks)
        agent.is_dealt = False
        if agent.is_waited_for or any(
            pending.demand.max_per_offer is not None for pending in leaf.pending or ()
        ):
            # The agent's round may be over, or the offer took only a part of the free resources.
            self._agents.mark_dirty(agent)

    def release(
        self,
        framework_id: FrameworkId,
        role: Role,
        agent_id: AgentId,
        amount: Resources,
        tasks: int = 1,
    ) -> None:
        """Release the resources of a task; the agent is dirty. `tasks` as in `launch`. O(log n)."""
        agent = self._agents.agents[agent_id]
        agent.count_tasks(framework_id, -tasks)
        self._agents.give_back(agent_id, amount)
        self._release(self._members.leaf(framework_id, role), amount.scalars, tasks, agent.owner)

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

    def _release(
        self, leaf: Leaf, scalars: Mapping[str, int], tasks: int = 1, owner: Leaf | None = None
    ) -> None:
        self._tree.charge(leaf, scalars, -1, tasks, owner)
        self._waiters.update_surplus(leaf, has_released=True)
        self._members.drop_if_left(leaf)


def _by_leaf(charges: Iterable[Charge]) -> dict[tuple[FrameworkId, Role], list[Resources]]:
    found: dict[tuple[FrameworkId, Role], list[Resources]] = {}
    for framework_id, role, amount in charges:
        found.setdefault((framework_id, role), []).append(amount)
    return found
