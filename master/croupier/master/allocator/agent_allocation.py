"""Allocation of one agent: what is free goes to the neediest frameworks that can use it.

One unit at a time goes to the framework that the policy puts first among those that can use
the agent, until none can: Algorithm 1 of the DRF paper (Ghodsi et al., NSDI 2011), machine by
machine as in its Theorem 7. A unit is one task of a declared shape, or the minimum number of such
tasks in an offer. A framework without declared demand takes the whole remainder. All units that one
framework is dealt on one agent are one grant.

A framework whose unit does not fit now is skipped, so that resources do not lie idle. Skipping
alone would starve large units: under churn, small tasks refill every gap first. So an agent is
reserved for a skipped framework for a bounded time, on two conditions. The next framework in
order would take the resource that the skipped one lacks. The skipped one is below a guarantee, or
behind by more than its unit; a second reservation takes two units, and so on.

A party that backs off (see `back_off`) is offered only what no other framework can use. Its
submitted tasks keep their place in the order.

A gang is one unit, which takes its members' parts of several agents at once; see `gangs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from croupier.master.allocator.back_off import Party
from croupier.master.allocator.dealt import Dealt, Fit, Queued
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.gangs import GangSearch
from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.node import Leaf, Turn
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reasons import Cause
from croupier.master.allocator.reservations import dealt_to_owner
from croupier.master.allocator.state import AllocatorState
from croupier.model.devices import Parts
from croupier.model.resources import NOTHING, Resources, sum_of

# Work after which a visit ends, about 10 ms; then the agent is queued again. Units may be as small
# as a thousandth of a large agent. A deal costs 1, and more if there are many ranges to carve from,
# or many skipped frameworks.
WORK_IN_A_VISIT = 500
# Leaves that are passed over without a check at the cost of one deal.
PASSED_OVER_PER_WORK = 200
# Causes that may be for good, while agent and demand stay as they are.
_FOR_GOOD = (Cause.DOES_NOT_FIT, Cause.CONSTRAINT)
# Causes that end the visit when no framework may be skipped.
_IN_THE_WAY = (Cause.DOES_NOT_FIT, Cause.IN_USE, Cause.OUTRANKED)


class AgentAllocation:
    """A visit to one agent, within a pass; `checks` is how many frameworks were checked."""

    def __init__(
        self,
        agent: PooledAgent,
        state: AllocatorState,
        now: float,
        backing_off: Mapping[Party, float],
    ) -> None:
        """Begin a visit; `backing_off` has the parties that back off, and until when."""
        self._agent, self._state, self._tree = agent, state, state.tree
        self._backing_off = backing_off
        self._eligibility = Eligibility(agent, state, now, backing_off)
        self._now = now
        # Leaves that come last; they are dealt the rest after all others.
        self._held_back: set[Leaf] = set()
        # Leaves that are offered nothing, since filters cover what they would be offered.
        self._refused: set[Leaf] = set()
        # Whether parties that back off, and roles that come last, may be dealt to by now.
        self._has_last = bool(backing_off or self._tree.turns)
        self._takes_last = not self._has_last
        # A framework that cannot use the agent cannot for the rest of the visit: what is left
        # only shrinks.
        self._out: set[Leaf] = set()
        # The fit of each framework that was found eligible: of several the tree chooses one.
        self._fits: dict[Leaf, Fit] = {}
        self._profile = state.profiles.of(agent)
        self._profile.begin()
        self._misfits = self._profile.misfits
        self._passed_over = 0
        self._is_closed = False
        self.checks = 0

    @property
    def work(self) -> int:
        """The work of this visit so far; see `WORK_IN_A_VISIT`."""
        return self._eligibility.work

    def run(self, leaves: Iterable[Leaf] | None = None) -> list[Grant]:
        """Deal until no framework can use the rest, or `WORK_IN_A_VISIT` is done.

        In the latter case the agent is dirty again. With `leaves`, deal nothing unless one of them
        can use the agent: an earlier visit found that the others cannot.
        """
        eligibility, agent = self._eligibility, self._agent
        if leaves is not None and not self._is_of_use_to(leaves):
            self._follow_up()
            return []
        if self._state.gatherings.waiting:
            eligibility.places_gang = self._place_gang
        agent.is_waited_for = False
        again = self._deal_all()
        if not eligibility.dealt and not again and not agent.is_dealt:
            # Every framework that can use the agent was offered it: a new round begins.
            agent.filters.round += 1
            if eligibility.waits_for_round:
                eligibility.waits_for_round = False
                again = self._deal_all()
        grants = [
            grant
            for leaf, dealt in eligibility.dealt.items()
            for grant in self._grants(leaf, dealt)
        ]
        self._follow_up()
        agent.is_dealt = agent.is_dealt or bool(grants)
        agent.is_waited_for = eligibility.waits_for_round
        if again or (eligibility.is_contended and grants):
            self._state.agents.mark_dirty(agent)
        return grants

    def _is_of_use_to(self, leaves: Iterable[Leaf]) -> bool:
        found = [self._check(leaf) for leaf in leaves if leaf.is_listed]
        self._eligibility.starved.clear()
        # Room for a gang is only looked for when it is its turn.
        could = any(isinstance(each, Fit) or each is Cause.GANG for each in found)
        return could or self._eligibility.waits_for_round

    def _follow_up(self) -> None:
        """Set the next wake-up, withhold scarce resources, and park leaves blocked by limits."""
        eligibility, agents = self._eligibility, self._state.agents
        # Nothing more is dealt; a cycle of references would live until it is collected.
        eligibility.places_gang = None
        if eligibility.wake_at is not None:
            agents.wake_at(self._agent.agent_id, eligibility.wake_at)
        if eligibility.is_withheld:
            agents.withhold(self._agent)
        for leaf, is_cut in eligibility.blocked.items():
            if not self._state.waiters.park(leaf, is_cut=is_cut):
                # It was dealt surplus, which limits do not count: nothing blocks it now.
                agents.mark_all_dirty(leaf)
            if not leaf.is_listed:
                agents.release_reservations(leaf)

    def _deal_all(self) -> bool:
        """Deal to all; return whether the agent needs another visit for the rest."""
        eligibility = self._eligibility
        self._refused.clear()
        while True:
            self._out = {leaf for leaf in self._refused if not leaf.queued}
            eligibility.starved.clear()
            if self._deal_units():
                return True
            if not self._agent.filters:
                return False
            # A framework may end up with no more than it refused: it was eligible for more, but
            # other frameworks took part of that.
            refused = [
                leaf
                for leaf, dealt in eligibility.dealt.items()
                if dealt.offered and eligibility.refused(leaf, dealt.offered) is not None
            ]
            if not refused:
                return False
            for leaf in refused:
                self._take_back(leaf)
            self._refused.update(refused)

    def _take_back(self, leaf: Leaf) -> None:
        """Undo the deals that were to be offered."""
        eligibility = self._eligibility
        dealt = eligibility.dealt[leaf]
        offered, dealt.offered = dealt.offered, NOTHING
        dealt.numbers.clear()
        eligibility.left = eligibility.left + offered
        taken = {each: units for each, units in dealt.units.items() if each.shape is None}
        for pending, units in taken.items():
            pending.outstanding -= units
            del dealt.units[pending]
        self._tree.withdraw(leaf, offered.scalars, self._agent.owner)
        self._tree.count_slots(leaf, -sum(taken.values()) if taken else -1)
        if not (dealt.queued or dealt.gangs):
            del eligibility.dealt[leaf]

    def _deal_units(self) -> bool:
        one_by_one = self._state.rules.order == "spread"
        eligibility = self._eligibility
        self._takes_last = not self._has_last
        self._held_back.clear()
        while eligibility.left:
            if eligibility.work >= WORK_IN_A_VISIT or (one_by_one and eligibility.dealt):
                return True
            leaf = self._neediest()
            if leaf is not None:
                self._deal(leaf)
            elif self._held_back or self._skips_last():
                # No other framework can use the rest.
                self._out -= self._held_back
                self._held_back.clear()
                self._takes_last = True
                eligibility.ahead = frozenset(each for each, _ in eligibility.starved)
            else:
                break
        return False

    def _neediest(self) -> Leaf | None:
        """Return the eligible leaf that comes first, among those that the agent is for."""
        profile = self._profile if self._profile.misfits else None
        owner, role = self._agent.owner, self._agent.held_role
        if owner is None or role is not None:
            return self._tree.neediest(self._is_eligible, profile, role)
        return owner if owner.is_listed and self._is_eligible(owner) else None

    def _skips_last(self) -> bool:
        """Return whether a leaf that comes last was skipped as a misfit.

        It decides nothing but which frameworks are ahead from now on.
        """
        eligibility = self._eligibility
        if self._takes_last or not (eligibility.starved or eligibility.ahead):
            return False
        return any(
            leaf.kind in self._misfits and self._comes_last(leaf) for leaf in self._tree.in_order()
        )

    def _comes_last(self, leaf: Leaf) -> bool:
        return leaf.role_node.turn is not Turn.USUAL or leaf.party in self._backing_off

    def _is_eligible(self, leaf: Leaf) -> bool:
        if leaf in self._out or self._is_closed:
            self._passed_over += 1
            return False
        is_held_back = not self._takes_last and self._comes_last(leaf)
        found: Fit | Cause | None = None
        # Submitted tasks of a party that backs off keep their place in the order.
        if not is_held_back or (leaf.queued and leaf.role_node.turn is Turn.USUAL):
            found = self._check(leaf, only_queued=is_held_back or leaf in self._refused)
        if isinstance(found, Fit):
            self._fits[leaf] = found
            return True
        self._out.add(leaf)
        if is_held_back:
            self._held_back.add(leaf)
            return False
        if not self._state.rules.skips and found in _IN_THE_WAY:
            self._is_closed = True
        return False

    def _check(self, leaf: Leaf, *, only_queued: bool = False) -> Fit | Cause:
        """Return the leaf's fit, or the cause of its rejection."""
        if leaf.kind in self._misfits:
            return Cause.DOES_NOT_FIT
        self.checks += 1
        found = self._eligibility.check(leaf, only_queued=only_queued)
        if isinstance(found, Fit):
            return found
        if found.cause in _FOR_GOOD and self._state.profiles.may_learn(leaf):
            unmet = self._eligibility.unmet_for_good(leaf)
            if unmet is not None:
                self._state.profiles.learn(self._profile, leaf, unmet)
                return found.cause
        elif found.cause is Cause.IN_USE and self._state.profiles.may_learn(leaf):
            self._state.profiles.learn_usable(self._profile, leaf)
        return found.cause

    def _deal(self, leaf: Leaf) -> None:
        eligibility = self._eligibility
        pending, units, room, places = self._fits[leaf]
        if pending is not None and places:
            self._deal_gang(leaf, pending, places)
            return
        left, dealt = eligibility.left, eligibility.dealt.get(leaf)
        parts: Sequence[Parts] = ()
        if pending is None:
            resources = room
        elif self._agent.inventory is None:
            resources = pending.demand.unit.carve(room, units)
        else:
            unit, needs = pending.demand.unit, pending.needs
            resources, parts = self._agent.carve(unit, needs, room, units)
        self._note_taker(leaf)
        # A whole remainder is one slot, however often it is added to.
        slots = units if pending is not None or dealt is None else 0
        number = self._tree.deal(leaf, resources.scalars, slots, self._agent.owner)
        if dealt is None:
            dealt = eligibility.dealt[leaf] = Dealt()
        if pending is None or pending.shape is None:
            dealt.numbers.append(number)
            dealt.offered = dealt.offered + resources
        else:
            queued = dealt.queued.setdefault(pending, Queued())
            queued.numbers.append(number)
            queued.resources = queued.resources + resources
            queued.devices += parts
        if pending is not None:
            dealt.least.setdefault(pending, pending.least)
            pending.outstanding += units
            dealt.units[pending] = dealt.units.get(pending, 0) + units
        pieces = sum(map(len, left.ranges.values())) if left.ranges else 0
        eligibility.work += 1 + (pieces + len(eligibility.starved)) // 20
        eligibility.work += self._passed_over // PASSED_OVER_PER_WORK
        self._passed_over %= PASSED_OVER_PER_WORK
        eligibility.left = NOTHING if resources is left else left - resources

    def _place_gang(self, leaf: Leaf, pending: PendingDemand) -> tuple[GangPlace, ...]:
        """Return the places of all members of a gang; empty if it does not fit now."""
        visited = (self._agent, self._eligibility)
        search = GangSearch(self._state, self._now, self._backing_off, visited)
        places = search.find(leaf, pending)
        self._eligibility.work += search.work
        return places

    def _deal_gang(self, leaf: Leaf, pending: PendingDemand, places: tuple[GangPlace, ...]) -> None:
        """Deal to all members of a gang: of this agent, and of others at once."""
        eligibility, agents = self._eligibility, self._state.agents
        self._note_taker(leaf)
        # Agents may have the same ports.
        whole = sum_of(Resources(place.resources.scalars) for place in places)
        number = self._tree.deal(leaf, whole.scalars, len(places))
        dealt = eligibility.dealt.setdefault(leaf, Dealt())
        for agent_id, amount in places:
            if agent_id == self._agent.agent_id:
                eligibility.left = eligibility.left - amount
                dealt.of_gangs = dealt.of_gangs + amount
            else:
                agents.take(agent_id, amount)
                self._use_up(agents.agents[agent_id], leaf, amount)
            agents.agents[agent_id].count_tasks(leaf.framework_id, 1)
        pending.outstanding += 1
        self._state.gatherings.placed(pending)
        first, units = places[0].agent_id, ((pending.demand.unit, 1),)
        place = (leaf.framework_id, leaf.role, first)
        dealt.gangs += (Grant(*place, whole, units, (number,), pending.shape, places),)
        eligibility.work += len(places)

    def _use_up(self, agent: PooledAgent, leaf: Leaf, dealt: Resources) -> bool:
        """Reduce what is reserved or earmarked for a leaf; return whether it had an earmark."""
        agents, mark = self._state.agents, agent.earmark
        has_mark = mark is not None and mark.leaf is leaf
        if mark is not None and has_mark:
            agents.earmark(agent, mark.without(dealt))
        if agent.reservations:
            kept = dealt_to_owner(agent, leaf.framework_id, leaf.role, dealt)
            if kept != agent.reservations:
                agents.reserve(agent.agent_id, kept)
        return has_mark

    def _note_taker(self, leaf: Leaf) -> None:
        before = self._eligibility.last_taker
        needs = self._tree.has_guarantees and leaf.is_needy
        taker = self._eligibility.last_taker = (leaf, needs)
        if before is None or before[0] is not leaf:
            self._tree.takers.append(taker)

    def _grants(self, leaf: Leaf, dealt: Dealt) -> Iterator[Grant]:
        """Record the deals of a framework; yield a grant to offer, and one per shape to launch."""
        agent, agents = self._agent, self._state.agents
        agents.set_free(agent, self._eligibility.left)
        if (agent.earmark or agent.reservations) and self._use_up(agent, leaf, dealt.resources):
            self._eligibility.is_contended = True
        self._tree.relist(leaf)
        if dealt.least and any(0 < each.least < before for each, before in dealt.least.items()):
            # The rest of its demand is below the minimum of an offer, so agents with less free
            # may do.
            agents.mark_all_dirty(leaf)
        if leaf.limited:
            self._state.waiters.update_surplus(leaf)
            # A framework that demands scarce resources may be at its limit now.
            agents.mark_withheld_dirty()
        leaf.reservations.discard(agent.agent_id)
        agents.release_reservations(leaf)
        place = (leaf.framework_id, leaf.role, agent.agent_id)
        yield from dealt.gangs
        for pending, part in dealt.queued.items():
            queued = ((pending.demand.unit, dealt.units.pop(pending)),)
            numbers, devices = tuple(part.numbers), tuple(part.devices)
            yield Grant(*place, part.resources, queued, numbers, pending.shape, devices=devices)
        if dealt.numbers:
            units = tuple([(each.demand.unit, number) for each, number in dealt.units.items()])
            yield Grant(*place, dealt.offered, units, tuple(dealt.numbers))
