"""Comparison of two frameworks: which is ahead, and why one came first, for `croupier why`.

They are compared where their paths part: the frameworks themselves if they have one parent, else
principals or roles. A framework below a guarantee comes before all that are not, until the
guarantee is met. Of two below guarantees, the less fulfilled comes first; of two others, the one
with less share over weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from croupier.master.allocator.node import (
    Amounts,
    Leaf,
    Level,
    Node,
    PrincipalNode,
    RoleNode,
    Taker,
    diverging,
)
from croupier.master.allocator.policies.policy import least, needy
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.roles import format_amounts
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


def taker_text(taker: Taker, leaf: Leaf, policy: str, totals: Totals) -> str:
    """Return who was dealt to last, and why it comes before `leaf`."""
    other, needs = taker
    text = f"{other.framework_id} in role {other.role} was dealt to last"
    guaranteed = guaranteed_node(other) if needs else None
    if guaranteed is not None:
        promised = format_amounts(guaranteed.settings.guarantee)
        return f"{text}, below the guarantee of {guaranteed.role} ({promised})"
    if policy in _WITHOUT_AMOUNTS:
        return f"{text}, {_WITHOUT_AMOUNTS[policy]}"
    sides, measure = diverging(other, leaf), _MEASURE.get(policy, "share")
    is_weighted = any(_is_weighted(side) for side in sides)
    if is_weighted:
        measure += " over weight"
    one, two = (
        f"of {_name(side)} {float(_measured(side, policy, totals)):.3f}"
        + (f" (weight {_weight(side)})" if is_weighted else "")
        for side in sides
    )
    return f"{text}; {measure} {one}, {two}"


def _measured(node: Node, policy: str, totals: Totals) -> Fraction:
    """Return the measure that the policy compares, over the weights of the node."""
    weight = Fraction(node.weight, MILLI)
    match policy:
        case "asset":
            shares = (totals.share({name: milli}) for name, milli in node.held.items())
            return sum(shares, Fraction(0)) / weight
        case "single-resource":
            return Fraction(node.held.get("cpus", 0), MILLI) / weight
        case "slots":
            return Fraction(node.slots) / weight
        case _:
            return totals.share(node.held, node.settings.resource_weights) / weight


def _is_weighted(node: Node) -> bool:
    return node.weight != MILLI or bool(node.settings.resource_weights)


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


def _weight(node: Node) -> str:
    settings = node.settings
    by_resource = [
        f"{name} x {format_milli(milli)}" for name, milli in settings.resource_weights.items()
    ]
    weight = format_milli(node.weight)
    if node.weight != settings.weight:
        weight += f" for past use, instead of {format_milli(settings.weight)}"
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
    share = tree.totals.share(_with(right.held, unit, units), right.settings.resource_weights)
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
