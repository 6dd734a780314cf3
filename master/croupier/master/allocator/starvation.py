"""Starvation: frameworks below their entitlement, with unmet demand, for too long.

A framework is below if its dominant share is less than the tolerance times its entitlement, or if a
role that it is in is below its guarantee. It must have declared demand, as its need is unknown
otherwise. It must not have declined an offer within the cool-down, and must not back off; neither
counts for its submitted tasks. A check that finds it not below resets its clock.

Shares and entitlements are those after projected changes. They are pairs of integers, compared by
cross-multiplication: exact, and many times faster than reduced fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from croupier.master.allocator import limits
from croupier.master.allocator.entitlements import Entitlements, Q, Ratio, direction_of
from croupier.master.allocator.node import Amounts, Branch, Leaf, Node, RoleNode, Turn, add_amounts
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.state import AllocatorState
from croupier.master.allocator.tree import Tree
from croupier.model.errors import InvalidRequest


class ShareProjection:
    """The share tree, as it would be if frameworks held more or less."""

    def __init__(self, tree: Tree) -> None:
        """Start with the tree as it is. It must not change while this is used."""
        self._totals = tree.totals
        self._entitlements = Entitlements(tree.root)
        self._held: dict[Node, Amounts] = {}
        self._left: dict[Branch, Ratio] = {}

    def change(self, leaf: Leaf, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Project that the leaf holds more, or less with `sign` -1. O(depth x resources)."""
        for node in leaf.path:
            held = self._held.get(node)
            if held is None:
                held = self._held[node] = dict(node.held)
            add_amounts(held, scalars, sign)

    def share(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> Ratio:
        """Return its dominant share over its weights by resource, after one more `change`."""
        held: Mapping[str, int] = self._held.get(node, node.held)
        if change:
            held = changed = dict(held)
            add_amounts(changed, change, sign)
        return self._share_of(node, held)

    def _share_of(self, node: Node, held: Mapping[str, int]) -> Ratio:
        weights = node.settings.resource_weights
        if not weights:
            return self._totals.dominant(held), self._totals.whole
        over = lcm(1000, *weights.values())
        shares = (
            share * 1000 * (over // weights.get(name, 1000))
            for name, share in self._totals.shares(held).items()
        )
        return max(shares, default=0), self._totals.whole * over

    def satisfaction(
        self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1
    ) -> Ratio:
        """Return its share over its entitlement; 1 is exactly its entitlement."""
        share, whole = self.share(node, change, sign)
        entitled, over = self._entitlements.ratio(node)
        return share * over, whole * entitled

    def satisfaction_of(self, node: Node, scalars: Mapping[str, int]) -> Ratio:
        """Return the share of `scalars` alone over the node's entitlement."""
        share, whole = self._share_of(node, scalars)
        entitled, over = self._entitlements.ratio(node)
        return share * over, whole * entitled

    def is_needy(self, node: Node, change: Mapping[str, int] | None = None, sign: int = 1) -> bool:
        """Return whether it would be below its guarantee; see `policies.policy`.

        A node that has some of its guarantee now may not lose the last of it.
        """
        promised = {name: milli for name, milli in node.settings.guarantee.items() if milli}
        if not promised or (node.held and not any(name in node.held for name in promised)):
            return False
        held = dict(self._held.get(node, node.held))
        add_amounts(held, change or {}, sign)
        return all(held.get(name, 0) < milli for name, milli in promised.items())

    def left_by_guarantees(self, role: Branch) -> Ratio:
        """Return the fraction of their entitlements that the children keep if guarantees are met.

        It is 1 unless a guarantee exceeds its role's entitlement without it.
        """
        known = self._left.get(role)
        if known is None:
            known = self._left[role] = self._left_by_guarantees(role)
        return known

    def _left_by_guarantees(self, role: Branch) -> Ratio:
        promised = entitled = Fraction(0)
        for node in role.children.values():
            if node.weighted_direction is None or not node.settings.guarantee:
                continue
            floor, usual = self._promised(node), self._entitlements.of(node)
            if floor > usual:
                promised, entitled = promised + floor, entitled + usual
        whole = self._entitlements.of(role)
        if promised >= whole or entitled >= whole:
            return 0, 1
        left = (whole - promised) / (whole - entitled)
        return left.numerator, left.denominator

    def _promised(self, node: RoleNode) -> Fraction:
        """Return the dominant share of the node once its guarantee is met.

        It exceeds the share of the guarantee if its tasks use more of another resource.
        """
        guarantee = node.settings.guarantee
        direction = direction_of(node, self._totals)
        needed = [
            self._totals.share({name: milli}) * Q / direction[name]
            for name, milli in guarantee.items()
            if milli and direction.get(name)
        ]
        return max(self._totals.share(guarantee), min(needed, default=Fraction(0)))


def is_below(one: Ratio, other: Ratio) -> bool:
    """Return whether one fraction is less than another; neither is below 0."""
    return one[0] * other[1] < other[0] * one[1]


def may_preempt(node: Node, by_default: bool) -> bool:
    """Return whether operators allow the node to preempt and be preempted."""
    for each in node.path:
        if isinstance(each, RoleNode) and each.settings.preemption is not None:
            return each.settings.preemption
    return by_default


def min_run_ms(node: Node) -> int:
    """Return the time for which tasks in the node run before they may be preempted."""
    for each in node.path:
        if isinstance(each, RoleNode) and each.settings.min_run_ms is not None:
            return each.settings.min_run_ms
    return 0


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Rules of preemption; times are in seconds.

    Attributes:
        is_on: whether there is preemption where no role's setting decides.
        tolerance: how much of its entitlement a framework must have, above 0 and at most 1.
        fair_timeout_s: how long a framework may be below that.
        guarantee_timeout_s: how long a role may be below its guarantee while a framework in
            it wants more.
        grace_s: how long a framework has to end tasks that it was asked to end.
        min_age_s: tasks that have run for less are not preempted.
        earmark_s: how long freed resources are earmarked for it, after the grace.
        cooldown_s: how long a framework that declined does not count as starving.
        at_once: the most preemptions of one look; after a full look the next one is sooner.
    """

    is_on: bool = False
    tolerance: Fraction = Fraction(4, 5)
    fair_timeout_s: float = 60.0
    guarantee_timeout_s: float = 15.0
    grace_s: float = 30.0
    min_age_s: float = 0.0
    earmark_s: float = 60.0
    cooldown_s: float = 60.0
    at_once: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 1:
            raise InvalidRequest("the tolerance of preemption must be above 0 and at most 1")
        times = (
            self.fair_timeout_s,
            self.guarantee_timeout_s,
            self.grace_s,
            self.min_age_s,
            self.earmark_s,
            self.cooldown_s,
        )
        if not all(0 <= seconds <= 7 * 86400 for seconds in times):
            raise InvalidRequest("the times of preemption must be between 0 and 7 days")


@dataclass(frozen=True, slots=True)
class Starving:
    """A framework that starves.

    Attributes:
        wanted: its demand that may be met by preemption.
        since: when a look first found it below.
        satisfaction: its share over its entitlement.
        by_guarantee: whether a role that it is in is below its guarantee.
    """

    leaf: Leaf
    wanted: Sequence[PendingDemand]
    since: float
    satisfaction: Ratio
    by_guarantee: bool


class Starvation:
    """The times since when frameworks are below."""

    def __init__(self, state: AllocatorState, rules: PreemptionRules) -> None:
        self._tree, self._back_off, self._rules = state.tree, state.back_off, rules
        self._agents = state.agents
        self._since: dict[Leaf, float] = {}
        self._excused: dict[Leaf, float] = {}

    def excuse(self, leaf: Leaf, now: float) -> None:
        """Reset the clock of a leaf that declined; it does not starve for the cool-down.

        The clock of a leaf with submitted tasks goes on, for these.
        """
        self._excused[leaf] = now + self._rules.cooldown_s
        if not leaf.queued:
            self._since.pop(leaf, None)

    def look(self, projection: ShareProjection, now: float) -> list[Starving]:
        """Return the frameworks that starve now, the least satisfied first. O(leaves x depth)."""
        self._excused = {leaf: until for leaf, until in self._excused.items() if until > now}
        since: dict[Leaf, float] = {}
        starving: list[Starving] = []
        for leaf in self._tree.in_order():
            found = self._judge(projection, leaf, now)
            if found is None:
                continue
            since[leaf] = found.since
            if now - found.since >= self._timeout_s(found.by_guarantee):
                starving.append(found)
        self._since = since
        starving.sort(
            key=lambda each: (
                not each.by_guarantee,
                Fraction(*each.satisfaction),
                each.leaf.arrival,
            )
        )
        return starving

    def overdue(self, projection: ShareProjection, leaf: Leaf, now: float) -> Starving | None:
        """Return the leaf's starvation if it has lasted for longer than its timeout."""
        found = self._judge(projection, leaf, now)
        is_due = found is not None and now - found.since >= self._timeout_s(found.by_guarantee)
        return found if is_due else None

    def describe(self, projection: ShareProjection, leaf: Leaf, now: float) -> str:
        """Return in words whether and when the master preempts for the leaf."""
        if not leaf.pending:
            return "it declares no demand, so no room is made for it"
        if all(each.gang is not None for each in leaf.pending):
            return "nothing is preempted for a gang: no room is made for it"
        if leaf.role_node.turn is not Turn.USUAL:
            return "the budget of its role is used up: no room is made for it"
        excused = self._excused.get(leaf, now) - now
        if excused > 0 and not leaf.queued:
            return f"it declined an offer: no room is made for it for another {excused:.0f} s"
        backs_off = self._back_off.active(now).get(leaf.party, now) - now
        if backs_off > 0 and not leaf.queued:
            return (
                f"it left offers unanswered: no room is made for it for another {backs_off:.0f} s"
            )
        if not self.is_below(projection, leaf):
            least = float(self._rules.tolerance)
            return f"it has at least {least:g} of its entitlement: no room is made for it"
        if not any(other.held for other in self._tree.leaves.values() if other is not leaf):
            return "no other framework holds anything: nothing can be taken back for it"
        if not self._could_fit(leaf):
            return "no agent has room for what it wants, even if all were free: none is made for it"
        rules, by_guarantee = self._rules, _needs(projection, leaf)
        since = self._since.get(leaf, now)
        due = since + self._timeout_s(by_guarantee) - now
        what = "a guarantee" if by_guarantee else f"{float(rules.tolerance):g} of its entitlement"
        so_far = f"it has been below {what} for {now - since:.0f} s"
        if due > 0:
            return f"{so_far}: other frameworks are asked to end tasks for it in {due:.0f} s"
        return (
            f"{so_far}, and nothing can be taken back for it now: every candidate would leave"
            " its owner below its own entitlement or guarantee, or free no room that fits"
        )

    def _could_fit(self, leaf: Leaf) -> bool:
        """Return whether an empty agent has room for any demand that has no gang. O(agents)."""
        return any(
            agent.owner is None
            and agent.units_within(each.demand.unit, each.needs, agent.whole, 1)
            and all(constraint.holds(agent.facts) for constraint in each.demand.constraints)
            for each in leaf.pending or ()
            if each.gang is None
            for agent in self._agents.agents.values()
        )

    def is_below(self, projection: ShareProjection, leaf: Leaf) -> bool:
        """Return whether the leaf is below its entitlement or a guarantee, whatever its demand."""
        return _needs(projection, leaf) or is_below(
            projection.satisfaction(leaf), self._rules.tolerance.as_integer_ratio()
        )

    def _timeout_s(self, by_guarantee: bool) -> float:
        rules = self._rules
        return rules.guarantee_timeout_s if by_guarantee else rules.fair_timeout_s

    def _judge(self, projection: ShareProjection, leaf: Leaf, now: float) -> Starving | None:
        wanted: Sequence[PendingDemand] = leaf.pending or ()
        last = self._back_off.active(now)
        if leaf in self._excused or (last and leaf.party in last):
            wanted = tuple(leaf.queued.values())
        # Room for a gang is on several agents.
        wanted = [each for each in wanted if each.gang is None]
        if not wanted or limits.is_blocked(leaf) or leaf.role_node.turn is not Turn.USUAL:
            return None
        if not may_preempt(leaf, self._rules.is_on) or not self.is_below(projection, leaf):
            return None
        return Starving(
            leaf,
            wanted,
            self._since.get(leaf, now),
            projection.satisfaction(leaf),
            _needs(projection, leaf),
        )


def _needs(projection: ShareProjection, leaf: Leaf) -> bool:
    return any(projection.is_needy(node) for node in leaf.path)
