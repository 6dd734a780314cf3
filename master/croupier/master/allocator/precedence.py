"""The order of two frameworks, now or after hypothetical deals.

They are compared where their paths part. A framework below a guarantee comes before all that are
not, until the guarantee is met. Of two below guarantees, the less fulfilled comes first; of two
others, the one with less share over weight.
"""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.node import Amounts, Leaf, Level, Node, diverging
from croupier.master.allocator.policies.level import least, needy
from croupier.master.allocator.tree import Tree


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
