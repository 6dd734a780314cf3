"""What roles would be entitled to with other settings, without setting them.

Only the paths from changed roles to the root are worked out anew, on stand-ins; nothing of the
tree is touched. Below a role that would not move, nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import gcd

from croupier.master.allocator.directions import direction_of, lift_of
from croupier.master.allocator.node import RoleNode, add_amounts
from croupier.master.allocator.tree import Tree
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, ancestors

# What an entitlement would be multiplied by.
Ratio = tuple[int, int]
_SAME: Ratio = (1, 1)


class WhatIf:
    """The tree as it is, and as it would be with `changes`. It must not change meanwhile."""

    def __init__(self, tree: Tree, changes: Mapping[Role, RoleSettings]) -> None:
        """Imagine `changes`. O(children of the changed roles and of those above them)."""
        tree.refresh()
        self._tree = tree
        self._stand_ins = _stand_ins(tree, changes)

    def entitlement(self, role: Role) -> Fraction:
        """What the role would be entitled to; 0 if nobody in it wants or holds anything.

        O(depth).
        """
        pool = self._tree.roles.get(role)
        if pool is None:
            return Fraction(0)
        entitled, whole = 1, 1
        while pool.parent is not None:
            if pool.weighted_direction is None:
                return Fraction(0)
            up, down = lift_of(self._imagined(pool.parent))
            entitled *= self._imagined(pool).weight * down
            whole *= up
            pool = pool.parent
        return Fraction(entitled, whole)

    def moved(self) -> Iterator[Role]:
        """The roles whose entitlement would be another, in no order. O(those)."""
        waiting: list[tuple[RoleNode, Ratio]] = [(self._tree.root, _SAME)]
        while waiting:
            pool, ratio = waiting.pop()
            for child in pool.children.values():
                if child.weighted_direction is None:
                    # Nobody in it wants or holds anything, and so nobody below.
                    continue
                its = self._ratio(pool, child, ratio)
                if its != _SAME:
                    yield child.role
                if its != _SAME or child in self._stand_ins:
                    waiting.append((child, its))

    def _ratio(self, pool: RoleNode, child: RoleNode, ratio: Ratio) -> Ratio:
        if pool not in self._stand_ins:
            return ratio
        (up, down), (new_up, new_down) = lift_of(pool), lift_of(self._imagined(pool))
        more = ratio[0] * self._imagined(child).weight * new_down * up
        less = ratio[1] * child.weight * down * new_up
        common = gcd(more, less)
        return more // common, less // common

    def _imagined(self, pool: RoleNode) -> RoleNode:
        return self._stand_ins.get(pool, pool)


def _stand_ins(tree: Tree, changes: Mapping[Role, RoleSettings]) -> dict[RoleNode, RoleNode]:
    """For each role that is changed, and each above one, how it would be."""
    touched = {tree.root: None} if changes else {}
    for role in changes:
        for each in (role, *ancestors(role)):
            if each in tree.roles:
                touched[tree.roles[each]] = None
    found: dict[RoleNode, RoleNode] = {}
    below: dict[RoleNode, list[RoleNode]] = {}
    for pool in sorted(touched, key=lambda pool: pool.depth, reverse=True):
        stand_in = RoleNode(pool.role, None, 0)
        stand_in.settings = changes.get(pool.role, pool.settings)
        stand_in.weight = stand_in.settings.weight
        stand_in.direction_sum = dict(pool.direction_sum)
        for child in below.get(pool, ()):
            add_amounts(stand_in.direction_sum, found[child].weighted_direction or {}, 1)
            add_amounts(stand_in.direction_sum, child.weighted_direction or {}, -1)
        if pool.weighted_direction is not None:
            direction = direction_of(stand_in, tree.totals)
            stand_in.weighted_direction = {
                name: stand_in.weight * part for name, part in direction.items()
            }
        found[pool] = stand_in
        if pool.parent is not None:
            below.setdefault(pool.parent, []).append(pool)
    return found
