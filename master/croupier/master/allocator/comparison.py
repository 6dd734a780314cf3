"""Comparison of two frameworks: which is ahead, and why one came first, for `croupier why`.

They are compared where their paths part: the frameworks themselves if they have one parent, else
principals or roles. A framework below a guarantee comes before all that are not, until the
guarantee is met. Of two below guarantees, the less fulfilled comes first; of two others, the one
with less share over weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from croupier.master.allocator.node import (
    Amounts,
    Leaf,
    Level,
    Node,
    PrincipalNode,
    RoleNode,
    Taker,
    add_amounts,
    diverging,
)
from croupier.master.allocator.policies.policy import least, needy
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.roles import RoleSettings, format_amounts
from croupier.model.scalar import MILLI, format_milli

# The reason under policies that compare no amounts.
_WITHOUT_AMOUNTS: Mapping[str, str] = {
    "fifo": "which came first",
    "random": "which drew the earlier turn",
}
_MEASURE: Mapping[str, str] = {
    "asset": "sum of shares",
    "single-resource": "number of cpus",
    "slots": "number of slots",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of two nodes, as it was when the policy chose between them."""

    name: str
    held: Amounts
    slots: int
    settings: RoleSettings

    def measure(self, policy: str, totals: Totals) -> Fraction:
        """Return the measure that the policy compares, over the weights of the node."""
        weight = Fraction(self.settings.weight, MILLI)
        match policy:
            case "asset":
                shares = (totals.share({name: milli}) for name, milli in self.held.items())
                return sum(shares, Fraction(0)) / weight
            case "single-resource":
                return Fraction(self.held.get("cpus", 0), MILLI) / weight
            case "slots":
                return Fraction(self.slots) / weight
            case _:
                return totals.share(self.held, self.settings.resource_weights) / weight

    @property
    def is_weighted(self) -> bool:
        """Whether it has a weight other than 1."""
        return self.settings.weight != MILLI or bool(self.settings.resource_weights)


@dataclass(frozen=True, slots=True)
class TakenBy:
    """The agent was dealt to a framework that came first.

    Attributes:
        needs: whether the taker was below a guarantee.
    """

    taker: Leaf
    needs: bool
    theirs: Side
    mine: Side
    policy: str
    totals: Totals

    @property
    def role(self) -> str:
        """The role of the taker, or the role whose guarantee it was below."""
        guaranteed = guaranteed_node(self.taker) if self.needs else None
        return self.taker.role if guaranteed is None else guaranteed.role

    @property
    def rival(self) -> str:
        """The framework that came first."""
        return self.taker.framework_id

    def __str__(self) -> str:
        went = f"went to {taker_text(self.taker, needs=self.needs)}"
        if self.needs:
            return went
        if self.policy in _WITHOUT_AMOUNTS:
            return f"{went}, {_WITHOUT_AMOUNTS[self.policy]}"
        return f"{went}; {self._compared}"

    @property
    def _compared(self) -> str:
        measure = _MEASURE.get(self.policy, "share")
        if not (self.theirs.is_weighted or self.mine.is_weighted):
            return f"{measure} of {self._side(self.theirs)}, of {self._side(self.mine)}"
        measure += " over weight"
        return (
            f"{measure} of {self._side(self.theirs)} (weight {_weight(self.theirs)}),"
            f" of {self._side(self.mine)} (weight {_weight(self.mine)})"
        )

    def _side(self, side: Side) -> str:
        return f"{side.name} {float(side.measure(self.policy, self.totals)):.3f}"


def taken_by(taker: Taker, leaf: Leaf, policy: str, totals: Totals) -> TakenBy:
    """Compare `leaf` with `taker`, which was dealt to just before. O(depth + resources held)."""
    other, needs, before = taker
    theirs, mine = diverging(other, leaf)
    held = dict(theirs.held)
    if isinstance(theirs, Leaf):
        held = before
    else:
        add_amounts(held, other.held, -1)
        add_amounts(held, before, 1)
    return TakenBy(
        other,
        needs,
        Side(_name(theirs), held, max(theirs.slots - 1, 0), theirs.settings),
        Side(_name(mine), dict(mine.held), mine.slots, mine.settings),
        policy,
        totals,
    )


def taker_text(taker: Leaf, *, needs: bool, verb: str = "") -> str:
    """Return a framework with its role; with the guarantee that it was below if it `needs`."""
    text = f"{taker.framework_id} in role {taker.role}{verb}"
    guaranteed = guaranteed_node(taker) if needs else None
    if guaranteed is None:
        return text
    promised = format_amounts(guaranteed.settings.guarantee)
    return f"{text}, below the guarantee of {guaranteed.role} ({promised})"


def guaranteed_node(leaf: Leaf) -> RoleNode | None:
    """Return the nearest role at or above it that has a guarantee."""
    for node in leaf.path:
        if isinstance(node, RoleNode) and any(node.settings.guarantee.values()):
            return node
    return None


def _name(node: Node) -> str:
    if isinstance(node, PrincipalNode):
        return f"principal {node.name}"
    return f"role {node.role}" if isinstance(node, RoleNode) else node.name


def _weight(side: Side) -> str:
    weight = format_milli(side.settings.weight)
    by_resource = [
        f"{name} x {format_milli(milli)}" for name, milli in side.settings.resource_weights.items()
    ]
    return ", ".join([weight, *by_resource])


def is_ahead(tree: Tree, one: Leaf, other: Leaf, unit: Mapping[str, int], units: int = 1) -> bool:
    """Return whether `other` is due `units` more before `one` gets any.

    By share, if `other` would hold no more than `one` even then. By guarantee, if `other` is below
    its guarantee until the last of them.
    """
    left, right = diverging(one, other)
    if tree.has_guarantees:
        mine, theirs = _need_level(one, left), _need_level(other, right, unit, units - 1)
        if mine is None and theirs is not None:
            return True
        if mine is not None:
            after = _need_level(other, right, unit, units)
            return after is not None and after[1] * mine[2] <= mine[1] * after[2]
    held = _with(right.held, unit, units)
    share = tree.totals.share(held, right.settings.resource_weights)
    return tree.share_of(left) / left.weight >= share / right.weight


def _need_level(
    leaf: Leaf, top: Node, unit: Mapping[str, int] | None = None, units: int = 0
) -> Level | None:
    """Return the least level from `leaf` to `top` of a node below its guarantee; None if none is.

    The level is as if the leaf held `units` of `unit` more.
    """
    found: Level | None = None
    for node in leaf.path:
        if node.settings.guarantee:
            level = needy(node, _with(node.held, unit, units) if unit else None)
            if level is not None:
                found = level if found is None else least(found, level)
        if node is top:
            break
    return found


def _with(held: Amounts, unit: Mapping[str, int], units: int) -> Amounts:
    more = dict(held)
    for name, milli in unit.items() if units else ():
        more[name] = more.get(name, 0) + milli * units
    return more
