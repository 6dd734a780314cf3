"""The allocator: who holds what, and who is dealt what next.

It is told of every change and decides in `run` only. Offered and used resources are both
charged to the framework that has them, in one of its roles (pessimistic offers). Every unit
of every agent is at any time either free in the pool or charged to one leaf of the tree; of an
agent that has not returned to this master it is either charged or idle, see `absent_agents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from croupier.master.allocator import limits
from croupier.master.allocator.agent_allocation import Visit
from croupier.master.allocator.agent_pool import PooledAgent
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.grant import Grant, Units, merged
from croupier.master.allocator.node import Amounts, Leaf, add_amounts
from croupier.master.allocator.pending_demand import carried, count_down, give_back, shapes
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.rules import Rules
from croupier.model.attributes import Attributes, facts_of
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings


class Allocator(Charges):
    """Deals agents' free resources to frameworks in the order of a policy.

    Attributes:
        passes: how many passes were begun; a quiet cluster makes none.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        rules: Rules | None = None,
        roles: Mapping[Role, RoleSettings] | None = None,
    ) -> None:
        """`roles` are the settings of roles that operators have made; `policy` None is DRF."""
        super().__init__(policy, rules or Rules(), roles)
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
        """Add an agent with everything free; it is absent no more.

        What its tasks were charged while it was absent is for `charge_returned` or
        `release_absent`, task by task.
        """
        self.absent.remove(agent_id)
        self.pool.add(PooledAgent(agent_id, total, facts_of(hostname, attributes or {})))
        self._totals.add(total.scalars)

    def remove_agent(self, agent_id: AgentId) -> None:
        """Take out an agent of which nothing is charged any more. O(frameworks)."""
        agent = self.pool.remove(agent_id)
        assert agent.free == agent.total, f"{agent_id} still has {agent.total - agent.free} charged"
        self._totals.add(agent.total.scalars, -1)
        for leaf in self.tree.leaves.values():
            leaf.reservations.forget(agent_id)
            for want in leaf.pending or ():
                want.unmet.pop(agent_id, None)

    def change_agent(
        self, agent_id: AgentId, total: Resources, hostname: str, attributes: Attributes
    ) -> None:
        """Change an agent's total, name and attributes. What is charged on it stays charged.

        Raises:
            ValueError: if `total` does not hold what is charged; nothing is changed then.
        """
        agent = self.pool.agents[agent_id]
        free = total - (agent.total - agent.free)
        self._totals.add(agent.total.scalars, -1)
        self._totals.add(total.scalars)
        agent.total, agent.facts = total, facts_of(hostname, attributes)
        self.pool.set_free(agent, free)
        self.pool.mark_dirty(agent)

    def activate_agent(self, agent_id: AgentId, active: bool) -> None:
        """Have the agent dealt, or not while it is disconnected."""
        agent = self.pool.agents[agent_id]
        self.pool.activate(agent, active)

    # Roles.

    def set_role(self, role: Role, settings: RoleSettings) -> None:
        """Have the role weigh, and be bounded, as `settings` say, from the next pass on.

        O(agents + frameworks of the role).
        """
        self.tree.set_role(role, settings)
        for node in self.tree.roles[role].nodes() if role in self.tree.roles else ():
            if isinstance(node, Leaf):
                self._bound(node)
        self.pool.mark_all_dirty()

    # Frameworks.

    def add_framework(self, framework_id: FrameworkId, roles: Sequence[Role]) -> None:
        """Add a framework in its roles; it is dealt nothing until it is connected."""
        assert framework_id not in self._frameworks
        self._frameworks[framework_id] = {}
        self._demands[framework_id] = ()
        for role in roles:
            self._frameworks[framework_id][role] = self.tree.add(framework_id, role)

    def set_roles(self, framework_id: FrameworkId, roles: Sequence[Role]) -> None:
        """Have the framework in these roles, in this order; it is connected anew after this.

        What it holds in a role that it left stays charged there; what it demanded there is
        forgotten.
        """
        mine = self._frameworks[framework_id]
        self._demands[framework_id] = tuple(
            each for each in self.demands(framework_id) if each.role is None or each.role in roles
        )
        kept = {role: leaf for role, leaf in mine.items() if role not in roles}
        self._frameworks[framework_id] = {
            role: mine[role] if role in mine else self.tree.add(framework_id, role)
            for role in roles
        }
        for role in roles:
            self._frameworks[framework_id][role].is_member = True
        for role, leaf in kept.items():
            leaf.is_member = False
            self._frameworks[framework_id][role] = leaf
            self._relist(leaf)
            self._forget_if_left(leaf)
        self._demand_in_roles(framework_id)

    def remove_framework(self, framework_id: FrameworkId) -> None:
        """Take out a framework that holds nothing any more."""
        for leaf in self._frameworks.pop(framework_id).values():
            self._drop(leaf)
        del self._demands[framework_id]

    def connect(self, framework_id: FrameworkId, connected: bool) -> None:
        """Have the framework dealt to, or not. Its filters go when it disconnects."""
        for leaf in self._frameworks[framework_id].values():
            leaf.is_connected = connected
            if not connected:
                self.pool.forget_filters(leaf)
            self._relist(leaf)

    def set_demand(self, framework_id: FrameworkId, demands: Sequence[Demand]) -> None:
        """Replace what the framework wants; nothing is whole remainders, in all its roles.

        Agents it could not use before are looked at again. O(agents).
        """
        if tuple(demands) == self.demands(framework_id):
            return
        self._demands[framework_id] = tuple(demands)
        self._demand_in_roles(framework_id)

    def suppress(self, framework_id: FrameworkId, roles: Sequence[Role] = ()) -> None:
        """Deal the framework nothing, in these roles or all, until it revives."""
        for leaf in self._leaves(framework_id, roles):
            leaf.is_suppressed = True
            self._relist(leaf)

    def revive(self, framework_id: FrameworkId, roles: Sequence[Role] = ()) -> None:
        """Forget the framework's filters and have every agent looked at for it. O(agents)."""
        for leaf in self._leaves(framework_id, roles):
            leaf.is_suppressed = False
            self.pool.forget_filters(leaf)
            leaf.reasons.clear()
            self._relist(leaf)
            if leaf.is_listed:
                self.pool.mark_all_dirty(leaf)

    # Ending offers.

    def settle_offers(
        self,
        framework_id: FrameworkId,
        role: Role,
        agent_id: AgentId,
        units: Units,
        launched: Sequence[Resources] = (),
        unused: Resources = NOTHING,
        refused_until: float | None = None,
        offers: int = 1,
    ) -> None:
        """End offers of one agent: free what no task uses, and count the demand down.

        Tasks are charged by `launch` before. O(log n + agents if other agents may fit now).

        Args:
            framework_id: the framework that had the offers.
            role: its role in which they were made.
            agent_id: the agent.
            units: the units of their grants together.
            launched: the resources of each task that was launched on them.
            unused: what their tasks leave over.
            refused_until: do not offer the framework what `unused` contains of the agent before
                this time, nor before every other framework that can use the agent was offered
                it; None sets no filter.
            offers: how many offers ended.
        """
        leaf = self._frameworks[framework_id][role]
        agent = self.pool.agents[agent_id]
        if unused and refused_until is not None and leaf.is_connected:
            agent.filters.add(leaf, unused, refused_until)
            self.pool.wake_at(agent_id, refused_until)
        if unused:
            self._free(agent_id, unused)
            self.tree.withdraw(leaf, unused.scalars)
            self._make_room(leaf)
        slots = sum(number for _, number in units) if units else offers
        self.tree.count_slots(leaf, len(launched) - slots)
        if leaf.pending is not None:
            self._count(leaf, units, launched, agent.facts)
        self._forget_if_left(leaf)

    # Deciding.

    @property
    def has_dirty_agents(self) -> bool:
        """Whether a pass has anything to look at."""
        return self.pool.has_dirty_agents

    @property
    def dirty_agents(self) -> int:
        """How many agents wait to be looked at."""
        return self.pool.dirty_count

    def next_wakeup(self) -> float | None:
        """When time alone will unsettle an agent; None if it will not."""
        return self.pool.next_wakeup()

    def wake(self, now: float) -> None:
        """Unsettle the agents whose filters or earmarks ran out by `now`."""
        self.pool.wake(now)

    def run(self, now: float, budget: int = 2000) -> list[Grant]:
        """Deal unsettled agents until none is left, or about `budget` frameworks were looked at.

        The rest waits for the next call; `has_dirty_agents` tells. O(looks x log n).
        """
        if not self._in_pass:
            if not self.tree.has_willing:
                self.pool.mark_all_clean()
            if not self.pool.line_up():
                return []
            self.passes += 1
        self.tree.refresh()
        grants: list[Grant] = []
        while budget > 0:
            found = self.pool.take_dirty()
            if found is None:
                break
            agent, leaves = found
            visit = Visit(agent, self.tree, self.pool, self._rules, self.passes, now)
            grants += visit.run(leaves)
            budget -= visit.looks + visit.work + 1
        self._in_pass = self.has_dirty_agents
        return grants if self._rules.order != "spread" else merged(grants, self._is_one_offer)

    def check(self) -> None:
        """Assert every invariant: what is charged is exactly what is not free."""
        self.tree.check()
        self.absent.check()
        free = self.absent.uncharged()
        held: Amounts = {}
        for agent in self.pool.agents.values():
            assert agent.free <= agent.total, agent.agent_id
            add_amounts(free, agent.free.scalars, 1)
        for (framework_id, role), leaf in self.tree.leaves.items():
            assert self._frameworks[framework_id][role] is leaf
            assert all(want.outstanding >= 0 for want in leaf.pending or ())
            assert all(agent_id in self.pool.agents for agent_id in leaf.reservations)
            assert leaf.surplus == (limits.surplus_of(leaf) if leaf.limited else {})
            add_amounts(held, leaf.held, 1)
        for name in {*self._totals.amounts, *free, *held}:
            total = self._totals.amounts.get(name, 0)
            assert free.get(name, 0) + held.get(name, 0) == total, name
        filters = sum(len(agent.filters) for agent in self.pool.agents.values())
        assert filters == self.filter_count()

    # Inside.

    def _demand_in_roles(self, framework_id: FrameworkId) -> None:
        demands = self._demands[framework_id]
        leaves = self._frameworks[framework_id]
        first = next(iter(leaves))
        for role, leaf in leaves.items():
            mine = [each for each in demands if (each.role or first) == role]
            self._want(leaf, mine if demands else None)

    def _want(self, leaf: Leaf, demands: Sequence[Demand] | None) -> None:
        wants = None if demands is None else carried(leaf.pending or (), demands)
        # Who waits for a limit is looked at for all that it wants, to wait anew.
        is_new = bool(leaf.waits_at) or shapes(wants) != shapes(leaf.pending)
        self.tree.unpark(leaf)
        self.tree.set_pending(leaf, wants)
        leaf.reasons.clear()
        self._bound(leaf)
        self._look_again(leaf, is_new=is_new)
        if is_new:
            self.pool.release_reservations(leaf)
            self.pool.mark_withheld_dirty()

    def _count(
        self, leaf: Leaf, units: Units, launched: Sequence[Resources], facts: Mapping[str, str]
    ) -> None:
        """Count what is on offer and what is wanted down."""
        assert leaf.pending is not None
        before = shapes(leaf.pending)
        for unit, number in units:
            give_back(leaf.pending, unit, number, facts)
        for task in launched:
            count_down(leaf.pending, task, facts)
        self._bound(leaf)
        self._look_again(leaf, is_new=shapes(leaf.pending) != before)
        self.pool.recheck_scarce(leaf)

    def _look_again(self, leaf: Leaf, *, is_new: bool) -> None:
        """Have agents looked at for a leaf whose wants changed; `is_new`: that others may do."""
        if leaf.parked_by is not None and not limits.is_blocked(leaf):
            self.tree.unpark(leaf)
            is_new = True
        if not self._relist(leaf) and leaf.is_listed and is_new:
            self.pool.mark_all_dirty(leaf)

    def _is_one_offer(self, grant: Grant) -> bool:
        wants = self.tree.leaves[grant.framework_id, grant.role].pending
        if wants is None:
            return False
        most = {want.demand.unit: want.demand.max_per_offer for want in wants}
        bounds = ((number, most.get(unit)) for unit, number in grant.units)
        return all(bound is None or number <= bound for number, bound in bounds)

    def _relist(self, leaf: Leaf) -> bool:
        newly = self.tree.relist(leaf)
        if newly:
            self.pool.mark_all_dirty(leaf)
        elif not leaf.is_listed:
            self.pool.release_reservations(leaf)
        return newly
