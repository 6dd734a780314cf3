"""What every agent has free, and which agents must be looked at again.

An agent is settled when nobody can use what is free on it. Only a change unsettles it, so
a quiet cluster costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId
from croupier.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Useful:
    """The least that is worth offering: at least one of these amounts, in thousandths."""

    cpus: int = 10
    mem: int = 32_000

    def holds(self, free: Resources) -> bool:
        """Whether `free` is worth offering to a framework that declared no demand."""
        return free["cpus"] >= self.cpus or free["mem"] >= self.mem


class PooledAgent:
    """An agent as the allocator sees it.

    Attributes:
        facts: its attributes and hostname as text, for constraints.
        is_active: whether it may be dealt.
    """

    __slots__ = ("agent_id", "facts", "free", "is_active", "total")

    def __init__(self, agent_id: AgentId, total: Resources, facts: Mapping[str, str]) -> None:
        """An agent with everything free."""
        self.agent_id = agent_id
        self.total = total
        self.free = total
        self.facts = facts
        self.is_active = True


class Pool:
    """All agents; those with something free that may be dealt are open."""

    def __init__(self) -> None:
        """Begin with none."""
        self.agents: dict[AgentId, PooledAgent] = {}
        # Insertion-ordered: agents are dealt in the order in which they were unsettled.
        self._unsettled: dict[AgentId, None] = {}
        self._wakeups: Deadlines[AgentId] = Deadlines()

    @property
    def unsettled(self) -> int:
        """How many agents wait to be looked at."""
        return len(self._unsettled)

    def add(self, agent: PooledAgent) -> None:
        """Add an agent; it is unsettled."""
        assert agent.agent_id not in self.agents
        self.agents[agent.agent_id] = agent
        self.unsettle(agent)

    def remove(self, agent_id: AgentId) -> PooledAgent:
        """Take out an agent."""
        self._unsettled.pop(agent_id, None)
        self._wakeups.cancel(agent_id)
        return self.agents.pop(agent_id)

    def unsettle(self, agent: PooledAgent) -> None:
        """Have `agent` looked at in the next pass, if there is anything to deal. O(1)."""
        if agent.is_active and agent.free:
            self._unsettled[agent.agent_id] = None

    def unsettle_all(self) -> None:
        """Have every agent looked at: somebody new may be able to use it. O(agents)."""
        for agent in self.agents.values():
            self.unsettle(agent)

    def next_unsettled(self) -> PooledAgent | None:
        """Take the agent that has waited longest; None if there is none."""
        for agent_id in self._unsettled:
            del self._unsettled[agent_id]
            return self.agents[agent_id]
        return None

    def settle_all(self) -> None:
        """Nobody wants anything: no agent needs to be looked at."""
        self._unsettled.clear()

    def wake_at(self, agent_id: AgentId, at: float) -> None:
        """Unsettle the agent at `at`, when a filter on it runs out, if not earlier. O(log n).

        One time is kept for each agent: a visit that finds other filters sets the next.
        """
        self._wakeups.set_at_most(agent_id, at)

    def next_wakeup(self) -> float | None:
        """When the next agent wakes; None if none will."""
        return self._wakeups.next()

    def wake(self, now: float) -> None:
        """Unsettle the agents whose time has come."""
        for agent_id in self._wakeups.due(now):
            agent = self.agents.get(agent_id)
            if agent is not None:
                self.unsettle(agent)
