"""What a framework refused, and for how long it need not be asked again.

A filter matches while the refused amount contains what would be offered now, as in Mesos:
when more becomes free on the agent, the framework is asked again at once.
"""

from __future__ import annotations

from croupier.model.ids import AgentId
from croupier.model.resources import Resources


class Filters:
    """One framework's filters, by agent."""

    __slots__ = ("_by_agent",)

    def __init__(self) -> None:
        """Begin with none."""
        self._by_agent: dict[AgentId, list[tuple[float, Resources]]] = {}

    def __len__(self) -> int:
        return len(self._by_agent)

    def add(self, agent_id: AgentId, refused: Resources, until: float) -> None:
        """Refuse all that `refused` contains until `until`. Filters it makes needless go."""
        kept = [
            (their_until, theirs)
            for their_until, theirs in self._by_agent.get(agent_id, ())
            if not (their_until <= until and theirs <= refused)
        ]
        kept.append((until, refused))
        self._by_agent[agent_id] = kept

    def until(self, agent_id: AgentId, candidate: Resources, now: float) -> float | None:
        """Until when `candidate` is refused; None if it may be offered. Forgets what is over."""
        kept = self._by_agent.get(agent_id)
        if kept is None:
            return None
        live = [(until, refused) for until, refused in kept if until > now]
        if not live:
            del self._by_agent[agent_id]
            return None
        if len(live) < len(kept):
            self._by_agent[agent_id] = live
        return max((until for until, refused in live if candidate <= refused), default=None)

    def forget(self, agent_id: AgentId) -> None:
        """Drop the filters on an agent that is gone or has changed."""
        self._by_agent.pop(agent_id, None)

    def clear(self) -> None:
        """Drop all, as REVIVE does."""
        self._by_agent.clear()
