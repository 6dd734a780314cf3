"""Gatherings: parts of agents that are reserved for a gang that waits; see `gatherer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.reservations import Reservation, Reservations
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

# A search in vain for the room of a gang pauses the next by this for each unit of its work, and
# that for the same gang by as much for each gang that waits: so searches take part of the time.
PAUSE_S: Final = 0.0005
# A search that costs less than this for each gang that waits pauses none.
CHEAP_WORK: Final = 50
MAX_PAUSE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Gathering:
    """The agents of which parts are reserved for one gang, until a time."""

    leaf: Leaf
    pending: PendingDemand
    agents: tuple[AgentId, ...]
    until: float


class Gatherings:
    """The gangs that gather room, by the names of their reservations.

    Attributes:
        waiting: the gangs that are queued, with the time since when they are known to wait.
        resting: the gangs that gathered in vain, and until when they may not gather again.
    """

    def __init__(self, agents: AgentPool) -> None:
        self._agents, self._reservations = agents, Reservations(agents)
        self.waiting: dict[PendingDemand, float | None] = {}
        self.resting: dict[PendingDemand, float] = {}
        self._by_name: dict[str, Gathering] = {}
        # From when on room may be searched again: for any gang, and for each.
        self._searched_again = -inf
        self._paused: dict[PendingDemand, float] = {}

    def __iter__(self) -> Iterator[Gathering]:
        return iter(list(self._by_name.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def of(self, pending: PendingDemand) -> Gathering | None:
        """Return the gathering of a gang; None if it gathers nothing."""
        return self._by_name.get(pending.gathers)

    def may_search(self, leaf: Leaf, pending: PendingDemand, now: float) -> bool:
        """Return whether room for a gang may be searched, unless it is gathered; see `missed`.

        If not, all agents are visited for it once it may.
        """
        until = max(self._searched_again, self._paused.get(pending, -inf))
        if until > now:
            self._agents.sweep_at(leaf, until)
        return until <= now

    def missed(self, pending: PendingDemand, work: int, now: float) -> None:
        """Note that a search for the room of a gang was in vain, and what it cost."""
        pause_s = self.pause_s(work)
        if pause_s:
            self._searched_again = now + min(work * PAUSE_S, MAX_PAUSE_S)
            self._paused[pending] = now + pause_s

    def pause_s(self, work: int) -> float:
        """Return for how long not to repeat a search in vain that cost so much."""
        whole = work * len(self.waiting)
        return min(whole * PAUSE_S, MAX_PAUSE_S) if whole > CHEAP_WORK else 0.0

    def queued(self, pending: PendingDemand) -> None:
        """Note that gangs of a shape wait."""
        self.waiting.setdefault(pending, None)

    def placed(self, pending: PendingDemand) -> None:
        """Note that a gang was placed; the next one of its shape waits from now on."""
        self.end(pending)
        self.waiting[pending] = None
        self._paused.pop(pending, None)

    def forget(self, pending: PendingDemand) -> None:
        """Forget gangs of a shape, of which none waits any more."""
        self.end(pending)
        self.waiting.pop(pending, None)
        self.resting.pop(pending, None)
        self._paused.pop(pending, None)

    def begin(
        self,
        name: str,
        leaf: Leaf,
        pending: PendingDemand,
        amounts: Mapping[AgentId, Resources],
        times: tuple[float, float],
    ) -> None:
        """Reserve amounts of agents for a gang.

        `times`: from when on nothing else may use them, and until when.
        """
        starts_at, until = times
        pending.gathers = name
        self._by_name[name] = Gathering(leaf, pending, tuple(amounts), until)
        owner = (leaf.framework_id, leaf.role)
        for agent_id, amount in amounts.items():
            reservation = Reservation(name, owner, starts_at, until, amount, name)
            self._reservations.add(agent_id, reservation)

    def end(self, pending: PendingDemand) -> None:
        """End the gathering of a gang, if it gathers."""
        gathering = self._by_name.pop(pending.gathers, None)
        for agent_id in () if gathering is None else gathering.agents:
            self._reservations.remove(agent_id, pending.gathers)
        pending.gathers = ""
