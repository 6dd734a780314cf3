"""Agents that are reserved for a framework whose unit does not fit yet; see `agent_allocation`.

An agent is reserved for a bounded time, and then not again for as long. One framework reserves at
most 1 agent, plus 1 in 8 of all agents.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.model.ids import AgentId


class SoftReservations:
    """The agents that are reserved for one framework."""

    __slots__ = ("_resting", "_until")

    def __init__(self) -> None:
        # Both are ordered by time, as all reservations last equally long.
        self._until: dict[AgentId, float] = {}
        self._resting: dict[AgentId, float] = {}

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

    def may_add(self, agent_id: AgentId, agents: int, now: float, hold_s: float) -> bool:
        """Return whether the agent is or may be reserved; `agents` is the number of all agents."""
        for reserved, until in list(self._until.items()):
            if until > now:
                break
            del self._until[reserved]
            self._resting[reserved] = until + hold_s
        for resting, until in list(self._resting.items()):
            if until > now:
                break
            del self._resting[resting]
        if agent_id in self._until:
            return True
        room = len(self._until) < 1 + agents // 8
        return hold_s > 0 and room and agent_id not in self._resting

    def add(self, agent_id: AgentId, now: float, hold_s: float) -> float:
        """Reserve the agent, unless it is reserved; return when the reservation ends."""
        return self._until.setdefault(agent_id, now + hold_s)

    def has(self, agent_id: AgentId, now: float) -> bool:
        """Return whether the agent is reserved now."""
        return self._until.get(agent_id, now) > now

    def count_without(self, agent_id: AgentId) -> int:
        """Return how many other agents are reserved."""
        return len(self._until) - (agent_id in self._until)

    def discard(self, agent_id: AgentId) -> None:
        """End the reservation of the agent."""
        self._until.pop(agent_id, None)

    def forget(self, agent_id: AgentId) -> None:
        """Drop everything about an agent that was removed."""
        self._until.pop(agent_id, None)
        self._resting.pop(agent_id, None)

    def clear(self) -> None:
        """End all reservations."""
        self._until.clear()
