"""Gathering room for gangs: parts of agents are reserved for a gang that waits, for a bounded time.

On a busy cluster smaller units fill every gap, so a gang might wait for ever. Rules:

- Below each role at the top of the tree one gang gathers at a time: the first one in the order of
  the policy that has waited for `WAIT_S`, if no node above it exceeds its entitlement, nor would
  with the gang alone. So a role exceeds it by one gang at most, as it may by any other unit.
- It reserves only what nothing else has reserved. So all gangs that gather can get all of their
  room together, and none waits for another.
- It ends when the gang is placed or withdrawn, and after `GATHER_S` at the latest. Then that gang
  rests for as long, and others may gather.
- A gang for which there can be no room is looked at less often, the more so the more that costs.
- In the first half of its time, units that declare a time and end by then may use the room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from croupier.master.allocator.gangs import GangSearch
from croupier.master.allocator.node import Leaf, Node, add_amounts
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.starvation import ShareProjection, is_below
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

WAIT_S: Final = 30.0
GATHER_S: Final = 300.0
# Work of searches in vain after which a look begins no other; see `agent_allocation`.
WORK_IN_A_LOOK: Final = 10_000


class Gatherer:
    """Begins and ends gatherings."""

    def __init__(self, state: AllocatorState) -> None:
        self._state, self._gatherings = state, state.gatherings
        # Of the searches in vain of one look.
        self._work = 0

    def look(self, now: float) -> None:
        """End what is over, and begin what is due. O(leaves), and O(agents) for each new one."""
        state, gatherings = self._state, self._gatherings
        state.tree.refresh()
        self._work = 0
        for each in gatherings:
            if now >= each.until:
                gatherings.resting[each.pending] = now + GATHER_S
            if now >= each.until or not each.leaf.is_willing:
                gatherings.end(each.pending)
        for pending in [each for each, until in gatherings.resting.items() if until <= now]:
            del gatherings.resting[pending]
        projection = ShareProjection(state.tree)
        for leaf in list(state.tree.in_order()):
            name = f"a gang in {leaf.path[-1].name}"
            for pending in leaf.queued.values():
                if name not in gatherings and self._is_due(pending, now):
                    self._begin(name, leaf, pending, projection, now)

    def _is_due(self, pending: PendingDemand, now: float) -> bool:
        if pending.gang is None or not pending.left:
            return False
        waiting = self._gatherings.waiting
        since = waiting.get(pending)
        if since is None:
            since = waiting[pending] = now
        return now - since >= WAIT_S and pending not in self._gatherings.resting

    def _begin(
        self,
        name: str,
        leaf: Leaf,
        pending: PendingDemand,
        projection: ShareProjection,
        now: float,
    ) -> None:
        """Reserve room for a gang, if it is entitled to it and there can be so much."""
        scalars = pending.demand.unit.scalars
        if not all(_is_entitled(node, projection, scalars) for node in leaf.path):
            return
        if self._work >= WORK_IN_A_LOOK:
            return
        search = _TotalSearch(self._state, now, {})
        places = search.best(leaf, pending)
        amounts: dict[AgentId, dict[str, int]] = {}
        for place in places:
            if place is None:
                self._work += search.work
                pause_s = self._gatherings.pause_s(search.work)
                if pause_s:
                    self._gatherings.resting[pending] = now + pause_s
                return
            add_amounts(amounts.setdefault(place.agent_id, {}), place.resources.scalars, 1)
        reserved = {agent_id: Resources(amount) for agent_id, amount in amounts.items()}
        times = now + GATHER_S / 2, now + GATHER_S
        self._gatherings.begin(name, leaf, pending, reserved, times)


def _is_entitled(node: Node, projection: ShareProjection, scalars: Mapping[str, int]) -> bool:
    """Return whether the node does not exceed its entitlement, and would not with a gang alone."""
    found = (projection.satisfaction(node), projection.satisfaction_of(node, scalars))
    return not any(is_below((1, 1), each) for each in found)


class _TotalSearch(GangSearch):
    """Looks for agents that a gang would fit on if all tasks there had ended."""

    def _agents(self, pending: PendingDemand) -> Iterator[PooledAgent]:
        # On those with the most free, most of the room is there already.
        agents = (each for each in self._state.agents.agents.values() if each.owner is None)
        return self._emptiest(pending, (each for each in agents if each.is_active))

    def _room(self, leaf: Leaf, pending: PendingDemand, agent: PooledAgent) -> Resources | None:
        if any(not each.holds(agent.facts) for each in pending.demand.constraints):
            return None
        room, mark = agent.total, agent.earmark
        for each in agent.reservations:
            if each.until > self._now and not each.serves(leaf.framework_id, leaf.role):
                room = each.room(room)
        if mark is not None and mark.leaf is not leaf:
            room = room.beside(mark.amount)
        fits = any(
            agent.units_within(piece, pending.needs_of(piece), room, 1) for piece in pending.pieces
        )
        return room if fits else None
