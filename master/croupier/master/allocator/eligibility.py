"""Eligibility: the part of one agent that a framework could be dealt now, or the reason why none.

Nothing is dealt here. A visit caches the constraints that each shape fails, and the scarce
resources that other frameworks demand.

Filters and back-off answer the question what may be offered. They never hold back submitted tasks,
which are not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from croupier.master.allocator import limits, reasons
from croupier.master.allocator.back_off import Party
from croupier.master.allocator.backfill import End, certain_at
from croupier.master.allocator.comparison import is_ahead
from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.kinds import counting
from croupier.master.allocator.node import Leaf, Taker
from croupier.master.allocator.pending_demand import MANY, PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reasons import Cause, Text
from croupier.master.allocator.reservations import Reservation, seconds_needed
from croupier.master.allocator.state import AllocatorState
from croupier.model.attributes import Constraint, bound_to
from croupier.model.devices import Parts
from croupier.model.resources import NOTHING, Resources, total_of

# Steps of matching patterns that are as much work as a deal.
STEPS_PER_WORK = 5_000

_TOO_FEW = "an offer needs {} units of <{}>, but only {} fit"
_AT_MOST = "already runs {} of its tasks, the most that it wants on one agent"
_FULL = "its offer has {} units, the most that one offer may have"
_HELD = "it is held for {}"
BOUND = "the task has to run on agent {}"
_FREED = "{} was freed for {}, which was starving"
_GANG = "not all {} tasks of the gang fit at once"
_SCARCE = "has {}, which is withheld for frameworks that demand it"


class Fit(NamedTuple):
    """Resources that a framework could be dealt.

    Attributes:
        pending: the demand; None for the whole remainder.
        units: how many units of it.
        room: the resources to take them from.
        places: of a gang, those of its members.
    """

    pending: PendingDemand | None
    units: int
    room: Resources
    places: tuple[GangPlace, ...] = ()


class Rejection(NamedTuple):
    """The reason why a framework could be dealt nothing; `str(detail)` puts it into words."""

    cause: Cause
    detail: object = ""


@dataclass(slots=True)
class Queued:
    """The part of `Dealt` that is for submitted tasks of one shape."""

    resources: Resources = NOTHING
    numbers: list[int] = field(default_factory=list)
    devices: list[Parts] = field(default_factory=list)


@dataclass(slots=True)
class Dealt:
    """Resources that one framework is dealt in a visit.

    Attributes:
        least: the minimum units of an offer, for each demand, before the first deal.
        gangs: the grants of gangs.
        of_gangs: the part of the agent that members of those are dealt.
    """

    offered: Resources = NOTHING
    numbers: list[int] = field(default_factory=list)
    queued: dict[PendingDemand, Queued] = field(default_factory=dict)
    units: dict[PendingDemand, int] = field(default_factory=dict)
    least: dict[PendingDemand, int] = field(default_factory=dict)
    gangs: tuple[Grant, ...] = ()
    of_gangs: Resources = NOTHING

    @property
    def resources(self) -> Resources:
        """All that it is dealt."""
        dealt = self.offered + self.of_gangs
        return sum((each.resources for each in self.queued.values()), dealt)


class Eligibility:
    """Checks frameworks against the free resources that are left of one agent.

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

    def keeps_scarce(self, pending: PendingDemand) -> bool:
        """Return whether the agent has scarce resources that others demand, and this does not."""
        return bool(self._scarce_names(pending.demand.unit))

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
            and not self._barring(leaf, pending.demand.max_completion_ms)
        )

    def _would_refuse(self, leaf: Leaf, pending: PendingDemand, units: int) -> bool:
        """Return whether a filter of the leaf covers this many units of the agent."""
        if not self._agent.filters or pending.shape is not None:
            return False
        unit, total = pending.demand.unit, self._agent.total
        candidate, _ = self._agent.carve(unit, pending.needs, total, units)
        return self._agent.filters.until(leaf, candidate, self._now) is not None

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
        barring = self._barring(leaf, time_ms)
        if barring and rejection.cause is not Cause.DOES_NOT_FIT:
            return Rejection(Cause.RESERVED, reasons.Reserved(barring[0], time_ms, self._now))
        if taker is not None and taker[0] is not leaf and suffices(self._agent.free):
            return Rejection(Cause.GUARANTEE if taker[1] else Cause.OUTRANKED)
        return rejection

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

    def wake_by(self, at: float) -> None:
        """Visit the agent again at this time, or before."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
