"""The free resources of every agent, and the agents that must be visited again.

An agent is clean when no framework can use its free resources. Only a change makes it dirty, so a
quiet cluster costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from croupier.master.allocator.kinds import Kind
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pooled_agent import Earmark, PooledAgent
from croupier.master.allocator.queue import ArrivalQueue, make_queue
from croupier.master.allocator.reservations import Reservation
from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId
from croupier.model.resources import Resources


class AgentPool:
    """All agents. An agent is open if it is active and has free resources.

    An agent's own change makes it dirty for every framework. A change of some frameworks makes
    every open agent dirty for those alone.

    Attributes:
        reserved: the reservations by agent, of absent agents too.
        swept_kinds: the kinds of those frameworks' demand.
        growth: a number that changes whenever more of an agent may be dealt than before.
    """

    def __init__(self, order: str = "arrival", seed: int = 0, scarce: frozenset[str] = frozenset()):
        """Visit agents in `order`; those with `scarce` resources after the others."""
        self.agents: dict[AgentId, PooledAgent] = {}
        self.reserved: dict[AgentId, tuple[Reservation, ...]] = {}
        self._earmarked: dict[AgentId, PooledAgent] = {}
        self._scarce = scarce
        # Agents withheld from a framework because they have a scarce resource.
        self._withheld: dict[AgentId, PooledAgent] = {}
        self._open: dict[AgentId, PooledAgent] = {}
        self._queue = make_queue(order, seed, scarce)
        # Holds come first, so that their owners use them before they take more.
        self._held_queue = ArrivalQueue(frozenset())
        self._wakeups: Deadlines[AgentId] = Deadlines()
        self._sweeps: Deadlines[Leaf] = Deadlines()
        self._changed: set[AgentId] = set()
        # The frameworks that open agents are visited for. `queue_dirty` adds the fresh ones.
        self._swept: dict[Leaf, None] = {}
        self.swept_kinds: set[Kind] = set()
        self.growth = 0
        self._fresh: dict[Leaf, None] = {}
        self._is_all_changed = False

    # Agents.

    def add(self, agent: PooledAgent) -> None:
        """Add an agent; it is dirty."""
        assert agent.agent_id not in self.agents
        self.agents[agent.agent_id] = agent
        self.set_free(agent, agent.free)
        self.mark_dirty(agent)
        if agent.agent_id in self.reserved:
            self.reserve(agent.agent_id, self.reserved[agent.agent_id])

    def remove(self, agent_id: AgentId) -> PooledAgent:
        """Remove and return an agent."""
        self._wakeups.cancel(agent_id)
        self._close(agent_id)
        self._withheld.pop(agent_id, None)
        self._earmarked.pop(agent_id, None)
        agent = self.agents.pop(agent_id)
        agent.filters.clear()
        return agent

    def activate(self, agent: PooledAgent, active: bool) -> None:
        """Start or stop dealing the agent."""
        agent.is_active = active
        self.set_free(agent, agent.free)
        self.mark_dirty(agent)

    def set_free(self, agent: PooledAgent, free: Resources) -> None:
        """Set the agent's free resources."""
        agent.free = free
        if free and agent.is_active:
            self._open[agent.agent_id] = agent
        else:
            self._close(agent.agent_id)

    def give_back(self, agent_id: AgentId, amount: Resources) -> None:
        """Free `amount` on the agent; it is dirty, and its round starts again."""
        agent = self.agents[agent_id]
        agent.is_dealt = False
        self.set_free(agent, agent.free + amount)
        self.mark_dirty(agent)

    def _close(self, agent_id: AgentId) -> None:
        if self._open.pop(agent_id, None) is not None:
            self._queue.discard(agent_id)
            self._held_queue.discard(agent_id)
            self._changed.discard(agent_id)

    # Dirty agents.

    @property
    def is_dirty(self) -> bool:
        """Whether any agent may have to be visited."""
        return self._is_all_changed or bool(self._fresh) or self._queued > 0

    @property
    def dirty_count(self) -> int:
        """The number of agents that wait for a visit."""
        if self._is_all_changed or self._fresh:
            return max(len(self._open), self._queued)
        return self._queued

    @property
    def _queued(self) -> int:
        return len(self._queue) + len(self._held_queue)

    def _enqueue(self, agent: PooledAgent) -> None:
        queue = self._queue if agent.owner is None else self._held_queue
        queue.put(agent.agent_id, agent.free)

    def mark_dirty(self, agent: PooledAgent) -> None:
        """Visit `agent` in the next pass, if it is open."""
        if agent.agent_id in self._open:
            self.growth += 1
            self._changed.add(agent.agent_id)
            self._enqueue(agent)

    def has_changed(self, agent: PooledAgent) -> bool:
        """Return whether the agent waits for a visit for all frameworks."""
        return self._is_all_changed or agent.agent_id in self._changed

    def open_agents(self) -> Iterable[PooledAgent]:
        """Return the open agents, and open holds."""
        return self._open.values()

    def take(self, agent_id: AgentId, amount: Resources) -> None:
        """Take `amount` of the agent's free resources; no visit is needed for that."""
        agent = self.agents[agent_id]
        self.set_free(agent, agent.free - amount)

    def mark_all_dirty(self, leaf: Leaf | None = None) -> None:
        """Visit every open agent, for one framework that changed or for all. O(1)."""
        if leaf is None:
            self._is_all_changed = True
        else:
            self._fresh[leaf] = None

    def mark_all_clean(self) -> None:
        """Visit no agent, since no framework wants anything."""
        self._is_all_changed = False
        self._fresh.clear()
        self._changed.clear()
        self._queue.clear()
        self._held_queue.clear()

    def queue_dirty(self) -> bool:
        """Queue every dirty agent; return whether there is any. O(agents) if all are dirty."""
        if self._is_all_changed:
            self._is_all_changed = False
            self._fresh.clear()
            for agent in self._open.values():
                self.mark_dirty(agent)
        elif self._fresh:
            if not self._queued:
                self._swept, self.swept_kinds = {}, set()
            self._swept.update(self._fresh)
            self.swept_kinds.update(leaf.kind for leaf in self._fresh)
            self._fresh.clear()
            for agent in self._open.values():
                self._enqueue(agent)
        return self._queued > 0

    def take_dirty(self) -> tuple[PooledAgent, Mapping[Leaf, None] | None] | None:
        """Take the first dirty agent and the leaves to visit it for; None for all leaves.

        Return None if no agent is dirty.
        """
        if self._is_all_changed or self._fresh:
            self.queue_dirty()
        agent_id = self._held_queue.take() or self._queue.take()
        if agent_id is None:
            return None
        if agent_id in self._changed:
            self._changed.discard(agent_id)
            return self.agents[agent_id], None
        return self.agents[agent_id], self._swept

    def end_sweep(self) -> None:
        """Visit only agents that changed: no swept framework wants more. O(dirty agents)."""
        self._queue.keep(self._changed)
        self._held_queue.keep(self._changed)

    # Filters and wake-ups.

    def forget_filters(self, leaf: Leaf) -> None:
        """Drop all filters of a framework. O(agents) if it has any."""
        if leaf.filters:
            for agent in self.agents.values():
                agent.filters.forget(leaf)

    def wake_at(self, agent_id: AgentId, at: float) -> None:
        """Mark the agent dirty at `at`, unless it wakes earlier. O(log n).

        Each agent has one wake-up: a visit that finds other filters sets the next.
        """
        self._wakeups.set_at_most(agent_id, at)

    def sweep_at(self, leaf: Leaf, at: float) -> None:
        """Visit every open agent for a framework at `at`, or before. O(log n)."""
        self._sweeps.set_at_most(leaf, at)

    def next_wakeup(self) -> float | None:
        """Return when the next agents wake; None if none will."""
        times = (self._wakeups.next(), self._sweeps.next())
        return min((at for at in times if at is not None), default=None)

    def wake(self, now: float) -> None:
        """Mark the agents dirty whose wake-ups are due; drop earmarks and reservations that ended.

        Reservations of absent agents that ended are dropped when their agents return.
        """
        for leaf in self._sweeps.due(now):
            self.mark_all_dirty(leaf)
        for agent_id in self._wakeups.due(now):
            agent = self.agents.get(agent_id)
            if agent is not None:
                if agent.reservations:
                    last = tuple(each for each in agent.reservations if each.until > now)
                    self.reserve(agent_id, last)
                if agent.earmark is not None:
                    self.earmark(agent, None if agent.earmark.until <= now else agent.earmark)
                self.mark_dirty(agent)

    # Earmarks, reservations and scarce resources.

    def earmark(self, agent: PooledAgent, mark: Earmark | None) -> None:
        """Set the agent's earmark; None drops it."""
        agent.earmark = mark
        if mark is None:
            self._earmarked.pop(agent.agent_id, None)
        else:
            self._earmarked[agent.agent_id] = agent
            self.wake_at(agent.agent_id, mark.until)

    def reserve(self, agent_id: AgentId, reservations: tuple[Reservation, ...]) -> None:
        """Set the reservations of an agent, which may be absent; it is dirty."""
        if reservations:
            self.reserved[agent_id] = reservations
        else:
            self.reserved.pop(agent_id, None)
        agent = self.agents.get(agent_id)
        if agent is not None:
            agent.reservations = reservations
            self.mark_dirty(agent)
            if reservations:
                self.wake_at(agent_id, min(each.until for each in reservations))

    def earmarks(self) -> list[tuple[PooledAgent, Earmark]]:
        """Return every earmark, with its agent."""
        found = self._earmarked.values()
        return [(agent, agent.earmark) for agent in found if agent.earmark is not None]

    def earmarks_of(self, leaf: Leaf) -> list[tuple[PooledAgent, Earmark]]:
        """Return the earmarks for one framework. O(earmarks)."""
        return [(agent, mark) for agent, mark in self.earmarks() if mark.leaf is leaf]

    def forget_earmarks(self, leaf: Leaf) -> None:
        """Drop the earmarks for a framework. O(earmarks)."""
        for agent, _ in self.earmarks_of(leaf):
            self.earmark(agent, None)
            self.mark_dirty(agent)

    def release_reservations(self, leaf: Leaf) -> None:
        """Mark dirty the agents reserved for a leaf that was dealt to, or wants nothing more."""
        for agent_id in leaf.reservations:
            self.mark_dirty(self.agents[agent_id])
        if not leaf.is_listed:
            leaf.reservations.clear()
            for agent, _ in self.earmarks_of(leaf):
                self.mark_dirty(agent)
        self.recheck_scarce(leaf)

    def withhold(self, agent: PooledAgent) -> None:
        """Note that the agent was withheld from a framework for its scarce resources."""
        self._withheld[agent.agent_id] = agent

    def recheck_scarce(self, leaf: Leaf) -> None:
        """Mark withheld agents dirty if the leaf may demand less of their scarce resources."""
        if not self._withheld:
            return
        asking = [
            pending
            for pending in leaf.pending or ()
            if any(pending.demand.unit[name] for name in self._scarce)
        ]
        if asking and not (leaf.is_listed and all(pending.left for pending in asking)):
            self.mark_withheld_dirty()

    def mark_withheld_dirty(self) -> None:
        """Visit the withheld agents again."""
        withheld, self._withheld = self._withheld, {}
        for agent in withheld.values():
            self.mark_dirty(agent)
