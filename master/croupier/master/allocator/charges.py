"""What frameworks hold: charged, launched, released.

Offered and used resources are both charged to the framework that has them. What an agent gives
up is looked at again, and so is whoever waits for room under a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from croupier.master.allocator import limit_waiters, limits
from croupier.master.allocator.grant import Grant
from croupier.master.allocator.node import Amounts, Leaf, add_amounts
from croupier.master.allocator.queries import Account
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources, sum_of, total_of

# What a framework in one of its roles uses.
Charge = tuple[FrameworkId, Role, Resources]


class Charges(Account):
    """The books, and how they change as offers and tasks come and go."""

    def charge(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Charge what a framework is found to use, as when an agent returns with tasks.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        self.charge_all(agent_id, ((framework_id, role, amount),))

    def charge_all(self, agent_id: AgentId, charges: Iterable[Charge]) -> None:
        """Charge what is found on one agent. O(charges + leaves x log n).

        Raises:
            ValueError: if that much is not free on the agent.
        """
        by_leaf = _by_leaf(charges)
        agent = self.pool.agents[agent_id]
        held = sum_of(each for amounts in by_leaf.values() for each in amounts)
        self.pool.set_free(agent, agent.free - held)
        for place, amounts in by_leaf.items():
            self._charge(*place, total_of(amounts).scalars, len(amounts))

    def charge_absent(
        self, framework_id: FrameworkId, role: Role, held: Sequence[tuple[AgentId, Resources]]
    ) -> None:
        """Charge what each of a framework's tasks holds of its absent agent. O(tasks + log n)."""
        scalars: Amounts = {}
        for agent_id, amount in held:
            self.absent.charge(agent_id, amount.scalars)
            add_amounts(scalars, amount.scalars, 1)
        self._charge(framework_id, role, scalars, len(held))

    def charge_returned(self, agent_id: AgentId, amounts: Sequence[Resources]) -> None:
        """Let what tasks were charged while their agent was absent be held on it. O(tasks).

        Nothing changes for their roles and frameworks.

        Raises:
            ValueError: if that much is not free on the agent.
        """
        agent = self.pool.agents[agent_id]
        self.pool.set_free(agent, agent.free - sum_of(amounts))
        for amount in amounts:
            self.absent.release(agent_id, amount.scalars)

    def release_absent(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Free what a task was charged while its agent was absent. O(log n)."""
        self.absent.release(agent_id, amount.scalars)
        self._release(self._frameworks[framework_id][role], amount.scalars)

    def grant(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> Grant:
        """Grant what the caller chose, past demand, filters and the policy. O(log n).

        Raises:
            ValueError: if that much is not free on the agent.
        """
        leaf = self._frameworks[framework_id][role]
        agent = self.pool.agents[agent_id]
        self.pool.set_free(agent, agent.free - amount)
        number = self.tree.deal(leaf, amount.scalars)
        return Grant(framework_id, role, agent_id, amount, (), (number,))

    def launch(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """A task uses what was on offer. O(log n)."""
        leaf = self._frameworks[framework_id][role]
        agent = self.pool.agents[agent_id]
        self.tree.launch(leaf, amount.scalars)
        agent.is_dealt = False
        if agent.is_waited_for or any(
            want.demand.max_per_offer is not None for want in leaf.pending or ()
        ):
            # The round of the agent may be over; or the offer was smaller than the room.
            self.pool.mark_dirty(agent)

    def release(
        self, framework_id: FrameworkId, role: Role, agent_id: AgentId, amount: Resources
    ) -> None:
        """Free what a task used; the agent is looked at again. O(log n)."""
        self._free(agent_id, amount)
        self._release(self._frameworks[framework_id][role], amount.scalars)

    def release_all(self, agent_id: AgentId, charges: Iterable[Charge]) -> None:
        """Free what tasks of one agent used. O(charges + leaves x log n)."""
        by_leaf = _by_leaf(charges)
        if not by_leaf:
            return
        self._free(agent_id, sum_of(each for amounts in by_leaf.values() for each in amounts))
        for (framework_id, role), amounts in by_leaf.items():
            leaf = self._frameworks[framework_id][role]
            self._release(leaf, total_of(amounts).scalars, len(amounts))

    # Inside.

    def _charge(
        self, framework_id: FrameworkId, role: Role, scalars: Mapping[str, int], tasks: int = 1
    ) -> None:
        leaf = self._frameworks[framework_id].get(role)
        if leaf is None:
            leaf = self.tree.add(framework_id, role)
            leaf.is_member = False
            self._frameworks[framework_id][role] = leaf
        self.tree.charge(leaf, scalars, tasks=tasks)
        if leaf.limited:
            self.pool.mark_withheld_dirty()

    def _release(self, leaf: Leaf, scalars: Mapping[str, int], tasks: int = 1) -> None:
        self.tree.charge(leaf, scalars, -1, tasks)
        self._make_room(leaf)
        self._forget_if_left(leaf)

    def _bound(self, leaf: Leaf) -> None:
        """Bring in line what limits do not count."""
        if self.tree.set_surplus(leaf, limits.surplus_of(leaf) if leaf.limited else {}):
            self._admit(leaf)

    def _free(self, agent_id: AgentId, amount: Resources) -> None:
        agent = self.pool.agents[agent_id]
        agent.is_dealt = False
        self.pool.set_free(agent, agent.free + amount)
        self.pool.mark_dirty(agent)

    def _make_room(self, leaf: Leaf) -> None:
        """The leaf gave something back."""
        self._bound(leaf)
        self._admit(leaf)

    def _admit(self, leaf: Leaf) -> None:
        """Have agents looked at for those who waited for room under the leaf's limits."""
        for waiting in limit_waiters.admitted(leaf, self.tree):
            self.pool.mark_all_dirty(waiting)

    def _forget_if_left(self, leaf: Leaf) -> None:
        """Drop a leaf of a role that the framework left, once it holds nothing there.

        An offer or a task may be of nothing that has shares, such as ports.
        """
        if not leaf.is_member and not leaf.held and not leaf.slots:
            del self._frameworks[leaf.framework_id][leaf.role]
            self._drop(leaf)

    def _drop(self, leaf: Leaf) -> None:
        self.pool.forget_filters(leaf)
        self.pool.forget_earmarks(leaf)
        self.tree.remove(leaf)
        self.pool.release_reservations(leaf)


def _by_leaf(charges: Iterable[Charge]) -> dict[tuple[FrameworkId, Role], list[Resources]]:
    found: dict[tuple[FrameworkId, Role], list[Resources]] = {}
    for framework_id, role, amount in charges:
        found.setdefault((framework_id, role), []).append(amount)
    return found
