"""Entitlements of roles as they would be with other settings, without changing the tree.

Only the paths from changed roles to the root are recomputed, on copies of their nodes. Nothing
below a role whose entitlement stays is visited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from croupier.master.allocator.entitlements import Entitlements, direction_of
from croupier.master.allocator.node import Node, RoleNode, add_amounts
from croupier.master.allocator.tree import Tree
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, ancestors


class WhatIf:
    """The tree as it would be with `changes`; the tree itself must not change meanwhile."""

    def __init__(self, tree: Tree, changes: Mapping[Role, RoleSettings]) -> None:
        """Apply `changes` to copies. O(children of the changed roles and of those above them)."""
        tree.refresh()
        self._tree = tree
        self._imagined = _imagine(tree, changes)
        settings = (*tree.settings.values(), *changes.values())
        totals = tree.totals if any(each.limit for each in settings) else None
        self._before = Entitlements(tree.root, totals=totals)
        self._after = Entitlements(tree.root, self._imagined, totals)

    def entitlement(self, role: Role) -> Fraction:
        """Return the role's would-be entitlement; 0 if it holds and wants nothing. O(depth)."""
        node = self._tree.roles.get(role)
        return Fraction(0) if node is None else self._after.of(node)

    def moved(self) -> Iterator[Role]:
        """Yield the roles whose entitlement would change, in no order. O(those)."""
        waiting = [self._tree.root]
        while waiting:
            for node in waiting.pop().children.values():
                if node.weighted_direction is None:
                    # It holds and wants nothing, and so does everything below it.
                    continue
                is_moved = self._before.of(node) != self._after.of(node)
                if is_moved:
                    yield node.role
                if is_moved or node in self._imagined:
                    waiting.append(node)


def _imagine(tree: Tree, changes: Mapping[Role, RoleSettings]) -> dict[Node, RoleNode]:
    """Return a copy of each changed role, and of each role above one."""
    touched = {tree.root: None} if changes else {}
    for role in changes:
        for each in (role, *ancestors(role)):
            if each in tree.roles:
                touched[tree.roles[each]] = None
    found: dict[Node, RoleNode] = {}
    below: dict[RoleNode, list[RoleNode]] = {}
    for node in sorted(touched, key=lambda node: node.depth, reverse=True):
        copy = RoleNode(node.role, None, 0)
        copy.settings = changes.get(node.role, node.settings)
        copy.weight = copy.settings.weight
        copy.direction_sum = dict(node.direction_sum)
        for child in below.get(node, ()):
            add_amounts(copy.direction_sum, found[child].weighted_direction or {}, 1)
            add_amounts(copy.direction_sum, child.weighted_direction or {}, -1)
        if node.weighted_direction is not None:
            direction = direction_of(copy, tree.totals)
            copy.weighted_direction = {name: copy.weight * part for name, part in direction.items()}
        found[node] = copy
        if isinstance(node.parent, RoleNode):
            below.setdefault(node.parent, []).append(node)
    return found
