"""A look at one agent: what a framework could be dealt of it now, or why nothing.

Nothing is dealt here. What is asked again and again in a visit is remembered: constraints per
shape, who asks for what is scarce.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from croupier.master.allocator import limits, refusals
from croupier.master.allocator.agent_pool import AgentPool, PooledAgent
from croupier.master.allocator.comparison import taken_by
from croupier.master.allocator.node import Leaf, Taker
from croupier.master.allocator.pending_demand import MANY, PendingDemand
from croupier.master.allocator.precedence import is_ahead
from croupier.master.allocator.reasons import Cause
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.tree import Tree
from croupier.model.resources import NOTHING, Resources

# Steps of matching patterns that are as much work as a deal.
STEPS_PER_WORK = 5_000

Refusal = tuple[Cause, object]
# A want, None for the whole remainder; how many units of it; and of what room.
Choice = tuple[PendingDemand | None, int, Resources]


@dataclass(slots=True)
class Dealt:
    """What one framework is dealt in this visit.

    Attributes:
        numbers: of the deals.
        least: the fewest units that an offer was to have before.
    """

    resources: Resources = NOTHING
    numbers: list[int] = field(default_factory=list)
    units: dict[PendingDemand, int] = field(default_factory=dict)
    least: dict[PendingDemand, int] = field(default_factory=dict)


class Look:
    """One agent, as it stands within a visit.

    Attributes:
        work: how much was done; see `visit.WORK_IN_A_VISIT`.
    """

    def __init__(
        self, agent: PooledAgent, tree: Tree, pool: AgentPool, rules: Rules, now: float
    ) -> None:
        """Look at `agent` at time `now`."""
        self._agent, self._tree, self._pool = agent, tree, pool
        self._rules, self._now = rules, now
        self._left = agent.free
        self._starved: list[tuple[Leaf, Resources]] = []
        # Whom limits left nothing, or with True less than is worth an offer.
        self._barred: dict[Leaf, bool] = {}
        self._dealt: dict[Leaf, Dealt] = {}
        # What the framework that was looked at last would be dealt.
        self._choice: Choice = (None, 0, NOTHING)
        # Who was dealt to last, whether it was below a guarantee, and what it held.
        self._taker: Taker | None = None
        self._asked_for: dict[str, bool] = {}
        self._waits_for_round = False
        # Whether anybody was refused for the sake of another who may be dealt to yet, and
        # whether for what is scarce.
        self._is_kept = False
        self._is_withheld = False
        self.work = 0

    def refusal(self, leaf: Leaf) -> Refusal | None:
        """Why `leaf` cannot use what is left of the agent; None if it can."""
        if leaf.pending is None:
            return self._refuse_whole(leaf)
        refusal: Refusal | None = None
        for want in leaf.pending:
            why = self._refuse(leaf, want)
            if why is None:
                return None
            if refusal is None or refusal[0] is Cause.NO_DEMAND:
                refusal = why
        assert refusal is not None
        return refusal

    def keeper(self, taker: Leaf, holders: Iterable[Leaf]) -> Leaf | None:
        """For which of `holders`, for whom the agent is kept, `taker` is not dealt it."""
        for holder in holders:
            self.refusal(holder)
        if self.refusal(taker) is not None:
            return None
        return self._kept_for(taker)

    def _refuse_whole(self, leaf: Leaf) -> Refusal | None:
        """Why a framework that declared nothing is not offered all that is left."""
        # An offer of more ranges than a message may have could not be read.
        room = self._room_for(leaf).within_bounds()
        if leaf.limited:
            spent = limits.exhausted(leaf)
            if spent is not None:
                self._barred[leaf] = False
                return Cause.LIMIT, refusals.AtLimit.of(*spent)
            whole, room = room, limits.trimmed(room, limits.headroom(leaf))
            if room is not whole:
                self._barred[leaf] = True
        if not self._rules.useful.holds(room):
            return self._misfit(leaf, refusals.TooSmall(room), Cause.NOT_USEFUL)
        if self._agent.filters:
            refusal = self._refuse_filtered(leaf, room)
            if refusal is not None:
                return refusal
        kept = self._scarce_for_others(NOTHING)
        if kept:
            self._is_withheld = self._is_kept = True
            return Cause.SCARCE, refusals.ScarceHere(kept)
        self._choice = (None, 1, room)
        return None

    def _refuse(self, leaf: Leaf, want: PendingDemand) -> Refusal | None:
        """Why no unit of this shape is dealt."""
        if not want.left:
            return Cause.NO_DEMAND, "all units are offered"
        unmet = self._unmet(want)
        if unmet is not None:
            return Cause.CONSTRAINT, unmet
        demand, unit = want.demand, want.demand.unit
        dealt = self._dealt.get(leaf)
        has = dealt.units.get(want, 0) if dealt is not None else 0
        most = MANY if demand.max_per_offer is None else demand.max_per_offer - has
        if most <= 0:
            assert demand.max_per_offer is not None
            return Cause.OFFER_FULL, refusals.FullOffer(demand.max_per_offer)
        least = 1 if has else want.least
        room = self._room_for(leaf)
        units = unit.units_within(room, min(want.left, most))
        if units < least:
            return self._does_not_fit(leaf, want, units, least, room)
        if leaf.limited:
            whole, units = units, limits.units_within(unit.scalars, limits.headroom(leaf), units)
            if units < least:
                self._barred.setdefault(leaf, False)
                needed = {name: milli * least for name, milli in unit.scalars.items()}
                bound = limits.binding(leaf, needed)
                assert bound is not None
                return Cause.LIMIT, refusals.AtLimit.of(*bound)
            if units < whole and self._agent.filters:
                self._barred[leaf] = True
        if dealt is None and self._agent.filters:
            # Who is dealt unit by unit must not have refused one.
            tried = least if self._rules.order == "spread" else units
            refusal = self._refuse_filtered(leaf, unit.carve(room, tried))
            if refusal is not None:
                return refusal
        kept = self._scarce_for_others(unit)
        if kept:
            self._is_withheld = self._is_kept = True
            return Cause.SCARCE, refusals.ScarceHere(kept)
        self._choice = (want, least, room)
        return None

    def _unmet(self, want: PendingDemand) -> refusals.Unmet | None:
        """The first constraint of the shape that the agent does not pass."""
        constraints = want.demand.constraints
        if not constraints:
            return None
        if self._agent.agent_id in want.unmet:
            unmet = want.unmet[self._agent.agent_id]
        else:
            facts = self._agent.facts
            unmet = next((each for each in constraints if not each.holds(facts)), None)
            want.unmet[self._agent.agent_id] = unmet
            steps = sum(each.steps(facts) for each in constraints)
            self.work += steps // STEPS_PER_WORK
        return None if unmet is None else refusals.Unmet(unmet)

    def _does_not_fit(
        self, leaf: Leaf, want: PendingDemand, units: int, least: int, room: Resources
    ) -> Refusal:
        unit = want.demand.unit
        could_fit = unit.units_within(self._agent.total, least) >= least
        cause = Cause.IN_USE if could_fit else Cause.DOES_NOT_FIT
        if least > 1 and units:
            return self._misfit(leaf, refusals.TooFew(unit, units, least), cause, unit)
        if self._rules.hold_s > 0 and self._could_be_dealt(leaf, want, least):
            self._starved.append((leaf, unit))
        shortage = refusals.Shortage(unit, least, room, self._agent.total)
        return self._misfit(leaf, shortage, cause, unit)

    def _could_be_dealt(self, leaf: Leaf, want: PendingDemand, least: int) -> bool:
        """Whether the leaf would be dealt the units that do not fit, if the agent were empty."""
        unit = want.demand.unit
        needed = {name: milli * least for name, milli in unit.scalars.items()}
        return (
            unit.units_within(self._agent.total, least) >= least
            and limits.binding(leaf, needed) is None
            and not self._is_filtered(leaf, unit, least)
            and not self._scarce_for_others(unit)
        )

    def _is_filtered(self, leaf: Leaf, unit: Resources, units: int) -> bool:
        """Whether so many units of the agent, if they were free, are refused by the leaf."""
        if not self._agent.filters:
            return False
        candidate = unit.carve(self._agent.total, units)
        return self._agent.filters.until(leaf, candidate, self._now) is not None

    def _misfit(
        self, leaf: Leaf, why: object, cause: Cause, unit: Resources | None = None
    ) -> Refusal:
        """`cause`, or better who has the room that would have been enough."""
        mark = self._agent.earmark

        def enough(free: Resources) -> bool:
            if unit is None:
                return self._rules.useful.holds(free)
            return unit.units_within(free, 1) > 0

        if mark is not None and mark.leaf is not leaf and enough(self._left):
            self._is_kept = True
            return Cause.EARMARKED, refusals.EarmarkedFor(mark.leaf, mark.amount)
        if self._taker is not None and self._taker[0] is not leaf and enough(self._agent.free):
            taken = taken_by(self._taker, leaf, self._tree.policy.name, self._tree.totals)
            return (Cause.GUARANTEE if taken.needs else Cause.OUTRANKED), taken
        return cause, why

    def _refuse_filtered(self, leaf: Leaf, candidate: Resources) -> Refusal | None:
        until = self._agent.filters.until(leaf, candidate, self._now)
        if until is None:
            return None
        if until > self._now:
            self._pool.wake_at(self._agent.agent_id, until)
        else:
            self._waits_for_round = True
        return Cause.FILTERED, refusals.FilteredFor(until - self._now)

    def _room_for(self, leaf: Leaf) -> Resources:
        """What is left and not earmarked for somebody else."""
        mark = self._agent.earmark
        if mark is None or mark.leaf is leaf or not mark.leaf.is_willing:
            return self._left
        self._pool.wake_at(self._agent.agent_id, mark.until)
        scalars = {
            name: max(milli - mark.amount[name], 0) for name, milli in self._left.scalars.items()
        }
        return Resources(scalars, self._left.ranges, self._left.sets)

    def _scarce_for_others(self, unit: Resources) -> tuple[str, ...]:
        """What scarce resources here `unit` does not ask for, and somebody else does."""
        if self._rules.scarce.isdisjoint(self._left.scalars):
            return ()
        return tuple(
            name
            for name in self._rules.scarce
            if self._left[name] and not unit[name] and self._is_asked_for(name)
        )

    def _is_asked_for(self, name: str) -> bool:
        """Whether anybody who asks for the resource could use this agent, now or later."""
        if name not in self._asked_for:
            self._asked_for[name] = any(
                self._asks(leaf, want, name)
                for leaf in self._tree.askers.get(name, ())
                if leaf.is_willing
                for want in leaf.pending or ()
            )
        return self._asked_for[name]

    def _asks(self, leaf: Leaf, want: PendingDemand, name: str) -> bool:
        unit = want.demand.unit
        return bool(
            unit[name]
            and want.left
            and unit.units_within(self._agent.total, 1)
            and self._unmet(want) is None
            and limits.binding(leaf, want.needed) is None
            and not self._is_filtered(leaf, unit, 1)
        )

    def _kept_for(self, taker: Leaf) -> Leaf | None:
        """The needier framework that the agent is kept for, if it is kept from `taker`."""
        want, _, room = self._choice
        for leaf, unit in self._starved:
            if leaf is taker or not self._may_hold(leaf):
                continue
            short = [name for name, milli in unit.scalars.items() if milli > self._left[name]]
            takes = room if want is None else want.demand.unit
            if not any(takes[name] for name in short):
                continue
            # Whoever is far behind has several agents kept for it at once.
            due = 1 + leaf.reservations.besides(self._agent.agent_id)
            if is_ahead(self._tree, taker, leaf, unit.scalars, due):
                self._hold(leaf)
                return leaf
        return None

    def _may_hold(self, leaf: Leaf) -> bool:
        agents = len(self._pool.agents)
        return leaf.reservations.may_keep(
            self._agent.agent_id, agents, self._now, self._rules.hold_s
        )

    def _hold(self, leaf: Leaf) -> None:
        until = leaf.reservations.keep(self._agent.agent_id, self._now, self._rules.hold_s)
        self._pool.wake_at(self._agent.agent_id, until)
