"""The allocator: it records every change, and `run` decides the grants.

Offered and used resources are both charged to the framework that has them, in one of its roles
(pessimistic offers). All resources of an agent are either free in the pool or charged to one leaf
of the tree. Those of an agent that has not returned to this master are either charged or idle; see
`charges`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from croupier.master.allocator.back_off import party_of
from croupier.master.allocator.backfill import EndsOf
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.gatherer import Gatherer
from croupier.master.allocator.grant import Grant, Units
from croupier.master.allocator.holds import Holds
from croupier.master.allocator.memberships import DemandChanges
from croupier.master.allocator.node import Leaf, Turn
from croupier.master.allocator.offer_answers import OfferAnswers
from croupier.master.allocator.passes import Passes, Promises
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.preemptor import Preemptor
from croupier.master.allocator.queries import Queries
from croupier.master.allocator.reservations import Reservations
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.allocator.state import AllocatorState, Rules
from croupier.model.attributes import Attributes, facts_of
from croupier.model.demand import Demand
from croupier.model.devices import Inventory
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.resources import NOTHING, Resources, sum_of
from croupier.model.roles import RoleSettings


class Allocator:
    """Deals agents' free resources to frameworks in the order of a policy.

    Attributes:
        back_off: parties that left offers unanswered, and come last for some time.
        charges: the resources that frameworks hold.
        holds: the resources that are held for a framework or a role.
        queries: read-only questions.
        promises: forecasts of who would be dealt what a task holds.
        answers: which offers frameworks use, and how long they may keep the others.
        reservations: agents that are for one owner from a certain time on.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        rules: Rules | None = None,
        roles: Mapping[Role, RoleSettings] | None = None,
    ) -> None:
        """Start empty.

        Args:
            policy: the order of frameworks; None is DRF.
            rules: how agents are dealt.
            roles: the initial settings of roles.
        """
        state = AllocatorState(policy, rules or Rules(remembers_misfits=True), roles)
        self._state, self._totals, self._tree = state, state.totals, state.tree
        self._agents, self._profiles, self._members = state.agents, state.profiles, state.members
        self._waiters, self.back_off = state.waiters, state.back_off
        self._demand = DemandChanges(state)
        self.charges = Charges(state)
        self.holds = Holds(state, self.charges)
        self.queries = Queries(state)
        self.promises = Promises(state)
        self.answers = OfferAnswers(state)
        self.reservations = Reservations(state.agents)
        self._passes = Passes(state)
        self._gatherer = Gatherer(state)

    def know_ends(self, ends_of: EndsOf) -> None:
        """Ask `ends_of` from now on when tasks end that have a declared time; see `backfill`."""
        self._state.ends_of = ends_of

    def preemptor(self, rules: PreemptionRules) -> Preemptor:
        """Return a preemptor for this allocator's frameworks and agents."""
        return Preemptor(self._state, rules)

    # Agents.

    def add_agent(
        self,
        agent_id: AgentId,
        total: Resources,
        hostname: str = "",
        attributes: Attributes | None = None,
        features: Features = NO_FEATURES,
        inventory: Inventory | None = None,
    ) -> None:
        """Add an agent with everything free; it is no longer absent.

        The caller moves the charges of its tasks by `charge_returned`, or drops them by
        `release_absent`.
        """
        self.charges.remove_absent(agent_id)
        facts = facts_of(hostname, attributes or {}, features, agent_id)
        self.add_pooled(PooledAgent(agent_id, total, facts, inventory=inventory))

    def add_pooled(self, agent: PooledAgent) -> None:
        """Add an agent that has its facts already, with everything free."""
        self._agents.add(agent)
        self._totals.add(agent.total.scalars)

    def remove_agent(self, agent_id: AgentId) -> None:
        """Remove an agent on which nothing is charged, and of which nothing is held.

        O(frameworks).
        """
        agent = self._agents.remove(agent_id)
        assert not agent.holds, f"{agent_id} still has holds"
        self._profiles.release(agent)
        assert agent.free == agent.total, f"{agent_id} still has {agent.total - agent.free} charged"
        self._totals.add(agent.total.scalars, -1)
        for leaf in self._tree.leaves.values():
            leaf.reservations.forget(agent_id)
        self._forget_constraints(agent_id)

    def change_agent(
        self,
        agent_id: AgentId,
        total: Resources,
        hostname: str,
        attributes: Attributes,
        features: Features = NO_FEATURES,
    ) -> None:
        """Change an agent's total, name, attributes and features; charges and holds stay.

        O(frameworks). Raises ValueError if `total` is less than the charges; then nothing changes.
        """
        agent = self._agents.agents[agent_id]
        total = total - sum_of(hold.total for hold in agent.holds.values())
        free = total - (agent.total - agent.free)
        self._totals.add(agent.total.scalars, -1)
        self._totals.add(total.scalars)
        agent.total = total
        for each in (agent, *agent.holds.values()):
            each.facts = facts_of(hostname, attributes, features, agent_id)
            self._profiles.release(each)
            self._forget_constraints(each.agent_id)
        self._agents.set_free(agent, free)
        self._agents.mark_dirty(agent)

    def activate_agent(self, agent_id: AgentId, active: bool) -> None:
        """Start or stop dealing the agent, and what is held of it."""
        agent = self._agents.agents[agent_id]
        for each in (agent, *agent.holds.values()):
            self._agents.activate(each, active and not each.is_kept)

    def drop_earmark(self, agent_id: AgentId) -> None:
        """Drop the earmarks of the agent and of its holds."""
        agent = self._agents.agents[agent_id]
        for each in (agent, *agent.holds.values()):
            self._agents.earmark(each, None)

    # Roles.

    def set_role(self, role: Role, settings: RoleSettings) -> None:
        """Apply settings of a role from the next pass on. O(agents + frameworks of the role)."""
        self._tree.set_role(role, settings)
        for node in self._tree.roles[role].nodes() if role in self._tree.roles else ():
            if isinstance(node, Leaf):
                self._waiters.update_surplus(node)
        self._agents.mark_all_dirty()

    def set_past(self, past: Mapping[Role, PastUse]) -> None:
        """Let past use change the weights of these roles, and of no others.

        No agent is visited for that: what is free now, nobody could use.
        """
        self._tree.set_past(past)

    def set_turn(self, role: Role, turn: Turn, reason: str = "") -> None:
        """Set when a role and those below it are dealt to; `reason` says why, in words.

        O(nodes below the role), and O(agents) if that changes it.
        """
        leaves = self._tree.set_turn(role, turn, reason)
        for leaf in leaves:
            self._demand.relist(leaf)
        if leaves:
            self._agents.mark_all_dirty()

    # Frameworks.

    def add_framework(
        self, framework_id: FrameworkId, roles: Sequence[Role], owner: str = ""
    ) -> None:
        """Add a framework in its roles; it is dealt nothing until it connects.

        Frameworks of one `owner`, a principal's name, divide one share of each role that they are
        in. A framework without an owner has a share of its own.
        """
        self._members.add(framework_id, roles, owner)

    def set_owner(self, framework_id: FrameworkId, owner: str) -> None:
        """Change the owner of a framework; what it holds, wants and declined stays.

        O(roles of the framework x log n).
        """
        self._members.set_owner(framework_id, owner)

    def set_roles(self, framework_id: FrameworkId, roles: Sequence[Role]) -> None:
        """Put the framework in these roles, in this order; it connects again after this.

        Its holdings in a role that it left stay charged there. Its demand there is dropped.
        """
        for leaf in self._members.set_roles(framework_id, roles):
            self._demand.relist(leaf)
            self._members.drop_if_left(leaf)
        self._demand.distribute(framework_id)

    def remove_framework(self, framework_id: FrameworkId) -> None:
        """Remove a framework that holds nothing."""
        party = self._members.party(framework_id)
        if party == party_of(framework_id, ""):
            self.back_off.forget(party)
        self._members.remove(framework_id)

    def connect(self, framework_id: FrameworkId, connected: bool) -> None:
        """Start or stop dealing to the framework; a stop drops its filters."""
        for leaf in self._members.leaves(framework_id):
            leaf.is_connected = connected
            if not connected:
                self._agents.forget_filters(leaf)
            self._demand.relist(leaf)

    def set_demand(self, framework_id: FrameworkId, demands: Sequence[Demand]) -> None:
        """Replace the framework's demand; without any it is dealt whole remainders in all roles.

        Agents that it could not use before are visited again. O(agents).
        """
        if tuple(demands) != self._members.demands(framework_id):
            self._members.declared[framework_id] = tuple(demands)
            self._demand.distribute(framework_id)

    def suppress(self, framework_id: FrameworkId, roles: Sequence[Role] = ()) -> None:
        """Deal the framework nothing, in these roles or in all, until it revives."""
        for leaf in self._members.subscribed(framework_id, roles):
            leaf.is_suppressed = True
            self._demand.renew(leaf)

    def revive(self, framework_id: FrameworkId, roles: Sequence[Role] = ()) -> None:
        """Drop the framework's filters and visit every agent for it. O(agents)."""
        for leaf in self._members.subscribed(framework_id, roles):
            leaf.is_suppressed = False
            self._agents.forget_filters(leaf)
            self._demand.renew(leaf)
            if leaf.is_listed:
                self._agents.mark_all_dirty(leaf)

    # Submitted tasks.

    def queue(
        self,
        framework_id: FrameworkId,
        role: Role,
        shape: Shape,
        number: int,
        *,
        at_begin: bool = False,
    ) -> None:
        """Add `number` submitted tasks of one shape; a negative number withdraws as many.

        With `at_begin`, a new shape comes before the others. O(log n), and O(agents) for the first
        task of a shape.
        """
        leaf = self._members.leaf(framework_id, role)
        self._demand.count_queued(leaf, shape, number, at_begin=at_begin)

    def launched(self, grant: Grant) -> None:
        """Count down submitted tasks that were launched on a grant; they are charged before."""
        assert grant.shape is not None
        leaf = self._members.leaf(grant.framework_id, grant.role)
        number = sum(number for _, number in grant.units)
        leaf.queued[grant.shape].outstanding -= number
        self._demand.count_queued(leaf, grant.shape, -number)
        self.answers.used(grant.framework_id, grant.agent_id)

    def withdraw_gang(self, grant: Grant) -> None:
        """Free what a gang was dealt whose members cannot be launched; it is withdrawn as well."""
        assert grant.shape is not None
        leaf = self._members.leaf(grant.framework_id, grant.role)
        for agent_id, amount in grant.places:
            self._agents.agents[agent_id].count_tasks(grant.framework_id, -1)
            self._agents.give_back(agent_id, amount)
        self._tree.withdraw(leaf, grant.resources.scalars)
        self._tree.count_slots(leaf, -len(grant.places))
        self._waiters.update_surplus(leaf, has_released=True)
        leaf.queued[grant.shape].outstanding -= 1
        self._demand.count_queued(leaf, grant.shape, -1)

    @property
    def has_waiting_gangs(self) -> bool:
        """Whether any gang is queued."""
        return bool(self._state.gatherings.waiting)

    def gather(self, now: float) -> None:
        """Begin and end the gathering of room for gangs that wait; see `gatherer`."""
        self._gatherer.look(now)

    # Offers.

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

        Tasks are charged by `charges.launch` before. O(log n + agents if others may fit now).

        Args:
            framework_id: the framework that had the offers.
            role: its role in which they were made.
            agent_id: the agent, or the place of a hold.
            units: the units of their grants together.
            launched: the resources of each task that was launched on them.
            unused: the rest, which no task uses.
            refused_until: end of a filter of `unused` on the agent, which lasts at least to the
                end of the agent's round; None sets no filter.
            offers: how many offers ended.
        """
        leaf = self._members.leaf(framework_id, role)
        agent = self._agents.agents[agent_id]
        if unused and refused_until is not None and leaf.is_connected:
            agent.filters.add(leaf, unused, refused_until)
            self._agents.wake_at(agent_id, refused_until)
        if unused:
            self._agents.give_back(agent_id, unused)
            self._tree.withdraw(leaf, unused.scalars, agent.owner)
            self._waiters.update_surplus(leaf, has_released=True)
        slots = sum(number for _, number in units) if units else offers
        self._tree.count_slots(leaf, len(launched) - slots)
        if leaf.declared is not None:
            self._demand.count_down(leaf, units, launched, agent.facts)
        elif leaf.queued:
            # A whole remainder that was offered before is beyond what the queued tasks need.
            self._waiters.update_surplus(leaf)
        self._members.drop_if_left(leaf)

    # Passes.

    @property
    def passes(self) -> int:
        """The number of passes that began; an idle cluster makes none."""
        return self._passes.number

    @property
    def has_dirty_agents(self) -> bool:
        """Whether a pass would visit any agent."""
        return self._agents.is_dirty

    @property
    def dirty_agents(self) -> int:
        """The number of agents that wait for a visit."""
        return self._agents.dirty_count

    def next_wakeup(self) -> float | None:
        """Return when a filter or an earmark ends next and makes an agent dirty; None if never."""
        return self._agents.next_wakeup()

    def wake(self, now: float) -> None:
        """Mark the agents dirty whose filters or earmarks ended by `now`."""
        self._agents.wake(now)

    def run(self, now: float, budget: int = 2000) -> list[Grant]:
        """Deal dirty agents until none is left, or about `budget` frameworks were checked.

        The rest waits for the next call; see `has_dirty_agents`. O(checks x log n).
        """
        return self._passes.run(now, budget)

    def _forget_constraints(self, agent_id: AgentId) -> None:
        for leaf in self._tree.leaves.values():
            for pending in leaf.pending or ():
                pending.unmet.pop(agent_id, None)
                pending.misses.pop(agent_id, None)
