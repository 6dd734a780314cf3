"""Queues of agents that wait for a visit, each agent once.

Orders: `arrival` is first come, first served, and the cheapest. `random` draws, so that no agent
is always first. `pack` takes the agent with the least free first, so that large tasks still fit
elsewhere. `spread` takes the agent with the most free first, and deals a unit at a time. Agents
with scarce resources come after all others in every order.
"""

from __future__ import annotations

import heapq
from collections.abc import Set as AbstractSet
from typing import Final

from croupier.master.allocator.prng import SplitMix64
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

ORDERS: Final = ("arrival", "random", "pack", "spread")


def make_queue(order: str, seed: int, scarce: frozenset[str]) -> ArrivalQueue | RankedQueue:
    """Return an empty queue in one of `ORDERS`; raises InvalidRequest for any other."""
    if order not in ORDERS:
        raise InvalidRequest(f"{order[:80]!r} is not an order of agents: {', '.join(ORDERS)}")
    return ArrivalQueue(scarce) if order == "arrival" else RankedQueue(order, seed, scarce)


class ArrivalQueue:
    """First in, first out. O(1)."""

    def __init__(self, scarce: frozenset[str]) -> None:
        self._scarce = scarce
        # Insertion-ordered.
        self._plain: dict[AgentId, None] = {}
        self._last: dict[AgentId, None] = {}

    def __len__(self) -> int:
        return len(self._plain) + len(self._last)

    def put(self, agent_id: AgentId, free: Resources) -> None:
        """Add an agent with its free resources; one that waits keeps its place."""
        if self._scarce.isdisjoint(free.scalars):
            self._last.pop(agent_id, None)
            self._plain[agent_id] = None
        else:
            self._plain.pop(agent_id, None)
            self._last[agent_id] = None

    def take(self) -> AgentId | None:
        """Remove and return the first agent; None if none waits."""
        for waiting in (self._plain, self._last):
            for agent_id in waiting:
                del waiting[agent_id]
                return agent_id
        return None

    def discard(self, agent_id: AgentId) -> None:
        """Remove an agent, if it waits."""
        self._plain.pop(agent_id, None)
        self._last.pop(agent_id, None)

    def keep(self, agents: AbstractSet[AgentId]) -> None:
        """Remove all other agents. O(n)."""
        self._plain = {each: None for each in self._plain if each in agents}
        self._last = {each: None for each in self._last if each in agents}

    def clear(self) -> None:
        """Remove all."""
        self._plain.clear()
        self._last.clear()


class RankedQueue:
    """Ordered by a random number or by the free resources. O(log n)."""

    def __init__(self, order: str, seed: int, scarce: frozenset[str]) -> None:
        self._order = order
        self._prng = SplitMix64(seed)
        self._scarce = scarce
        # The largest free amount of each resource on any agent so far.
        self._largest: dict[str, int] = {}
        self._is_stale = False
        self._heap: list[tuple[bool, float, int, AgentId]] = []
        self._live: dict[AgentId, tuple[int, Resources]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def put(self, agent_id: AgentId, free: Resources) -> None:
        """Add an agent with its free resources; one that waits is ranked again."""
        self._count += 1
        self._live[agent_id] = self._count, free
        if self._order == "random":
            heapq.heappush(self._heap, self._entry(agent_id, self._prng.draw()))
        else:
            self._note(free)
            heapq.heappush(self._heap, self._entry(agent_id, self._rank(free)))
        if len(self._heap) > 4 * len(self._live) + 64:
            self._heap = [each for each in self._heap if self._is_live(each)]
            heapq.heapify(self._heap)

    def take(self) -> AgentId | None:
        """Remove and return the first; None if none waits. O(n log n) after a larger agent came."""
        if self._is_stale:
            self._is_stale = False
            self._heap = [
                self._entry(each, self._rank(free)) for each, (_, free) in self._live.items()
            ]
            heapq.heapify(self._heap)
        while self._heap:
            entry = heapq.heappop(self._heap)
            if self._is_live(entry):
                del self._live[entry[3]]
                return entry[3]
        return None

    def discard(self, agent_id: AgentId) -> None:
        """Remove an agent, if it waits."""
        self._live.pop(agent_id, None)

    def keep(self, agents: AbstractSet[AgentId]) -> None:
        """Remove all other agents. O(n)."""
        self._live = {each: known for each, known in self._live.items() if each in agents}

    def clear(self) -> None:
        """Remove all."""
        self._live.clear()
        self._heap.clear()

    def _entry(self, agent_id: AgentId, rank: float) -> tuple[bool, float, int, AgentId]:
        number, free = self._live[agent_id]
        return not self._scarce.isdisjoint(free.scalars), rank, number, agent_id

    def _is_live(self, entry: tuple[bool, float, int, AgentId]) -> bool:
        known = self._live.get(entry[3])
        return known is not None and known[0] == entry[2]

    def _note(self, free: Resources) -> None:
        for name, milli in free.scalars.items():
            if milli > self._largest.get(name, 0):
                self._largest[name] = milli
                self._is_stale = True

    def _rank(self, free: Resources) -> float:
        size = sum(milli / self._largest[name] for name, milli in free.scalars.items())
        return size if self._order == "pack" else -size
