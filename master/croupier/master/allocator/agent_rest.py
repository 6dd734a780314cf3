"""The rest of one agent during a visit: the part of it that a framework may be dealt.

Constraints, filters, reservations, earmarks and scarce resources take agents or parts of them from
a framework. A visit caches the constraints that each shape fails, and the scarce resources that
other frameworks demand.

Filters and back-off answer the question what may be offered. They never hold back submitted tasks,
which are not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from croupier.master.allocator import limits, reasons
from croupier.master.allocator.back_off import Party
from croupier.master.allocator.backfill import End
from croupier.master.allocator.dealt import Dealt, Rejection
from croupier.master.allocator.grant import GangPlace
from croupier.master.allocator.kinds import counting
from croupier.master.allocator.node import Leaf, Taker
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reasons import Cause, Text
from croupier.master.allocator.reservations import Reservation
from croupier.master.allocator.state import AllocatorState
from croupier.model.attributes import Constraint
from croupier.model.resources import Resources

# Steps of matching patterns that are as much work as a deal.
STEPS_PER_WORK = 5_000

_SCARCE = "has {}, which is withheld for frameworks that demand it"


class AgentRest:
    """The rest of one agent, and what a visit finds about it.

    Attributes:
        left: the resources that are left; each deal reduces them.
        dealt: the resources that each framework was dealt of the agent.
        last_taker: the framework that was dealt to last; None if none was yet.
        starved: frameworks whose unit does not fit now, but would if the agent were empty.
        blocked: the leaves that a limit blocks. The value is True if some headroom is left, but
            less than the minimum offer.
        is_contended: whether a framework was rejected in favour of one that may still be dealt to.
        is_withheld: whether a framework was rejected for scarce resources of the agent.
        waits_for_round: whether a filter excludes a framework until the round is over.
        ahead: once parties that back off have their turn: the frameworks that starved until then,
            which come before them.
        is_asked: whether this only answers a question: reservations stay as they are.
        wake_at: when the next filter, earmark or reservation that was met ends; None without any.
        work: the work so far; see `agent_allocation.WORK_IN_A_VISIT`.
        places_gang: finds the places of a gang; None: no gang is dealt.
    """

    def __init__(
        self,
        agent: PooledAgent,
        state: AllocatorState,
        now: float,
        backing_off: Mapping[Party, float],
    ) -> None:
        """Check against all free resources; `backing_off`: as of `AgentAllocation`."""
        self._agent, self._tree, self._rules = agent, state.tree, state.rules
        self._agent_count, self._now = len(state.agents.agents), now
        self._backing_off, self._ends_of = backing_off, state.ends_of
        self._known_ends: tuple[End, ...] | None = None
        self._demanded: dict[str, bool] = {}
        self.left = agent.free
        self.dealt: dict[Leaf, Dealt] = {}
        self.last_taker: Taker | None = None
        self.starved: list[tuple[Leaf, Resources]] = []
        self.blocked: dict[Leaf, bool] = {}
        self.is_contended = self.is_withheld = self.waits_for_round = self.is_asked = False
        self.ahead: frozenset[Leaf] = frozenset()
        self.wake_at: float | None = None
        self.work = 0
        self.places_gang: Callable[[Leaf, PendingDemand], tuple[GangPlace, ...]] | None = None

    def refused(self, leaf: Leaf, candidate: Resources) -> Rejection | None:
        """Return the leaf's rejection by its own filter; None if no filter covers `candidate`."""
        until = self._agent.filters.until(leaf, candidate, self._now)
        if until is None:
            return None
        if until > self._now:
            self.wake_by(until)
        else:
            self.waits_for_round = True
        return Rejection(Cause.FILTERED, reasons.filtered(until - self._now))

    def unmet_for_good(self, leaf: Leaf) -> list[Constraint | None] | None:
        """Return the constraint that each shape of the leaf fails; None if its unit is too large.

        Return None in all if a unit could ever be dealt of this agent as it is.
        """
        found: list[Constraint | None] = []
        for pending in counting(leaf.pending or ()):
            unmet, total = self._unmet(pending), self._agent.total
            for piece in pending.pieces:
                needs = pending.needs_of(piece)
                if unmet is None and self._agent.units_within(piece, needs, total, 1):
                    return None
                found.append(unmet)
        return found

    def room_for_members(self, leaf: Leaf, pending: PendingDemand) -> Resources | None:
        """Return what members of a gang may take of the rest; None if none of them fits."""
        if self._unmet(pending) is not None:
            return None
        room = self._room_for(leaf, pending.demand.max_completion_ms, pending.gathers)
        return room if self._fits_member(pending, room) else None

    def _fits_member(self, pending: PendingDemand, room: Resources) -> bool:
        return any(
            self._agent.units_within(piece, pending.needs_of(piece), room, 1)
            for piece in pending.pieces
        )

    def _unmet(self, pending: PendingDemand) -> Constraint | None:
        """Return the first constraint of the shape that the agent does not pass."""
        constraints, agent_id = pending.demand.constraints, self._agent.agent_id
        if not constraints:
            return None
        if agent_id not in pending.unmet:
            facts = self._agent.facts
            found = next((each for each in constraints if not each.holds(facts)), None)
            pending.unmet[agent_id] = found
            self.work += sum(each.steps(facts) for each in constraints) // STEPS_PER_WORK
        return pending.unmet[agent_id]

    def _would_refuse(self, leaf: Leaf, pending: PendingDemand, units: int) -> bool:
        """Return whether a filter of the leaf covers this many units of the agent."""
        if not self._agent.filters or pending.shape is not None:
            return False
        unit, total = pending.demand.unit, self._agent.total
        candidate, _ = self._agent.carve(unit, pending.needs, total, units)
        return self._agent.filters.until(leaf, candidate, self._now) is not None

    def _room_for(self, leaf: Leaf, time_ms: int, gathers: str = "") -> Resources:
        """Return the rest without resources that are reserved or earmarked for others.

        `time_ms` is the declared time of the leaf's units; 0 if there is none. `gathers` names the
        gang that they are, if room is gathered for it.
        """
        mark, left = self._agent.earmark, self.left
        if self._agent.reservations:
            for each in self._barring(leaf, time_ms, gathers):
                self.wake_by(each.until)
                left = each.room(left)
        if mark is None or mark.leaf is leaf or not mark.leaf.is_willing:
            return left
        self.wake_by(mark.until)
        return left.beside(mark.amount)

    def _barring(self, leaf: Leaf, time_ms: int, gathers: str = "") -> Sequence[Reservation]:
        """Return the reservations of the agent that units of this declared time run into."""
        if not self._agent.reservations:
            return ()
        key = leaf.framework_id, leaf.role
        asked = (*key, time_ms, self._now, gathers)
        return [each for each in self._agent.reservations if each.bars(*asked)]

    def keeps_scarce(self, pending: PendingDemand) -> bool:
        """Return whether the agent has scarce resources that others demand, and this does not."""
        return bool(self._scarce_names(pending.demand.unit))

    def _scarce_for_others(self, unit: Resources) -> Rejection | None:
        """Reject a unit without the agent's scarce resources if other frameworks demand them."""
        names = self._scarce_names(unit)
        if not names:
            return None
        self.is_withheld = self.is_contended = True
        return Rejection(Cause.SCARCE, Text(_SCARCE, ", ".join(names)))

    def _scarce_names(self, unit: Resources) -> tuple[str, ...]:
        if self._agent.owner is not None or self._rules.scarce.isdisjoint(self.left.scalars):
            return ()
        return tuple(
            name
            for name in self._rules.scarce
            if self.left[name] and not unit[name] and self._is_demanded(name)
        )

    def _is_demanded(self, name: str) -> bool:
        """Return whether a framework that demands the resource could use this agent if empty."""
        if name not in self._demanded:
            self._demanded[name] = any(
                self._could_use(leaf, pending, name)
                for leaf in self._tree.askers.get(name, ())
                if leaf.is_willing
                # A back-off holds back all but submitted tasks.
                for pending in (
                    leaf.queued.values() if leaf.party in self._backing_off else leaf.pending or ()
                )
            )
        return self._demanded[name]

    def _could_use(self, leaf: Leaf, pending: PendingDemand, name: str) -> bool:
        return bool(
            pending.left
            and any(
                unit[name]
                and self._agent.units_within(unit, pending.needs_of(unit), self._agent.total, 1)
                for unit in pending.pieces
            )
            and self._unmet(pending) is None
            and limits.binding(leaf, pending.needed) is None
            and not self._would_refuse(leaf, pending, 1)
            and not self._barring(leaf, pending.demand.max_completion_ms)
        )

    def wake_by(self, at: float) -> None:
        """Visit the agent again at this time, or before."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
