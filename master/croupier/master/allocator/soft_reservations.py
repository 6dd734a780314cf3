"""Agents that are kept for a framework whose unit does not fit yet; see `visit`.

An agent is kept for a bounded time, and then not again for as long: room that does not come
is not waited for. One framework has at most one agent in eight kept for it, or one if there
are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.model.ids import AgentId


class SoftReservations:
    """The agents that are kept for one framework."""

    __slots__ = ("_kept", "_resting")

    def __init__(self) -> None:
        """None is kept."""
        # Both in the order of their times, as all are kept for equally long.
        self._kept: dict[AgentId, float] = {}
        self._resting: dict[AgentId, float] = {}

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def may_keep(self, agent_id: AgentId, agents: int, now: float, hold_s: float) -> bool:
        """Whether the agent is kept, or may be from now on."""
        for kept, until in list(self._kept.items()):
            if until > now:
                break
            del self._kept[kept]
            self._resting[kept] = until + hold_s
        for rested, until in list(self._resting.items()):
            if until > now:
                break
            del self._resting[rested]
        if agent_id in self._kept:
            return True
        room = len(self._kept) < 1 + agents // 8
        return hold_s > 0 and room and agent_id not in self._resting

    def keep(self, agent_id: AgentId, now: float, hold_s: float) -> float:
        """Keep the agent; until when."""
        return self._kept.setdefault(agent_id, now + hold_s)

    def is_kept(self, agent_id: AgentId, now: float) -> bool:
        """Whether the agent is kept now."""
        return self._kept.get(agent_id, now) > now

    def besides(self, agent_id: AgentId) -> int:
        """How many other agents are kept."""
        return len(self._kept) - (agent_id in self._kept)

    def let_go(self, agent_id: AgentId) -> None:
        """Keep the agent no more."""
        self._kept.pop(agent_id, None)

    def forget(self, agent_id: AgentId) -> None:
        """The agent is gone."""
        self._kept.pop(agent_id, None)
        self._resting.pop(agent_id, None)

    def clear(self) -> None:
        """Keep none."""
        self._kept.clear()
