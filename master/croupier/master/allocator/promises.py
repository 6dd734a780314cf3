"""Promises: whether the policy would deal the next unit of an agent to a certain framework.

Rule: nothing is dealt or remembered here. When in doubt the answer is no.
"""

from __future__ import annotations

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import PooledAgent
from croupier.master.allocator.eligibility import Eligibility, Fit
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId, FrameworkId, Role


class Promises:
    """Answers who would be dealt what a task holds, if the task ended now."""

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
        if not (agent.is_active and leaf.is_connected and leaf.is_member) or agent.earmark:
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
            is_last = leaf.party in last
            if is_last and not leaf.queued:
                return False
            found = eligibility.check(leaf, only_queued=is_last)
            # One that waits for more than a unit may be due a reservation.
            return isinstance(found, Fit) or bool(eligibility.starved)

        profile = self._state.profiles.of(agent)
        return tree.neediest(could_take, profile if profile.misfits else None) in (own, None)
