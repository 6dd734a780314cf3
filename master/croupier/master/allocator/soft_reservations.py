"""Agents that are reserved for a framework whose unit does not fit yet; see `agent_allocation`.

An agent is reserved for a bounded time, and then not again for as long. One framework reserves at
most 1 agent, plus 1 in 8 of all agents. So do all frameworks of a principal in a role together.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from croupier.model.ids import AgentId


class Reserved:
    """Agents that are reserved for one framework, or for those of a principal in a role together.

    Attributes:
        until: when each reservation ends, by framework and agent.
        resting: until when each agent may not be reserved again.
    """

    __slots__ = ("resting", "until")

    def __init__(self) -> None:
        # Both are ordered by time, as all reservations last equally long. Only frameworks that
        # change their owner break the order.
        self.until: dict[tuple[SoftReservations, AgentId], float] = {}
        self.resting: dict[AgentId, float] = {}

    def drop_ended(self, now: float, hold_s: float) -> None:
        """Drop the reservations that ended; their agents rest for `hold_s`. O(those)."""
        while self.until:
            key = next(iter(self.until))
            if self.until[key] > now:
                break
            self.resting[key[1]] = self.until.pop(key) + hold_s
        while self.resting:
            agent_id = next(iter(self.resting))
            if self.resting[agent_id] > now:
                break
            del self.resting[agent_id]


class SoftReservations:
    """The agents that are reserved for one framework."""

    __slots__ = ("_own", "_promised", "_shared")

    def __init__(self) -> None:
        self._own = Reserved()
        # When the unit fits on each agent at the latest; with the end of that reservation.
        self._promised: dict[AgentId, tuple[float, float]] = {}
        self._shared: Reserved | None = None

    def __iter__(self) -> Iterator[AgentId]:
        return (agent_id for _, agent_id in self._own.until)

    def __len__(self) -> int:
        return len(self._own.until)

    def share(self, shared: Reserved | None) -> None:
        """Count these with the others of the principal; with None, for themselves."""
        for key, until in self._own.until.items():
            if self._shared is not None:
                self._shared.until.pop(key, None)
            if shared is not None:
                shared.until.setdefault(key, until)
        self._shared = shared

    def may_add(self, agent_id: AgentId, agents: int, now: float, hold_s: float) -> bool:
        """Return whether the agent is or may be reserved; `agents` is the number of all agents."""
        held = (self._own,) if self._shared is None else (self._own, self._shared)
        for each in held:
            each.drop_ended(now, hold_s)
        if (self, agent_id) in self._own.until:
            return True
        has_room = hold_s > 0 and self._count() < 1 + agents // 8
        return has_room and not any(agent_id in each.resting for each in held)

    def add(self, agent_id: AgentId, now: float, hold_s: float) -> float:
        """Reserve the agent, unless it is reserved; return when the reservation ends."""
        until = self._own.until.setdefault((self, agent_id), now + hold_s)
        if self._shared is not None:
            self._shared.until.setdefault((self, agent_id), until)
        return until

    def has(self, agent_id: AgentId, now: float) -> bool:
        """Return whether the agent is reserved now."""
        return self._own.until.get((self, agent_id), now) > now

    def promised(self, agent_id: AgentId) -> float:
        """Return when the unit fits on a reserved agent at the latest; inf if none was noted."""
        end, at = self._promised.get(agent_id, (inf, inf))
        return at if end == self._own.until.get((self, agent_id)) else inf

    def promise(self, agent_id: AgentId, at: float) -> None:
        """Note when the unit fits on a reserved agent at the latest; see `backfill`."""
        self._promised[agent_id] = self._own.until[self, agent_id], at

    def count_without(self, agent_id: AgentId) -> int:
        """Return how many other agents are reserved, for the principal if there is one."""
        return self._count() - ((self, agent_id) in self._own.until)

    def discard(self, agent_id: AgentId) -> None:
        """End the reservation of the agent."""
        self._own.until.pop((self, agent_id), None)
        if self._promised:
            self._promised.pop(agent_id, None)
        if self._shared is not None:
            self._shared.until.pop((self, agent_id), None)

    def forget(self, agent_id: AgentId) -> None:
        """Drop everything about an agent that was removed."""
        self.discard(agent_id)
        self._own.resting.pop(agent_id, None)

    def clear(self) -> None:
        """End all reservations."""
        for agent_id in list(self):
            self.discard(agent_id)

    def _count(self) -> int:
        return len((self._shared or self._own).until)
