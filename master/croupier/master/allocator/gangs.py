"""Placement of gangs: all members are placed in one decision, or none is.

Members are placed first fit decreasing: agents are filled one after the other, each with the
largest members that still fit. The order of agents is that of the pool, with the visited one first;
a packed gang takes those with the most room first.

If not all fit so, they are placed anew, unit by unit: the one that fits the fewest agents first. So
an agent that alone has ports is not filled with members that need none.

An agent gives a gang only what the policy would deal to its framework there now. So an agent that
waits for its visit gives nothing if another framework comes first there. What is reserved or
earmarked for another framework, or held, is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING

from croupier.master.allocator.back_off import Party
from croupier.master.allocator.dealt import Fit
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.grant import GangPlace
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.model.gang import HOST
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

if TYPE_CHECKING:
    from croupier.master.allocator.node import Leaf
    from croupier.master.allocator.pending_demand import PendingDemand
    from croupier.master.allocator.state import AllocatorState

# Agents that are passed over at the cost of one deal. To check one costs as much.
SKIPPED_PER_WORK = 100


class Members:
    """The members of a gang, as they are placed one after the other.

    Attributes:
        places: of each that is placed, by rank.
        left: how many are not.
    """

    def __init__(self, leaf: Leaf, pending: PendingDemand) -> None:
        gang, shape = pending.gang, pending.shape
        assert gang is not None
        assert shape is not None
        self._pending, self._framework_id = pending, leaf.framework_id
        self._spread, self._bound = gang.placement.spread, shape.placement.max_per_agent
        members = gang.members
        self._waiting = {piece: list[int]() for piece in gang.units}
        for rank in reversed(range(len(members))):
            self._waiting[members[rank]].append(rank)
        self.places: list[GangPlace | None] = [None] * len(members)
        self.left = len(members)
        self._number_on: dict[AgentId, int] = {}
        self._taken = set[str | None]([None])

    def are_barred(self, agent: PooledAgent) -> bool:
        """Return whether the agent is not as far from members that are placed as it has to be."""
        return bool(self._spread) and value_of(agent, self._spread) in self._taken

    def place(self, piece: Resources, agent: PooledAgent, room: Resources) -> Resources:
        """Place as many members of this unit as may run in `room`; return what is left of it."""
        ranks, needs = self._waiting[piece], self._pending.needs_of(piece)
        number, most = self._number_on.get(agent.agent_id, 0), len(ranks)
        if self._spread:
            most = min(most, 0 if self.are_barred(agent) else 1)
        if self._bound is not None:
            used = agent.tasks.get(self._framework_id, 0) + number
            most = min(most, max(0, self._bound - used))
        placed = agent.units_within(piece, needs, room, most)
        for _ in range(placed):
            amount, _ = agent.carve(piece, needs, room, 1)
            room = room - amount
            self.places[ranks.pop()] = GangPlace(agent.agent_id, amount)
        if placed:
            self.left -= placed
            self._number_on[agent.agent_id] = number + placed
            if self._spread:
                self._taken.add(value_of(agent, self._spread))
        return room

    def place_fewest_first(
        self, pieces: Iterable[Resources], rooms: dict[PooledAgent, Resources]
    ) -> None:
        """Place units that fit fewer agents before others; ties in the order of `pieces`.

        `rooms`: the room of each agent, which is reduced.
        """
        fitting: dict[Resources, list[PooledAgent]] = {}
        for piece in pieces:
            needs = self._pending.needs_of(piece)
            fitting[piece] = [
                agent for agent, room in rooms.items() if agent.units_within(piece, needs, room, 1)
            ]
        for piece, agents in sorted(fitting.items(), key=lambda item: len(item[1])):
            for agent in agents:
                rooms[agent] = self.place(piece, agent, rooms[agent])


class GangSearch:
    """Looks for agents for gangs, from the visit of one agent or to answer a question."""

    def __init__(
        self,
        state: AllocatorState,
        now: float,
        backing_off: Mapping[Party, float],
        visited: tuple[PooledAgent, Eligibility] | None = None,
    ) -> None:
        """Look in all agents; of the `visited` one, only what its visit has left."""
        self._state, self._now, self._backing_off = state, now, backing_off
        self._visited = visited
        # Whether an agent was passed over for something else than its room.
        self._may_change = False
        self._reserved: dict[AgentId, Leaf] = {}
        self.work = 0

    def find(self, leaf: Leaf, pending: PendingDemand) -> tuple[GangPlace, ...]:
        """Return an agent with resources for each member, by rank; empty if not all fit now.

        A gang that does not fit is tried again once an agent has more room, but not before its
        pause is over; see `Gatherings.missed`. O(agents).
        """
        growth, gatherings = self._state.agents.growth, self._state.gatherings
        if pending.missed_at == growth:
            return ()
        may_search = self._visited is None or self._is_gathered(pending)
        if not (may_search or gatherings.may_search(leaf, pending, self._now)):
            return ()
        # What others are offered in this visit may be taken back, for their filters.
        self._may_change = self._visited is not None and bool(self._visited[0].filters)
        places = self.best(leaf, pending)
        if all(places):
            return tuple(each for each in places if each is not None)
        if not self._may_change:
            pending.missed_at = growth
        gatherings.missed(pending, self.work, self._now)
        return ()

    def _is_gathered(self, pending: PendingDemand) -> bool:
        """Return whether room of the visited agent is gathered for a gang."""
        reservations = () if self._visited is None else self._visited[0].reservations
        name = pending.gathers
        return bool(name) and any(each.gathers == name for each in reservations)

    def best(self, leaf: Leaf, pending: PendingDemand) -> list[GangPlace | None]:
        """Return the places of as many members as can be placed together, by rank. O(agents)."""
        self._reserved = self._reserved_for_others(leaf)
        best: list[GangPlace | None] = []
        for agents in self._candidates(pending):
            places = self._fill(leaf, pending, agents)
            if not best or sum(map(bool, places)) > sum(map(bool, best)):
                best = places
            if all(best):
                break
        return best

    def _candidates(self, pending: PendingDemand) -> Iterator[Iterable[PooledAgent]]:
        """Yield sets of agents on which the gang may be together, each in its order."""
        gang = pending.gang
        assert gang is not None
        agents: Iterable[PooledAgent] = self._agents(pending)
        if gang.placement.pack:
            agents = self._emptiest(pending, agents)
        if not gang.placement.same:
            yield agents
            return
        alike: dict[str, list[PooledAgent]] = {}
        for agent in agents:
            name = value_of(agent, gang.placement.same)
            if name is not None:
                alike.setdefault(name, []).append(agent)
        yield from alike.values() if alike else [[]]

    def _emptiest(
        self, pending: PendingDemand, agents: Iterable[PooledAgent]
    ) -> Iterator[PooledAgent]:
        """Yield agents by what is free of the resource of which the gang needs most."""
        shares = self._state.totals.shares(pending.demand.unit.scalars)
        name = max(shares, key=lambda each: shares[each], default="")
        listed = list(agents)
        most = 2 * len(pending.gang.members) if pending.gang is not None else 0
        # Mostly these are enough, and the others need not be sorted.
        first = nlargest(most, listed, key=lambda each: each.free[name])
        yield from first
        taken = {each.agent_id for each in first}
        rest = [each for each in listed if each.agent_id not in taken]
        yield from sorted(rest, key=lambda each: -each.free[name])

    def _agents(self, pending: PendingDemand) -> Iterator[PooledAgent]:
        """Yield the visited agent, and then all others that may have room for a member."""
        misses, visited = pending.misses, None if self._visited is None else self._visited[0]
        if visited is not None:
            yield visited
        skipped = 0
        for agent in self._state.agents.open_agents():
            if misses.get(agent.agent_id) is agent.free or agent is visited:
                skipped += 1
            elif agent.owner is None:
                yield agent
        self.work += skipped // SKIPPED_PER_WORK

    def _fill(
        self, leaf: Leaf, pending: PendingDemand, agents: Iterable[PooledAgent]
    ) -> list[GangPlace | None]:
        """Return the places of the most members that either order of placing them finds."""
        pieces, first = self._decreasing(pending.pieces), Members(leaf, pending)
        rooms: dict[PooledAgent, Resources] = {}
        barred: list[PooledAgent] = []
        for agent in agents:
            if first.are_barred(agent):
                barred.append(agent)
                continue
            self.work += 1
            room = self._room(leaf, pending, agent)
            if room is None:
                continue
            rooms[agent] = room
            for piece in pieces:
                room = first.place(piece, agent, room)
            if not first.left:
                break
        # On one agent, or with one unit, the order is the same.
        if not first.left or len(pieces) == 1 or len(rooms) + len(barred) < 2:
            return first.places
        second = Members(leaf, pending)
        for agent in barred:
            room = None if second.are_barred(agent) else self._room(leaf, pending, agent)
            if room is not None:
                rooms[agent] = room
        self.work += len(rooms)
        second.place_fewest_first(pieces, rooms)
        return second.places if second.left < first.left else first.places

    def _room(self, leaf: Leaf, pending: PendingDemand, agent: PooledAgent) -> Resources | None:
        """Return what the policy would deal of an agent to the leaf for members; None if nothing.

        An agent without room for any member is passed over from now on, until that changes.
        """
        is_visited = self._visited is not None and agent is self._visited[0]
        if self._visited is not None and is_visited:
            eligibility = self._visited[1]
        else:
            eligibility = Eligibility(agent, self._state, self._now, self._backing_off)
            eligibility.is_asked = True
        room = eligibility.room_for_members(leaf, pending)
        if room is None:
            is_whole = agent.earmark is None and not agent.reservations
            if self._visited is None:
                # A question changes nothing: what is remembered decides when a visit ends.
                return None
            if is_whole and not is_visited:
                pending.misses[agent.agent_id] = agent.free
            else:
                self._may_change = True
            return None
        is_kept = eligibility.keeps_scarce(pending) or agent.agent_id in self._reserved
        if is_kept or not (is_visited or self._is_next(leaf, agent, eligibility)):
            self._may_change = True
            return None
        return room

    def _is_next(self, leaf: Leaf, agent: PooledAgent, eligibility: Eligibility) -> bool:
        """Return whether no other framework comes first at an agent that waits for a visit."""
        tree = self._state.tree
        if tree.root.willing == leaf.willing or not self._state.agents.has_changed(agent):
            return True

        def could_take(other: Leaf) -> bool:
            is_last = other.party in self._backing_off
            if other is leaf or (is_last and not other.queued):
                return other is leaf
            return isinstance(eligibility.check(other, only_queued=is_last), Fit)

        profile = self._state.profiles.of(agent)
        return tree.neediest(could_take, profile if profile.misfits else None) in (leaf, None)

    def _reserved_for_others(self, leaf: Leaf) -> dict[AgentId, Leaf]:
        if not self._state.rules.hold_s:
            return {}
        return {
            agent_id: other
            for other in self._state.tree.leaves.values()
            if other is not leaf and len(other.reservations)
            for agent_id in other.reservations
            if other.reservations.has(agent_id, self._now)
        }

    def _decreasing(self, units: Iterable[Resources]) -> list[Resources]:
        """Return units by the largest part of the cluster that they take, the largest first."""
        share = self._state.totals.share
        return sorted(units, key=lambda unit: -share(unit.scalars))


def value_of(agent: PooledAgent, attribute: str) -> str | None:
    """Return what an agent has of an attribute, or of `host`; None if it has none."""
    return agent.agent_id if attribute == HOST else agent.facts.get(attribute)
