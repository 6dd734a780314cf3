"""Which of two frameworks comes first, also after deals that are only imagined.

They are compared where their paths part. Who is below a guarantee comes before all who are not,
until it is met; of two who are, who has less of it; of others, who has less share over weight.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.node import Amounts, Leaf, Level, Node
from croupier.master.allocator.policies.level import least, needy
from croupier.master.allocator.tree import Tree


def is_ahead(tree: Tree, one: Leaf, other: Leaf, unit: Mapping[str, int], units: int = 1) -> bool:
    """Whether `other` is to have `units` besides before `one` has any more.

    By share that is if `one` would hold no less than `other` even then; by guarantee if
    `other` is below its own until the last of them.
    """
    left, right = _parting(one, other)
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
    """The least level of the nodes from `leaf` to `top` that are below their guarantees.

    It is as if the leaf held `units` of `unit` besides; None if no node is below.
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


def _parting(one: Leaf, other: Leaf) -> tuple[Node, Node]:
    """The siblings through which two different leaves hang below the last role they share."""
    theirs = {node.parent: node for node in other.path}
    for node in one.path:
        if node.parent in theirs:
            return node, theirs[node.parent]
    raise AssertionError("every path ends at the root")
