"""A visit: deal what is free on one agent to the neediest who can use it.

One unit at a time goes to the framework that the policy puts first among those that can use
the agent, until nobody can: Algorithm 1 of the DRF paper (Ghodsi et al., NSDI 2011), machine
by machine as in its Theorem 7. A unit is a declared shape, or as many of it as an offer must
have at least; a framework that declares none takes the whole remainder. Units of one
framework on one agent are dealt as one grant.

A framework whose unit does not fit now is skipped, so nothing lies idle for want of a
large gap. Skipping alone would starve large units: under churn small tasks refill every
gap first. So when the next in line could use the very resource that the skipped one lacks,
and is ahead of it by more than its unit, or the skipped one is below a guarantee, the agent is kept
for the skipped one: for a bounded time, and more than one agent only for who is behind by more
than one unit.
"""

from __future__ import annotations

from collections.abc import Iterable

from croupier.master.allocator import refusals
from croupier.master.allocator.agent_pool import AgentPool, PooledAgent
from croupier.master.allocator.eligibility import Choice, Dealt, Look
from croupier.master.allocator.grant import Grant
from croupier.master.allocator.limit_waiters import LimitWaiters
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.reasons import Cause
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.tree import Tree
from croupier.model.resources import NOTHING

# A visit ends after so much work, about 10 ms of it, and the agent comes up again: units may
# be as small as a thousandth of a large agent. A deal is 1, and more where there are many
# ranges to carve from or many frameworks that room may be kept for.
WORK_IN_A_VISIT = 500
# Leaves passed over, that cannot use the agent as was found before, which are as much.
PASSED_OVER_PER_WORK = 200
# Causes for which an agent is left alone, if nobody is skipped.
_IN_THE_WAY = (Cause.DOES_NOT_FIT, Cause.IN_USE, Cause.OUTRANKED)


class Visit(Look):
    """Dealing one agent, within a pass.

    Attributes:
        looks: how many frameworks were looked at.
    """

    def __init__(
        self,
        agent: PooledAgent,
        tree: Tree,
        pool: AgentPool,
        waiters: LimitWaiters,
        rules: Rules,
        pass_number: int,
        now: float,
    ) -> None:
        """Look at `agent` at time `now`."""
        super().__init__(agent, tree, pool, rules, now)
        self._pass = pass_number
        self._waiters = waiters
        # Once a framework cannot use the agent it cannot for the rest of the visit:
        # what is left only shrinks.
        self._out: set[Leaf] = set()
        # What each that was found eligible would be dealt: of several the tree chooses one.
        self._choices: dict[Leaf, Choice] = {}
        self._passed_over = 0
        self._is_closed = False
        self.looks = 0

    def run(self, leaves: Iterable[Leaf] | None = None) -> list[Grant]:
        """Deal until nobody can use what is left, or there were very many deals.

        In the latter case the agent is unsettled again. With `leaves` nothing is dealt unless
        one of those can use the agent: the others could not before.
        """
        if leaves is not None and not self._is_of_use_to(leaves):
            self._note()
            return []
        agent = self._agent
        agent.is_waited_for = False
        again = self._deal_all(set())
        if not self._dealt and not again and not agent.is_dealt:
            # Everybody who can use the agent was asked: whoever was to wait for that is next.
            agent.filters.round += 1
            if self._waits_for_round:
                self._waits_for_round = False
                again = self._deal_all(set())
        grants = [self._grant(leaf, dealt) for leaf, dealt in self._dealt.items()]
        self._note()
        agent.is_dealt = agent.is_dealt or bool(grants)
        agent.is_waited_for = self._waits_for_round
        if again or (self._is_kept and grants):
            self._pool.mark_dirty(agent)
        return grants

    def _is_of_use_to(self, leaves: Iterable[Leaf]) -> bool:
        could = [leaf for leaf in leaves if leaf.is_listed and self._refused(leaf) is None]
        self._starved.clear()
        return bool(could) or self._waits_for_round

    def _note(self) -> None:
        """Have those wait whom limits left nothing or too little, or who are not for this agent."""
        if self._is_withheld:
            self._pool.withhold(self._agent)
        for leaf, is_cut in self._barred.items():
            if not self._waiters.park(leaf, is_cut=is_cut):
                # What it was dealt takes the place of offers that it wanted no more.
                self._pool.mark_all_dirty(leaf)
            if not leaf.is_listed:
                self._pool.release_reservations(leaf)

    def _deal_all(self, out: set[Leaf]) -> bool:
        """Deal to all but `out`; whether there was so much work that the agent must come again."""
        while True:
            self._out = set(out)
            self._starved.clear()
            if self._deal_units():
                return True
            if not self._agent.filters:
                return False
            refused = [leaf for leaf in self._dealt if self._was_refused(leaf)]
            if not refused:
                return False
            for leaf in refused:
                self._take_back(leaf)
            out |= set(refused)

    def _was_refused(self, leaf: Leaf) -> bool:
        """Whether what the leaf is dealt in the end comes to no more than it refused.

        There was more when it was found eligible, but others were dealt to as well.
        """
        return self._refuse_filtered(leaf, self._dealt[leaf].resources) is not None

    def _take_back(self, leaf: Leaf) -> None:
        dealt = self._dealt.pop(leaf)
        self._left = self._left + dealt.resources
        for want, units in dealt.units.items():
            want.outstanding -= units
        self._tree.withdraw(leaf, dealt.resources.scalars)
        self._tree.count_slots(leaf, -sum(dealt.units.values()) if dealt.units else -1)

    def _deal_units(self) -> bool:
        one_by_one = self._rules.order == "spread"
        neediest, is_eligible = self._tree.neediest, self._is_eligible
        while self._left:
            if self.work >= WORK_IN_A_VISIT or (one_by_one and self._dealt):
                return True
            leaf = neediest(is_eligible)
            if leaf is None:
                break
            self._deal(leaf)
        return False

    def _is_eligible(self, leaf: Leaf) -> bool:
        if leaf in self._out or self._is_closed:
            self._passed_over += 1
            return False
        cause = self._refused(leaf)
        if cause is None:
            self._choices[leaf] = self._choice
            return True
        self._out.add(leaf)
        if not self._rules.skips and cause in _IN_THE_WAY:
            self._is_closed = True
        return False

    def _refused(self, leaf: Leaf) -> Cause | None:
        """Why the leaf is not dealt to, noted with it; None if it may be."""
        self.looks += 1
        refusal = self.refusal(leaf)
        if refusal is None:
            owner = self._kept_for(leaf) if self._starved else None
            if owner is None:
                return None
            refusal = (Cause.KEPT, refusals.KeptFor.now(owner))
            self._is_kept = True
        leaf.reasons.note(refusal[0], self._pass, self._agent.agent_id, refusal[1])
        return refusal[0]

    def _deal(self, leaf: Leaf) -> None:
        want, units, room = self._choices[leaf]
        resources = room if want is None else want.demand.unit.carve(self._left, units)
        before = self._taker
        needs = self._tree.has_guarantees and leaf.is_needy
        self._taker = (leaf, needs, dict(leaf.held))
        if before is None or before[0] is not leaf:
            self._tree.takers.append(self._taker)
        dealt = self._dealt.get(leaf)
        # What comes to a whole remainder is one slot, however often it is added to.
        slots = units if want is not None or dealt is None else 0
        number = self._tree.deal(leaf, resources.scalars, slots)
        if dealt is None:
            dealt = self._dealt[leaf] = Dealt()
        dealt.numbers.append(number)
        dealt.resources = dealt.resources + resources
        if want is not None:
            dealt.least.setdefault(want, want.least)
            want.outstanding += units
            dealt.units[want] = dealt.units.get(want, 0) + units
        pieces = sum(map(len, self._left.ranges.values()))
        self.work += 1 + (pieces + len(self._starved)) // 20
        self.work += self._passed_over // PASSED_OVER_PER_WORK
        self._passed_over %= PASSED_OVER_PER_WORK
        self._left = NOTHING if resources is self._left else self._left - resources

    def _grant(self, leaf: Leaf, dealt: Dealt) -> Grant:
        self._pool.set_free(self._agent, self._left)
        mark = self._agent.earmark
        if mark is not None and mark.leaf is leaf:
            self._pool.earmark(self._agent, mark.without(dealt.resources))
            self._is_kept = True
        leaf.reasons.clear()
        self._tree.relist(leaf)
        if dealt.least and any(0 < want.least < before for want, before in dealt.least.items()):
            # What is left of it is less than an offer must have: smaller rooms will do.
            self._pool.mark_all_dirty(leaf)
        if leaf.limited:
            self._waiters.update_surplus(leaf)
            # Who asked for what is scarce may be at the limit now.
            self._pool.mark_withheld_dirty()
        leaf.reservations.let_go(self._agent.agent_id)
        self._pool.release_reservations(leaf)
        return Grant(
            leaf.framework_id,
            leaf.role,
            self._agent.agent_id,
            dealt.resources,
            tuple([(want.demand.unit, number) for want, number in dealt.units.items()]),
            tuple(dealt.numbers),
        )
