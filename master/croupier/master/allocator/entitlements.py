"""Entitlements: the part of the cluster that is due to each node of the share tree.

The direction of a node is the mix of resources in which its usage grows: a vector scaled so that
its largest component is Q, after the node's weights by resource. The direction of a leaf is that of
the resources that its tasks use, or of its demand while it runs no task. Offers do not count, so a
shape that is declared but not used cannot enlarge a role's entitlement. The direction of a
principal is that of the resources that the tasks of all its frameworks use, as if it had one
framework; the sum of theirs while they run no task. The direction of a role is the weighted sum of
its children's. The largest component of that sum says how much the children can have together:
siblings that need complementary resources are entitled to more than their weights alone would give.

The definition and its proofs are cited in `policies.drf`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from croupier.master.allocator.node import (
    Amounts,
    Branch,
    Leaf,
    Node,
    PrincipalNode,
    RoleNode,
    add_amounts,
)
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.share import Totals, largest
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, ancestors

if TYPE_CHECKING:
    from croupier.master.allocator.tree import Tree

Q = 1 << 16
# More than any share over weight.
_WITHOUT = Fraction(1 << 64)
# Numerator and denominator, not reduced.
Ratio = tuple[int, int]


class Entitlements:
    """The entitlement of each node, computed on demand from the root down.

    `imagined` replaces roles by nodes with other settings. With `totals`, limits count: a role is
    entitled to its limit at most, and what that leaves is divided among its siblings. It is exact
    where all below a role need the same resource. Without, limits of others do not count, as
    preemption needs it: no role may preempt for what only the limit of a sibling leaves.
    """

    def __init__(
        self,
        root: RoleNode,
        imagined: Mapping[Node, RoleNode] | None = None,
        totals: Totals | None = None,
    ) -> None:
        """Read the tree below `root`, which must not change while this is used."""
        self._ratios: dict[Node, Ratio] = {root: (1, 1)}
        self._lifts: dict[Branch, Ratio] = {}
        self._imagined = imagined or {}
        self._totals = totals
        # By role with limited roles right below it: the share over weight that children reach.
        self._keys: dict[Branch, Fraction | None] = {}
        self._highest: dict[Node, Fraction] = {}

    def ratio(self, node: Node) -> Ratio:
        """Return the node's entitlement; 0 if it neither holds nor wants anything. O(depth)."""
        known = self._ratios.get(node)
        if known is None:
            parent = node.parent
            assert parent is not None
            if node.weighted_direction is None:
                known = (0, 1)
            else:
                entitled, whole = self.ratio(parent)
                lift = self._lifts.get(parent)
                if lift is None:
                    lift = self._lifts[parent] = lift_of(self._imagined.get(parent, parent))
                up, down = lift
                weight = self._imagined.get(node, node).weight
                known = (entitled * weight * down, whole * up)
                if self._totals is not None:
                    known = self._limited(node, parent, weight) or known
            self._ratios[node] = known
        return known

    def of(self, node: Node) -> Fraction:
        """Return the node's entitlement as a reduced fraction."""
        return Fraction(*self.ratio(node))

    def _limited(self, node: Node, parent: Branch, weight: int) -> Ratio | None:
        """Return the node's entitlement under limits; None if no sibling's limit matters."""
        if parent not in self._keys:
            self._keys[parent] = self._key_below(parent)
        key = self._keys[parent]
        if key is None:
            return None
        key = min(key, self._most(node))
        return weight * key.numerator, key.denominator

    def _key_below(self, parent: Branch) -> Fraction | None:
        """Return the share over weight that no limited child lowers; None without such a child.

        Children whose limits are below it have their limits, the least first; the others share
        what the direction of the parent leaves.
        """
        limited = [
            (self._most(node), number, node)
            for number, node in enumerate(parent.children.values())
            if node.weighted_direction is not None and self._most(node) != _WITHOUT
        ]
        if not limited:
            return None
        role = self._imagined.get(parent, parent)
        weights, entitled = role.settings.resource_weights, Fraction(*self.ratio(parent))
        parts = dict(role.direction_sum)
        left = {name: entitled * Q * weights.get(name, 1000) / 1000 for name in parts}
        highest = Fraction(max(left.values(), default=Fraction(0)))
        for most, _, node in sorted(limited):
            key = min((left[name] / part for name, part in parts.items() if part), default=highest)
            if most >= key:
                return key
            for name, part in (self._imagined.get(node, node).weighted_direction or {}).items():
                if part:
                    left[name] -= most * part
                    parts[name] -= part
        return min((left[name] / part for name, part in parts.items() if part), default=highest)

    def _most(self, node: Node) -> Fraction:
        """Return the share over weight that limits at or below the node allow it."""
        known = self._highest.get(node)
        if known is None:
            known = self._highest[node] = min(self._own_most(node), self._most_below(node))
        return known

    def _own_most(self, node: Node) -> Fraction:
        assert self._totals is not None
        known = self._imagined.get(node, node)
        direction = known.weighted_direction or {}
        found = [
            self._totals.share({name: milli}) * Q / direction[name]
            for name, milli in known.settings.limit.items()
            if direction.get(name)
        ]
        return min(found, default=_WITHOUT)

    def _most_below(self, node: Node) -> Fraction:
        """Return the same for the limits of all children together."""
        if not isinstance(node, RoleNode):
            return _WITHOUT
        known, used = self._imagined.get(node, node), dict[str, Fraction]()
        for child in node.below():
            if child.weighted_direction is None:
                continue
            most = self._most(child)
            if most == _WITHOUT:
                return _WITHOUT
            direction = self._imagined.get(child, child).weighted_direction or {}
            for name, part in direction.items():
                used[name] = used.get(name, Fraction(0)) + most * part
        weights = known.settings.resource_weights
        shares = (part * 1000 / (Q * weights.get(name, 1000)) for name, part in used.items())
        return max(shares, default=Fraction(0)) / known.weight


def lift_of(role: Branch) -> Ratio:
    """Return the fraction that brings a child's level over its weight to the role's scale."""
    weights = role.settings.resource_weights
    if not role.direction_sum:
        return 1, 1
    if not weights:
        return max(role.direction_sum.values()), Q
    best, over = largest(role.direction_sum, weights)
    return best, Q * over


def direction_of(node: Node, totals: Totals) -> Amounts:
    """Return the direction of a node that is alive."""
    if isinstance(node, Leaf):
        return _of_leaf(node, totals)
    assert isinstance(node, Branch)
    if isinstance(node, PrincipalNode) and node.used:
        return _scaled(node.used, totals, node.settings.resource_weights)
    up, over = lift_of(node)
    # Scaled so that the largest part, after the weights by resource, is Q; rounded up.
    return {name: -(-part * over // up) for name, part in node.direction_sum.items()}


def _of_leaf(leaf: Leaf, totals: Totals) -> Amounts:
    if leaf.used:
        return _scaled(leaf.used, totals, leaf.settings.resource_weights)
    if not leaf.pending:
        return _everywhere(totals)
    return _widest(
        _scaled(each.demand.unit.scalars, totals, leaf.settings.resource_weights)
        for each in leaf.pending
    )


def _scaled(amounts: Mapping[str, int], totals: Totals, weights: Mapping[str, int]) -> Amounts:
    shares = totals.shares(amounts)
    dominant, over = max(shares.values(), default=0), 1
    if weights:
        dominant, over = largest(shares, weights)
    if not dominant:
        return _everywhere(totals)
    return {name: -(-share * Q * over // dominant) for name, share in shares.items()}


def _everywhere(totals: Totals) -> Amounts:
    # In a cluster without resources yet, siblings compete for one that has no name.
    return dict.fromkeys(totals.amounts or ("",), Q)


def _widest(directions: Iterable[Amounts]) -> Amounts:
    widest: Amounts = {}
    for direction in directions:
        for name, part in direction.items():
            widest[name] = max(widest.get(name, 0), part)
    return widest


class WhatIf:
    """Entitlements as they would be with other settings, without changing the tree.

    Only the paths from changed roles to the root are recomputed, on copies of their nodes. Nothing
    below a role whose entitlement stays is visited. The tree must not change meanwhile.
    """

    def __init__(
        self, tree: Tree, changes: Mapping[Role, RoleSettings], past: Mapping[Role, PastUse] | None
    ) -> None:
        """Apply `changes` to copies; `past`: as in `Queries.what_if`.

        O(children of the changed roles and of those above them).
        """
        tree.refresh()
        self._tree = tree
        self._imagined = _imagine(tree, changes, tree.past if past is None else past)
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


def _imagine(
    tree: Tree, changes: Mapping[Role, RoleSettings], past: Mapping[Role, PastUse]
) -> dict[Node, RoleNode]:
    """Return a copy of each role whose settings or past use change, and of each role above one."""
    touched = {tree.root: None} if changes else {}
    others = [role for role in sorted(past) if past[role] != tree.past.get(role)]
    for role in (*changes, *others):
        for each in (role, *ancestors(role)):
            if each in tree.roles:
                touched[tree.roles[each]] = None
    found: dict[Node, RoleNode] = {}
    below: dict[RoleNode, list[RoleNode]] = {}
    for node in sorted(touched, key=lambda node: node.depth, reverse=True):
        copy = RoleNode(node.role, None, 0)
        copy.settings = changes.get(node.role, node.settings)
        copy.weight = tree.weight_of(node.role, copy.settings, past)
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
