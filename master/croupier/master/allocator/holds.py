"""Holds: resources of an agent that are dealt to one framework, or to the frameworks of a role.

A hold is cut off its agent, and dealt like a small agent of its own. All of it counts as used, as
long as it is there: its owner is charged for the unused part, and a framework for what its offers
and tasks take from it. So a framework that uses its own hold is charged for it once. The owner of a
hold for a role is a leaf of `NO_FRAMEWORK` in that role.

A hold has a place: a name like that of an agent, and different from all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator import limits
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.node import DEFAULT, Leaf, RoleNode, add_amounts
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reservations import Owner
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import NO_FRAMEWORK, AgentId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import ancestors
from croupier.model.scalar import format_scalar


class Holds:
    """The holds of the agents in the pool, and charges for those of absent agents."""

    def __init__(self, state: AllocatorState, charges: Charges) -> None:
        self._state, self._charges = state, charges
        self._tree, self._agents = state.tree, state.agents
        self._members, self._waiters = state.members, state.waiters

    def make(
        self,
        place: AgentId,
        agent_id: AgentId,
        owner: Owner,
        amount: Resources,
        taker: Owner | None = None,
        *,
        is_kept: bool = False,
    ) -> None:
        """Cut a hold off an agent. O(log n + frameworks that may use it).

        Args:
            place: the name of the hold.
            agent_id: the agent.
            owner: the framework that it is for, or the role.
            amount: its resources.
            taker: the framework that they are offered to, in its role. All of the hold is then
                dealt to it until the offers are settled. None: they are taken from what is free.
            is_kept: whether the hold is never dealt.

        Raises ValueError if that much is not free on the agent.
        """
        agent, (leaf, role) = self._agents.agents[agent_id], self._charged(owner)
        hold = PooledAgent(
            place,
            amount,
            agent.facts,
            is_active=agent.is_active and not is_kept,
            is_kept=is_kept,
            tasks=agent.tasks,
            owner=leaf,
            held_role=role,
            cut_from=agent,
            inventory=agent.inventory,
        )
        if taker is None:
            self._agents.set_free(agent, agent.free - amount)
            self._tree.charge(leaf, amount.scalars, tasks=0)
        else:
            self._tree.launch(self._members.leaf(*taker), amount.scalars)
            hold.free = NOTHING
        self._resize(agent, agent.total - amount)
        agent.holds[place] = hold
        self._agents.add(hold)
        self._count(hold, 1)
        if is_kept:
            # Its owner has a reason now to launch tasks there.
            for user in _users(hold):
                agent.filters.forget(user)
            self._agents.mark_dirty(agent)
        if leaf.limited:
            self._waiters.update_surplus(leaf)
            self._agents.mark_withheld_dirty()

    def end(self, place: AgentId) -> None:
        """End a hold that is not offered; tasks in it are tasks of its agent from now on.

        Its unused part is free. O(frameworks that may use it).
        """
        hold = self._agents.remove(place)
        agent, owner = hold.cut_from, hold.owner
        assert agent is not None
        assert owner is not None
        self._state.profiles.release(hold)
        for leaf in _users(hold):
            leaf.reservations.forget(place)
            for pending in leaf.pending or ():
                pending.unmet.pop(place, None)
        del agent.holds[place]
        self._resize(agent, agent.total + hold.total)
        self._agents.give_back(agent.agent_id, hold.free)
        self._count(hold, -1)
        self._release(owner, hold.free.scalars)

    def shrink(self, place: AgentId, amount: Resources) -> None:
        """Give a part of what is unused of a hold back to its agent. O(log n).

        Raises ValueError if that much is not unused.
        """
        hold = self._agents.agents[place]
        agent, owner = hold.cut_from, hold.owner
        assert agent is not None
        assert owner is not None
        self._agents.set_free(hold, hold.free - amount)
        self.resize(place, amount)
        self._agents.give_back(agent.agent_id, amount)
        self._release(owner, amount.scalars)

    def resize(self, place: AgentId, amount: Resources) -> None:
        """Count a part of a hold with its agent. Tasks use it, and are charged for it as before."""
        hold = self._agents.agents[place]
        assert hold.cut_from is not None
        self._resize(hold, hold.total - amount)
        self._resize(hold.cut_from, hold.cut_from.total + amount)

    def excess(self, role: Role, amount: Resources) -> str:
        """Return in words the limit that a hold for a role would exceed; empty if none."""
        for each in (role, *ancestors(role)):
            settings = self._tree.settings.get(each, DEFAULT)
            node = self._tree.roles.get(each)
            for name, most in settings.limit.items():
                held = 0 if node is None else limits.counted(node, name)
                if amount[name] and held + amount[name] > most:
                    return (
                        f"role {each} holds {name}:{format_scalar(name, held)} of its limit of"
                        f" {format_scalar(name, most)}"
                    )
        return ""

    def charge_absent(self, owner: Owner, unused: Mapping[str, int]) -> None:
        """Charge the owner for the unused part of a hold of an absent agent. O(log n)."""
        add_amounts(self._charges.absent_held, unused, 1)
        self._tree.charge(self._charged(owner)[0], unused, tasks=0)

    def release_absent(self, owner: Owner, unused: Mapping[str, int]) -> None:
        """Release the unused part of a hold, which was charged while its agent was absent."""
        add_amounts(self._charges.absent_held, unused, -1)
        self._release(self._charged(owner)[0], unused)

    def _charged(self, owner: Owner) -> tuple[Leaf, RoleNode | None]:
        """Return the leaf that is charged for holds of an owner, and the role if it is one."""
        leaf = self._members.leaf_to_charge(*owner)
        return leaf, leaf.role_node if owner[0] == NO_FRAMEWORK else None

    def _count(self, hold: PooledAgent, change: int) -> None:
        """Count a hold for its owner, and for the role that it is for, if they are dealt it."""
        if hold.is_kept:
            return
        users = [node for node in (hold.owner, hold.held_role) if node is not None]
        for node in users:
            node.holds += change
        if change > 0 and users[-1].holds == 1:
            for leaf in _users(hold):
                # Limits do not block the use of a hold.
                self._tree.unpark(leaf)

    def _release(self, leaf: Leaf, unused: Mapping[str, int]) -> None:
        self._tree.charge(leaf, unused, -1, tasks=0)
        self._waiters.update_surplus(leaf, has_released=True)
        self._members.drop_if_left(leaf)

    def _resize(self, agent: PooledAgent, total: Resources) -> None:
        """Change the total of an agent: what it can never serve may be more or less now."""
        agent.total = total
        self._state.profiles.release(agent)


def _users(hold: PooledAgent) -> list[Leaf]:
    """Return the leaves that may use a hold."""
    below = [hold.owner] if hold.held_role is None else hold.held_role.nodes()
    return [node for node in below if isinstance(node, Leaf)]
