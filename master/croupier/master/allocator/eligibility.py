"""Eligibility: the part of one agent that a framework could be dealt now, or the reason why none.

Nothing is dealt here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from croupier.master.allocator import limits, reasons
from croupier.master.allocator.agent_rest import AgentRest
from croupier.master.allocator.backfill import certain_at
from croupier.master.allocator.comparison import is_ahead
from croupier.master.allocator.dealt import Fit, Rejection
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import MANY, PendingDemand
from croupier.master.allocator.reasons import Cause, Text
from croupier.master.allocator.reservations import seconds_needed
from croupier.model.attributes import bound_to
from croupier.model.resources import NOTHING, Resources, total_of

_TOO_FEW = "an offer needs {} units of <{}>, but only {} fit"
_AT_MOST = "already runs {} of its tasks, the most that it wants on one agent"
_FULL = "its offer has {} units, the most that one offer may have"
_HELD = "it is held for {}"
BOUND = "the task has to run on agent {}"
_FREED = "{} was freed for {}, which was starving"
_GANG = "not all {} tasks of the gang fit at once"


class Eligibility(AgentRest):
    """Checks frameworks against the free resources that are left of one agent."""

    def check(self, leaf: Leaf, *, only_queued: bool = False) -> Fit | Rejection:
        """Return the part of the rest that `leaf` could be dealt, or the reason why none.

        With `only_queued`, check its submitted tasks; it has some.
        """
        found: Fit | Rejection
        owner = self._agent.owner
        if owner is not None and not self._agent.serves(leaf):
            text = Text(_HELD, self._agent.held_for, role=owner.role, rival=owner.framework_id)
            return Rejection(Cause.HELD, text)
        pending = leaf.queued.values() if only_queued else leaf.pending
        if pending is None:
            found = self._check_remainder(leaf)
        else:
            found = self._check_demand(leaf, pending)
        if self.starved and isinstance(found, Fit):
            kept_for = self._reserved_for(leaf, found)
            if kept_for is not None:
                self.is_contended = True
                kept = Rejection(Cause.KEPT, reasons.reserved(kept_for))
                return self._backfill(leaf, pending or (), found) or kept
        return found

    def _backfill(self, leaf: Leaf, pending: Iterable[PendingDemand], kept: Fit) -> Fit | None:
        """Return the first other fit with a declared time, before which nothing is reserved."""
        for each in pending:
            if each.demand.max_completion_ms and each is not kept.pending:
                found = self._check_shape(leaf, each)
                if isinstance(found, Fit) and self._reserved_for(leaf, found) is None:
                    return found
        return None

    def _check_demand(self, leaf: Leaf, pending: Iterable[PendingDemand]) -> Fit | Rejection:
        """Return the first fit, or the first rejection for another cause than NO_DEMAND."""
        first: Rejection | None = None
        for each in pending:
            found = self._check_shape(leaf, each)
            if isinstance(found, Fit):
                return found
            if first is None or first.cause is Cause.NO_DEMAND:
                first = found
        assert first is not None
        return first

    def _check_remainder(self, leaf: Leaf) -> Fit | Rejection:
        """Check a framework that declared no demand: it is offered the whole remainder."""
        # An offer of more ranges than a message may have could not be read.
        room = self._room_for(leaf, 0).within_bounds()
        owner = self._agent.owner
        if leaf.limited:
            bound = limits.exhausted(leaf, owner)
            if bound is not None:
                self.blocked[leaf] = False
                return Rejection(Cause.LIMIT, reasons.AtLimit.of(*bound))
            whole, room = room, limits.trimmed(room, limits.headroom(leaf, owner))
            if room is not whole:
                self.blocked[leaf] = True
        if self._agent.inventory is not None:
            # Limits and earmarks count devices, and name none.
            room = self._agent.inventory.consistent(room)
        # Of a hold, its owner said itself what is of use.
        if not (self._rules.useful.holds(room) or (owner is not None and room)):
            # Only if something is free would a demand help. In a pass, IN_USE could end the visit.
            cause = Cause.IN_USE if self.is_asked and not room else Cause.NOT_USEFUL
            return self._misfit(leaf, Rejection(cause, reasons.free_text(room)), 0)
        if self._agent.filters:
            refused = self.refused(leaf, room)
            if refused is not None:
                return refused
        return self._scarce_for_others(NOTHING) or Fit(None, 1, room)

    def _check_shape(self, leaf: Leaf, pending: PendingDemand) -> Fit | Rejection:
        if not pending.left:
            return Rejection(Cause.NO_DEMAND, "all units are offered")
        unmet = self._unmet(pending)
        if unmet is not None:
            agent_id = bound_to((unmet,))
            text = Text("does not pass {}", unmet) if not agent_id else Text(BOUND, agent_id)
            return Rejection(Cause.CONSTRAINT, text)
        if pending.gang is not None:
            return self._check_gang(leaf, pending)
        demand, unit = pending.demand, pending.demand.unit
        dealt = self.dealt.get(leaf)
        has = dealt.units.get(pending, 0) if dealt is not None else 0
        most = MANY
        if demand.max_per_offer is not None:
            most = demand.max_per_offer - has
            if most <= 0:
                return Rejection(Cause.OFFER_FULL, Text(_FULL, demand.max_per_offer))
        placement = None if pending.shape is None else pending.shape.placement
        if placement is not None and placement.max_per_agent is not None:
            most = placement.max_per_agent - has
            most -= self._agent.tasks.get(leaf.framework_id, 0)
            if most <= 0:
                return Rejection(Cause.CONSTRAINT, Text(_AT_MOST, placement.max_per_agent))
        least = 1 if has else pending.least
        room = self._room_for(leaf, demand.max_completion_ms)
        units = unit.units_within(room, min(pending.left, most))
        # Most time of a pass is spent here: a call less where no devices are named.
        is_plain = self._agent.inventory is None and not pending.needs
        units = units if is_plain else self._agent.units_within(unit, pending.needs, room, units)
        if units < least:
            return self._does_not_fit(leaf, pending, units, least, room)
        if leaf.limited:
            units = self._within_limits(leaf, pending, units, least)
            if units < least:
                return self._over_limit(leaf, unit, least)
        is_first = dealt is None or not dealt.offered
        if is_first and self._agent.filters and pending.shape is None:
            # In the order `spread` a framework is dealt one unit at a time: check that alone.
            tried = least if self._rules.order == "spread" else units
            candidate, _ = self._agent.carve(unit, pending.needs, room, tried)
            refused = self.refused(leaf, candidate)
            if refused is not None:
                return refused
        return self._scarce_for_others(unit) or Fit(pending, least, room)

    def _within_limits(self, leaf: Leaf, pending: PendingDemand, units: int, least: int) -> int:
        """Return how many of these units the limits of the leaf leave room for."""
        headroom = limits.headroom(leaf, self._agent.owner)
        within = limits.units_within(pending.demand.unit.scalars, headroom, units)
        if least <= within < units and self._agent.filters and pending.shape is None:
            self.blocked[leaf] = True
        return within

    def _over_limit(self, leaf: Leaf, unit: Resources, least: int) -> Rejection:
        self.blocked.setdefault(leaf, False)
        needed = {name: milli * least for name, milli in unit.scalars.items()}
        bound = limits.binding(leaf, needed, self._agent.owner)
        assert bound is not None
        return Rejection(Cause.LIMIT, reasons.AtLimit.of(*bound))

    def _check_gang(self, leaf: Leaf, pending: PendingDemand) -> Fit | Rejection:
        """Return the fit of a gang on this and other agents, if a member has room here."""
        agent, unit, gang = self._agent, pending.demand.unit, pending.gang
        assert gang is not None
        if agent.owner is not None:
            return Rejection(Cause.NO_DEMAND, "gangs use no holds")
        room = self.room_for_members(leaf, pending)
        if room is None:
            piece, time_ms = pending.pieces[-1], pending.demand.max_completion_ms
            room = self._room_for(leaf, time_ms, pending.gathers)
            fits_empty = self._fits_member(pending, agent.total)
            cause = Cause.IN_USE if fits_empty else Cause.DOES_NOT_FIT
            whole = agent.whole if agent.holds else agent.total
            shortage: object = reasons.Shortage(piece, 1, room, whole)
            if piece.units_within(room, 1):
                shortage = reasons.DeviceShortage(piece, pending.needs_of(piece), agent, room)
            return self._misfit(leaf, Rejection(cause, shortage), time_ms, pending)
        if leaf.limited and not limits.units_within(unit.scalars, limits.headroom(leaf), 1):
            return self._over_limit(leaf, unit, 1)
        rejection = self._scarce_for_others(unit)
        if rejection is not None:
            return rejection
        places = () if self.places_gang is None else self.places_gang(leaf, pending)
        if not places:
            return Rejection(Cause.GANG, Text(_GANG, len(gang.members)))
        return Fit(pending, 1, room, places)

    def _does_not_fit(
        self, leaf: Leaf, pending: PendingDemand, units: int, least: int, room: Resources
    ) -> Rejection:
        unit, total = pending.demand.unit, self._agent.total
        time_ms = pending.demand.max_completion_ms
        fits_empty = self._agent.units_within(unit, pending.needs, total, least) >= least
        cause = Cause.IN_USE if fits_empty else Cause.DOES_NOT_FIT
        if least > 1 and units:
            too_few = Rejection(cause, Text(_TOO_FEW, least, unit, units))
            return self._misfit(leaf, too_few, time_ms, pending)
        if self._rules.hold_s > 0 and fits_empty and self._could_use_empty(leaf, pending, least):
            self.starved.append((leaf, unit))
        whole = self._agent.whole if self._agent.holds else total
        shortage: object = reasons.Shortage(unit, least, room, whole)
        if unit.units_within(room, least) >= least:
            # Enough in number, and not of the right kind.
            shortage = reasons.DeviceShortage(unit, pending.needs, self._agent, room)
        return self._misfit(leaf, Rejection(cause, shortage), time_ms, pending)

    def _could_use_empty(self, leaf: Leaf, pending: PendingDemand, least: int) -> bool:
        """Return whether the leaf would be dealt units that fit if the agent were empty."""
        unit = pending.demand.unit
        needed = {name: milli * least for name, milli in unit.scalars.items()}
        return (
            limits.binding(leaf, needed, self._agent.owner) is None
            and not self._would_refuse(leaf, pending, least)
            and not self._scarce_names(unit)
            and not (
                self._agent.reservations and self._barring(leaf, pending.demand.max_completion_ms)
            )
        )

    def _misfit(
        self, leaf: Leaf, rejection: Rejection, time_ms: int, pending: PendingDemand | None = None
    ) -> Rejection:
        """Return `rejection`, or one that names the framework that has the resources needed."""
        mark, taker = self._agent.earmark, self.last_taker

        def suffices(free: Resources) -> bool:
            if pending is None:
                return self._rules.useful.holds(free)
            return self._fits_member(pending, free)

        if mark is not None and mark.leaf is not leaf and suffices(self.left):
            self.is_contended = True
            rival = mark.leaf.framework_id
            text = Text(_FREED, mark.amount, rival, role=mark.leaf.role, rival=rival)
            return Rejection(Cause.EARMARKED, text)
        barring = self._agent.reservations and self._barring(leaf, time_ms)
        if barring and rejection.cause is not Cause.DOES_NOT_FIT:
            return Rejection(Cause.RESERVED, reasons.Reserved(barring[0], time_ms, self._now))
        if taker is not None and taker[0] is not leaf and suffices(self._agent.free):
            return Rejection(Cause.GUARANTEE if taker[1] else Cause.OUTRANKED)
        return rejection

    def _reserved_for(self, taker: Leaf, fit: Fit) -> Leaf | None:
        """Return the starved framework that the agent is reserved for, ahead of `taker`.

        It lacks a resource that `fit` takes, and is due its unit before `taker` gets more. A
        framework far behind reserves several agents at once. What ends in time may run on them:
        see `backfill`.
        """
        agent_id, now, hold_s = self._agent.agent_id, self._now, self._rules.hold_s
        takes = fit.room if fit.pending is None else fit.pending.demand.unit
        for leaf, unit in self.starved:
            if leaf is taker or not self._may_reserve(leaf):
                continue
            lacking = (name for name, milli in unit.scalars.items() if milli > self.left[name])
            if not any(takes[name] for name in lacking):
                continue
            units = 1 + leaf.reservations.count_without(agent_id)
            if leaf in self.ahead or is_ahead(self._tree, taker, leaf, unit.scalars, units):
                self.wake_by(leaf.reservations.add(agent_id, now, hold_s))
                if not self._ends_before(leaf, unit, fit):
                    return leaf
        return None

    def _ends_before(self, starved: Leaf, unit: Resources, fit: Fit) -> bool:
        """Return whether a fit ends by the time at which the unit of a starved leaf fits for sure.

        That time is never later than it was before in the same reservation: what has been dealt,
        and is not launched yet, would make it look later.
        """
        if fit.pending is None or not fit.pending.demand.max_completion_ms:
            return False
        dealt = [
            (self._ends_at(pending), total_of([pending.demand.unit] * units))
            for each in self.dealt.values()
            for pending, units in each.units.items()
            if pending.demand.max_completion_ms
        ]
        if self._known_ends is None:
            self._known_ends = tuple(self._ends_of(self._agent.agent_id))
            self.work += len(self._known_ends) // 20
        ends = (*self._known_ends, *dealt)
        agent_id = self._agent.agent_id
        fits_at = min(certain_at(unit, self.left, ends), starved.reservations.promised(agent_id))
        if not self.is_asked and fits_at > -inf:
            starved.reservations.promise(agent_id, fits_at)
        return self._ends_at(fit.pending) <= fits_at

    def _ends_at(self, pending: PendingDemand) -> float:
        return self._now + seconds_needed(pending.demand.max_completion_ms)

    def _may_reserve(self, leaf: Leaf) -> bool:
        agent_id, now = self._agent.agent_id, self._now
        if self.is_asked:
            return leaf.reservations.has(agent_id, now)
        return leaf.reservations.may_add(agent_id, self._agent_count, now, self._rules.hold_s)
