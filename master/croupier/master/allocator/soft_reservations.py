"""Agents that are reserved for a framework whose unit does not fit yet; see `agent_allocation`.

An agent is reserved for a bounded time, and then not again for as long. One framework reserves at
most 1 agent, plus 1 in 8 of all agents. So do all frameworks of a principal in a role together.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.model.ids import AgentId


class SharedReservations:
    """The agents that are reserved for the frameworks of one principal in a role."""

    __slots__ = ("_resting", "_until")

    def __init__(self) -> None:
        # Both are ordered by time, but for frameworks that changed their owner.
        self._until: dict[tuple[SoftReservations, AgentId], float] = {}
        self._resting: dict[AgentId, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def is_resting(self, agent_id: AgentId) -> bool:
        """Return whether the agent was reserved before, and may not be reserved again yet."""
        return agent_id in self._resting

    def drop_ended(self, now: float, hold_s: float) -> None:
        """Drop the reservations that ended; their agents rest for `hold_s`. O(those)."""
        while self._until:
            key = next(iter(self._until))
            if self._until[key] > now:
                break
            self._resting[key[1]] = self._until.pop(key) + hold_s
        while self._resting:
            agent_id = next(iter(self._resting))
            if self._resting[agent_id] > now:
                break
            del self._resting[agent_id]

    def add(self, owner: SoftReservations, agent_id: AgentId, until: float) -> None:
        """Count a reservation."""
        self._until.setdefault((owner, agent_id), until)

    def discard(self, owner: SoftReservations, agent_id: AgentId) -> None:
        """Do not count a reservation any more."""
        self._until.pop((owner, agent_id), None)


class SoftReservations:
    """The agents that are reserved for one framework."""

    __slots__ = ("_resting", "_shared", "_until")

    def __init__(self) -> None:
        # Both are ordered by time, as all reservations last equally long.
        self._until: dict[AgentId, float] = {}
        self._resting: dict[AgentId, float] = {}
        self._shared: SharedReservations | None = None

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

    def share(self, shared: SharedReservations | None) -> None:
        """Count these with the others of the principal; with None, for themselves."""
        for agent_id, until in self._until.items():
            if self._shared is not None:
                self._shared.discard(self, agent_id)
            if shared is not None:
                shared.add(self, agent_id, until)
        self._shared = shared

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
        shared = self._shared
        if shared is not None:
            shared.drop_ended(now, hold_s)
        if agent_id in self._until:
            return True
        if shared is not None and shared.is_resting(agent_id):
            return False
        room = self._count() < 1 + agents // 8
        return hold_s > 0 and room and agent_id not in self._resting

    def add(self, agent_id: AgentId, now: float, hold_s: float) -> float:
        """Reserve the agent, unless it is reserved; return when the reservation ends."""
        until = self._until.setdefault(agent_id, now + hold_s)
        if self._shared is not None:
            self._shared.add(self, agent_id, until)
        return until

    def has(self, agent_id: AgentId, now: float) -> bool:
        """Return whether the agent is reserved now."""
        return self._until.get(agent_id, now) > now

    def count_without(self, agent_id: AgentId) -> int:
        """Return how many other agents are reserved, for the principal if there is one."""
        return self._count() - (agent_id in self._until)

    def discard(self, agent_id: AgentId) -> None:
        """End the reservation of the agent."""
        self._until.pop(agent_id, None)
        if self._shared is not None:
            self._shared.discard(self, agent_id)

    def forget(self, agent_id: AgentId) -> None:
        """Drop everything about an agent that was removed."""
        self.discard(agent_id)
        self._resting.pop(agent_id, None)

    def clear(self) -> None:
        """End all reservations."""
        for agent_id in list(self._until):
            self.discard(agent_id)

    def _count(self) -> int:
        return len(self._until) if self._shared is None else len(self._shared)
