"""Passes over the dirty agents, in slices.

A sweep is the visits of agents for some frameworks only, most of which end before they begin. A
framework that changed is of no interest to an agent that can never serve it (see `profiles`), nor
to one without room for a unit. A sweep passes over such agents by the kinds of the frameworks'
demand.

A promise forecasts whether the policy would deal the next unit of an agent to a certain framework.
It deals nothing and reserves nothing. When in doubt the forecast is no.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator import limits
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.master.allocator.dealt import Fit
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.grant import Grant, merged
from croupier.master.allocator.node import Leaf, Turn
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId, FrameworkId, Role


class Passes:
    """Visits the dirty agents; `number` is how many passes began."""

    def __init__(self, state: AllocatorState) -> None:
        self._state = state
        self.number = 0
        self._in_pass = False

    def run(self, now: float, budget: int) -> list[Grant]:
        """Run a slice of a pass, or begin one; see `Allocator.run`."""
        state, agents = self._state, self._state.agents
        if not self._in_pass:
            if not state.tree.root.willing:
                agents.mark_all_clean()
            if not agents.queue_dirty():
                return []
            self.number += 1
        state.tree.refresh()
        last = state.back_off.active(now)
        grants: list[Grant] = []
        while budget > 0:
            found = agents.take_dirty()
            if found is None:
                break
            agent, leaves = found
            if leaves is not None:
                if not any(_may_take(state, leaf, now) for leaf in leaves):
                    # They were dealt all that they want by now, or no agent can help.
                    agents.end_sweep()
                    continue
                if _serves_none(state, agent, leaves):
                    budget -= 1
                    continue
            visit = AgentAllocation(agent, state, now, last)
            grants += visit.run(leaves)
            budget -= visit.checks + visit.work + 1
        self._in_pass = agents.is_dirty
        return grants if state.rules.order != "spread" else merged(grants, self._is_one_offer)

    def _is_one_offer(self, grant: Grant) -> bool:
        """Return whether one offer may have all units of the grant."""
        pending = self._state.members.leaf(grant.framework_id, grant.role).declared
        if grant.shape is not None:
            return True
        if pending is None:
            return False
        most = {each.demand.unit: each.demand.max_per_offer for each in pending}
        bounds = ((number, most.get(unit)) for unit, number in grant.units)
        return all(bound is None or number <= bound for number, bound in bounds)


def _may_take(state: AllocatorState, leaf: Leaf, now: float) -> bool:
    """Return whether a leaf of a sweep wants more than gangs for which there is no room now."""
    gatherings, growth = state.gatherings, state.agents.growth
    if not (leaf.is_listed and gatherings.waiting and leaf.pending):
        return leaf.is_listed
    return any(
        each.gang is None
        or each.gathers
        or (each.missed_at != growth and gatherings.may_search(leaf, each, now))
        for each in leaf.pending
    )


def _serves_none(state: AllocatorState, agent: PooledAgent, leaves: Mapping[Leaf, None]) -> bool:
    """Return whether the agent can serve none of the leaves of a sweep now."""
    if agent.owner is not None and not any(map(agent.serves, leaves)):
        return True
    profile, free = state.profiles.of(agent), agent.free
    misfits, usable = profile.misfits, profile.usable
    return all(
        kind in misfits
        or (kind in usable and agent.earmark is None and not kind.parts[0][0].units_within(free, 1))
        for kind in state.agents.swept_kinds
    )


class Promises:
    """Forecasts who would be dealt what a task holds, if the task ended now; reserves nothing."""

    def __init__(self, state: AllocatorState) -> None:
        self._state = state

    def would_deal(
        self, agent_id: AgentId, framework_id: FrameworkId, role: Role, shape: Shape, now: float
    ) -> bool:
        """Return whether the framework, which holds such a unit there, would be dealt it again.

        O(log n + frameworks that wait before it).
        """
        tree, agent = self._state.tree, self._state.agents.agents[agent_id]
        leaf = self._state.members.leaf(framework_id, role)
        if not (agent.is_active and leaf.is_connected and leaf.is_member):
            return False
        if leaf.role_node.turn is not Turn.USUAL:
            return False
        if agent.earmark or agent.reservations:
            return False
        scalars = shape.unit.scalars
        if any(leaf.used.get(name, 0) < milli for name, milli in scalars.items()):
            return False
        tree.refresh()
        tree.charge(leaf, scalars, -1)
        try:
            return limits.binding(leaf, scalars) is None and self._is_next(agent, leaf, shape, now)
        finally:
            tree.charge(leaf, scalars)

    def _is_next(self, agent: PooledAgent, own: Leaf, shape: Shape, now: float) -> bool:
        """Return whether no other framework comes before, if a unit of the shape were free."""
        tree, last = self._state.tree, self._state.back_off.active(now)
        if tree.root.willing == own.willing:
            return True
        # A change of the cluster may have made the resources scarce.
        if any(agent.free[name] and not shape.unit[name] for name in self._state.rules.scarce):
            return False
        eligibility = Eligibility(agent, self._state, now, last)
        eligibility.left = agent.free + shape.unit

        def could_take(leaf: Leaf) -> bool:
            if leaf is own:
                return True
            if leaf.role_node.turn is not Turn.USUAL:
                return False
            is_last = leaf.party in last
            if is_last and not leaf.queued:
                return False
            found = eligibility.check(leaf, only_queued=is_last)
            # One that waits for more than a unit may be due a reservation.
            return isinstance(found, Fit) or bool(eligibility.starved)

        profile = self._state.profiles.of(agent)
        return tree.neediest(could_take, profile if profile.misfits else None) in (own, None)
