"""Who waits for room under a limit.

A want for which a limit has no room waits at the role whose limit that is; a framework all of
whose wants wait is parked: it stands in no order. When room returns below a role, whoever
waits there is looked at. Of the limits that bar a want the nearest alone is watched: as long
as that has no room the others do not matter.
"""

from __future__ import annotations

from croupier.master.allocator import limits
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.tree import Tree


def bar(leaf: Leaf, tree: Tree, *, is_cut: bool = False) -> bool:
    """Have what limits bar to the leaf wait, if there is any; whether there is.

    If that is all that it wants, the leaf is parked.

    With `is_cut` the limits have some room, but what they leave of an agent is not worth an
    offer: then any room more may be.
    """
    found = limits.barriers(leaf)
    bounds = [bound for _, bound in found if bound is not None]
    if is_cut:
        leaf.wait_at(leaf.limited, [want for want, _ in found])
    else:
        barred = [want for want, bound in found if bound is not None]
        leaf.wait_at(dict.fromkeys(pool for pool, _ in bounds), barred)
    leaf.parked_by = bounds[0][0] if bounds and len(bounds) == len(found) else None
    tree.relist(leaf)
    return bool(leaf.waits_at)


def admitted(leaf: Leaf, tree: Tree) -> list[Leaf]:
    """Those who wait no more, after `leaf` gave something back. O(who waits above it)."""
    waiting = dict.fromkeys(each for pool in leaf.limited for each in pool.waiting)
    return [each for each in waiting if _admit(each, tree)]


def _admit(leaf: Leaf, tree: Tree) -> bool:
    for want, bound in limits.barriers(leaf):
        if bound is None and (want in leaf.barred or leaf.parked_by is not None):
            tree.unpark(leaf)
            return True
    # What was watched may have room, but another limit none.
    bar(leaf, tree)
    return False
