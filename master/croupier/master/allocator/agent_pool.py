"""What every agent has free, and which agents must be looked at again.

An agent is settled when nobody can use what is free on it. Only a change unsettles it, so
a quiet cluster costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.master.allocator.filters import Filters
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.queue import make_queue
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


@dataclass(frozen=True, slots=True)
class Earmark:
    """Room of an agent that was made for one framework; nobody else is dealt it before `until`."""

    leaf: Leaf
    amount: Resources
    until: float

    def without(self, dealt: Resources) -> Earmark | None:
        """What is to be kept after so much was dealt to its framework; None if nothing is."""
        left = {n: max(m - dealt[n], 0) for n, m in self.amount.scalars.items()}
        amount = Resources(left)
        return Earmark(self.leaf, amount, self.until) if amount else None


class PooledAgent:
    """An agent as the allocator sees it.

    Attributes:
        facts: its attributes and hostname as text, for constraints.
        is_active: whether it may be dealt.
        filters: what was refused of it.
        earmark: room on it that is for one framework alone; set by `AgentPool.earmark`.
        is_dealt: whether it was dealt since a task was launched on it or something came free:
            then its round is not over.
        is_waited_for: whether somebody waits for that.
    """

    __slots__ = (
        "agent_id",
        "earmark",
        "facts",
        "filters",
        "free",
        "is_active",
        "is_dealt",
        "is_waited_for",
        "total",
    )

    def __init__(self, agent_id: AgentId, total: Resources, facts: Mapping[str, str]) -> None:
        """An agent with everything free."""
        self.agent_id = agent_id
        self.total = total
        self.free = total
        self.facts = facts
        self.is_active = True
        self.filters = Filters()
        self.earmark: Earmark | None = None
        self.is_dealt = False
        self.is_waited_for = False


class AgentPool:
    """All agents; those with something free that may be dealt are open.

    An agent is unsettled by a change of its own: then everybody may be able to use it. Or by
    a change of some frameworks: then every open agent is looked at for those alone.
    """

    def __init__(self, order: str = "arrival", seed: int = 0, scarce: frozenset[str] = frozenset()):
        """Have agents looked at in `order`; those with `scarce` resources after the others."""
        self.agents: dict[AgentId, PooledAgent] = {}
        self.earmarked: dict[AgentId, PooledAgent] = {}
        self._scarce = scarce
        # Of which somebody was not dealt what is scarce.
        self._withheld: dict[AgentId, PooledAgent] = {}
        self._open: dict[AgentId, PooledAgent] = {}
        self._queue = make_queue(order, seed, scarce)
        self._wakeups: Deadlines[AgentId] = Deadlines()
        self._changed: set[AgentId] = set()
        # Whom open agents are being looked at for, and who is to be added to that.
        self._swept: dict[Leaf, None] = {}
        self._fresh: dict[Leaf, None] = {}
        self._is_all_changed = False

    @property
    def is_dirty(self) -> bool:
        """Whether any agent may have to be looked at."""
        return self._is_all_changed or bool(self._fresh) or len(self._queue) > 0

    @property
    def dirty_count(self) -> int:
        """How many agents wait to be looked at; to ask changes nothing."""
        if self._is_all_changed or self._fresh:
            return max(len(self._open), len(self._queue))
        return len(self._queue)

    def line_up(self) -> bool:
        """Have every agent that must be looked at stand in the queue; whether there is any.

        O(agents) after `mark_all_dirty`.
        """
        if self._is_all_changed:
            self._is_all_changed = False
            self._fresh.clear()
            for agent in self._open.values():
                self.mark_dirty(agent)
        elif self._fresh:
            if not len(self._queue):
                self._swept = {}
            self._swept.update(self._fresh)
            self._fresh.clear()
            for agent in self._open.values():
                self._queue.put(agent.agent_id, agent.free)
        return len(self._queue) > 0

    def add(self, agent: PooledAgent) -> None:
        """Add an agent; it is unsettled."""
        assert agent.agent_id not in self.agents
        self.agents[agent.agent_id] = agent
        self.set_free(agent, agent.free)
        self.mark_dirty(agent)

    def remove(self, agent_id: AgentId) -> PooledAgent:
        """Take out an agent."""
        self._wakeups.cancel(agent_id)
        self._close(agent_id)
        self._withheld.pop(agent_id, None)
        self.earmarked.pop(agent_id, None)
        agent = self.agents.pop(agent_id)
        agent.filters.clear()
        return agent

    def activate(self, agent: PooledAgent, active: bool) -> None:
        """Have the agent dealt, or not."""
        agent.is_active = active
        self.set_free(agent, agent.free)
        self.mark_dirty(agent)

    def set_free(self, agent: PooledAgent, free: Resources) -> None:
        """So much is free on the agent."""
        agent.free = free
        if free and agent.is_active:
            self._open[agent.agent_id] = agent
        else:
            self._close(agent.agent_id)

    def give_back(self, agent_id: AgentId, amount: Resources) -> None:
        """Free so much more on the agent; it is dirty, and its round starts anew."""
        agent = self.agents[agent_id]
        agent.is_dealt = False
        self.set_free(agent, agent.free + amount)
        self.mark_dirty(agent)

    def _close(self, agent_id: AgentId) -> None:
        if self._open.pop(agent_id, None) is not None:
            self._queue.discard(agent_id)
            self._changed.discard(agent_id)

    def mark_dirty(self, agent: PooledAgent) -> None:
        """Have `agent` looked at in the next pass, if there is anything to deal."""
        if agent.agent_id in self._open:
            self._changed.add(agent.agent_id)
            self._queue.put(agent.agent_id, agent.free)

    def mark_all_dirty(self, leaf: Leaf | None = None) -> None:
        """Have every open agent looked at, for one framework that changed or for all. O(1)."""
        if leaf is None:
            self._is_all_changed = True
        else:
            self._fresh[leaf] = None

    def take_dirty(self) -> tuple[PooledAgent, Mapping[Leaf, None] | None] | None:
        """Take the agent that is first in order; None if there is none.

        With it comes whom to look at it for; None is everybody.
        """
        agent_id = self._queue.take() if self.line_up() else None
        if agent_id is None:
            return None
        if agent_id in self._changed:
            self._changed.discard(agent_id)
            return self.agents[agent_id], None
        return self.agents[agent_id], self._swept

    def mark_all_clean(self) -> None:
        """Nobody wants anything: no agent needs to be looked at."""
        self._is_all_changed = False
        self._fresh.clear()
        self._changed.clear()
        self._queue.clear()

    def forget_filters(self, leaf: Leaf) -> None:
        """Drop all filters of a framework. O(agents) if it has any."""
        if leaf.filters:
            for agent in self.agents.values():
                agent.filters.forget(leaf)

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
                if agent.earmark is not None:
                    is_over = agent.earmark.until <= now
                    self.earmark(agent, None if is_over else agent.earmark)
                self.mark_dirty(agent)

    def earmark(self, agent: PooledAgent, mark: Earmark | None) -> None:
        """Keep room of the agent for one framework, or no longer."""
        agent.earmark = mark
        if mark is None:
            self.earmarked.pop(agent.agent_id, None)
        else:
            self.earmarked[agent.agent_id] = agent
            self.wake_at(agent.agent_id, mark.until)

    def forget_earmarks(self, leaf: Leaf) -> None:
        """Give up the room that was kept for a framework. O(earmarks)."""
        for agent, _ in self.earmarks_of(leaf):
            self.earmark(agent, None)
            self.mark_dirty(agent)

    def withhold(self, agent: PooledAgent) -> None:
        """Note that somebody was not dealt what is scarce on the agent."""
        self._withheld[agent.agent_id] = agent

    def release_reservations(self, leaf: Leaf) -> None:
        """Have looked at again what was kept for a leaf that was dealt to, or wants it no more."""
        for agent_id in leaf.reservations:
            self.mark_dirty(self.agents[agent_id])
        if not leaf.is_listed:
            leaf.reservations.clear()
            for agent, _ in self.earmarks_of(leaf):
                self.mark_dirty(agent)
        self.recheck_scarce(leaf)

    def recheck_scarce(self, leaf: Leaf) -> None:
        """Have looked at again what was saved for those who ask, if the leaf may do so no more."""
        if not self._withheld:
            return
        asking = [
            want
            for want in leaf.pending or ()
            if any(want.demand.unit[name] for name in self._scarce)
        ]
        if asking and not (leaf.is_listed and all(want.left for want in asking)):
            self.mark_withheld_dirty()

    def mark_withheld_dirty(self) -> None:
        """Have looked at again what was saved for those who ask for it."""
        saved, self._withheld = self._withheld, {}
        for agent in saved.values():
            self.mark_dirty(agent)

    def earmarks(self) -> list[tuple[PooledAgent, Earmark]]:
        """Return every earmark, with its agent."""
        return [
            (agent, agent.earmark) for agent in self.earmarked.values() if agent.earmark is not None
        ]

    def earmarks_of(self, leaf: Leaf) -> list[tuple[PooledAgent, Earmark]]:
        """Return the earmarks for one framework. O(earmarks)."""
        return [(agent, mark) for agent, mark in self.earmarks() if mark.leaf is leaf]
