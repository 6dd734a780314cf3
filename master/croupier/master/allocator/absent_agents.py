"""Agents of the master's records that have not returned to this master.

Their capacity counts in the cluster's totals, and the resources of their tasks are charged to roles
and frameworks. So shares and limits stay as they were under the previous master. These agents are
not in the pool: nothing of them is dealt.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.node import Amounts, add_amounts
from croupier.master.allocator.share import Totals
from croupier.model.ids import AgentId


class AbsentAgents:
    """The capacity of each absent agent, and the part that its tasks hold."""

    def __init__(self, totals: Totals) -> None:
        """Start with none; `totals` are the cluster's."""
        self._totals = totals
        self._capacity: dict[AgentId, Amounts] = {}
        self._charged: dict[AgentId, Amounts] = {}

    def add(self, agent_id: AgentId, capacity: Mapping[str, int]) -> None:
        """Add an agent; `capacity` is empty if no record has it."""
        assert agent_id not in self._capacity
        self._capacity[agent_id] = dict(capacity)
        self._charged[agent_id] = {}
        self._totals.add(capacity)

    def remove(self, agent_id: AgentId) -> None:
        """Stop counting the agent's capacity; do nothing if it is not absent.

        Charges stay until each task is released, or charged to its agent on the agent's return.
        """
        self._totals.add(self._capacity.pop(agent_id, {}), -1)
        self._drop_if_empty(agent_id)

    def charge(self, agent_id: AgentId, scalars: Mapping[str, int]) -> None:
        """Charge a task's resources; the capacity grows to at least the sum of all charges."""
        charged, capacity = self._charged[agent_id], self._capacity[agent_id]
        add_amounts(charged, scalars, 1)
        missing = {
            name: milli - capacity.get(name, 0)
            for name, milli in charged.items()
            if milli > capacity.get(name, 0)
        }
        add_amounts(capacity, missing, 1)
        self._totals.add(missing)

    def release(self, agent_id: AgentId, scalars: Mapping[str, int]) -> None:
        """Release a task's resources; do nothing if all of them are without shares."""
        if not scalars:
            return
        add_amounts(self._charged[agent_id], scalars, -1)
        self._drop_if_empty(agent_id)

    def uncharged(self) -> Amounts:
        """Return the capacity that is not charged; it cannot be dealt."""
        left: Amounts = {}
        for capacity in self._capacity.values():
            add_amounts(left, capacity, 1)
        for charged in self._charged.values():
            add_amounts(left, charged, -1)
        return left

    def check(self) -> None:
        """Assert that no charge exceeds its agent's capacity."""
        assert self._charged.keys() == self._capacity.keys()
        for agent_id, charged in self._charged.items():
            capacity = self._capacity[agent_id]
            assert all(milli <= capacity.get(name, 0) for name, milli in charged.items()), agent_id

    def _drop_if_empty(self, agent_id: AgentId) -> None:
        if agent_id not in self._capacity and not self._charged.get(agent_id, True):
            del self._charged[agent_id]
