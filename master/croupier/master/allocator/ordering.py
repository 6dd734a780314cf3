"""Siblings in the order of the policy, updated as their holdings change.

The children of a node that have willing leaves are in a `SortedList` of entries `(key..., node)`.
A node's key never changes while it is in the list: the node is removed, keyed again and added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from croupier.master.allocator.entitlements import direction_of
from croupier.master.allocator.node import DEFAULT, Amounts, Branch, Leaf, Level, Node, RoleNode
from croupier.master.allocator.past_use import counted_weight
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.profiles import Profile
from croupier.master.allocator.share import Totals
from croupier.model.roles import HIGHEST_FACTOR, RoleSettings

Entry = tuple[Any, ...]


class Ordering:
    """Updates levels, directions and orders when holdings or demand change.

    `changes`: how often a direction changed, or all did.
    """

    def __init__(self, policy: Policy, totals: Totals) -> None:
        """Order by `policy`; directions are vectors of shares of `totals`."""
        self._policy = policy
        self._totals = totals
        self.changes = 0
        # What the keys have room for.
        self._depth = 0
        self._weight_bits = DEFAULT.weight.bit_length()
        self._is_stale = True

    def note_depth(self, node: Branch) -> None:
        """Make room for the depth of a new node."""
        if node.depth > self._depth:
            self._depth = node.depth
            self._is_stale = True

    def note_weight(self, settings: RoleSettings) -> None:
        """Make room for the weights of a role."""
        heaviest = settings.weight
        if settings.half_life_ms:
            heaviest = counted_weight(heaviest, HIGHEST_FACTOR)
        bits = max(heaviest, 1000).bit_length()
        if settings.resource_weights:
            bits += max(1000, *settings.resource_weights.values()).bit_length()
        if bits > self._weight_bits:
            self._weight_bits = bits
            self._is_stale = True

    @property
    def is_stale(self) -> bool:
        """Whether the order of shares may have changed since the last `refresh`."""
        return self._is_stale or self._totals.is_stale

    def refresh(self, root: RoleNode) -> None:
        """Key everything below `root` again if the order of shares may have changed."""
        if not self.is_stale:
            return
        self._totals.refresh()
        self._policy.scale(self._totals, self._depth, self._weight_bits)
        self._is_stale = False
        self._rebuild(root)

    def rekey(self, leaf: Leaf) -> None:
        """Update the path of a leaf."""
        own = self._policy.own
        for node in leaf.path:
            node.own = own(node)
            self.update_direction(node)
            self.reseat(node)

    def update_from(self, node: Node) -> None:
        """Update the path from `node` up to the first node that does not change."""
        for each in node.path:
            before = each.level
            each.own = self._policy.own(each)
            changed = self.update_direction(each)
            # A launch changes no place.
            if not each.willing or each.entry is None or each.entry != self.entry(each):
                self.reseat(each)
            if not changed and each.level == before and each is not node:
                break

    def update_direction(self, node: Node) -> bool:
        """Update the parent's direction sum by the node; return whether it changed."""
        role = node.parent
        assert role is not None
        before = node.weighted_direction
        after: Amounts | None = None
        if node.is_alive:
            weight = node.weight
            after = {n: weight * part for n, part in direction_of(node, self._totals).items()}
        if after == before:
            return False
        role.alive += (after is not None) - (before is not None)
        self.changes += 1
        node.weighted_direction = after
        direction_sum = role.direction_sum
        if before is not None:
            for name, part in before.items():
                direction_sum[name] -= part
                if not direction_sum[name]:
                    del direction_sum[name]
        if after is not None:
            for name, part in after.items():
                if part:
                    direction_sum[name] = direction_sum.get(name, 0) + part
        return True

    def reseat(self, node: Node) -> None:
        """Compute the node's level, and put it in its place among its siblings."""
        role = node.parent
        assert role is not None
        old = node.entry
        if not node.willing:
            node.level = node.own
            if old is not None:
                role.order.remove(old)
                if role.groups is not None:
                    role.groups.remove(old)
                node.entry = None
            return
        entry = self.entry(node)
        if old is not None:
            role.order.remove(old)
            if role.groups is not None:
                role.groups.remove(old)
        role.order.add(entry)
        if role.groups is not None:
            role.groups.add(entry)
        node.entry = entry

    def entry(self, node: Node) -> Entry:
        """Compute the node's level, and return its entry for the order."""
        level = node.own
        if isinstance(node, Branch):
            child: Node = node.order[0][-1]
            level = self._policy.join(node, child, child.level)
        node.level = level
        return (*self._policy.key(node, level), node)

    def _rebuild(self, role: Branch) -> None:
        """Key everything below `role` again. O(n log n)."""
        self.changes += 1
        role.direction_sum, role.alive = {}, 0
        entries = []
        for node in role.below():
            node.weighted_direction = None
            node.own = self._policy.own(node)
            if isinstance(node, Branch):
                self._rebuild(node)
            self.update_direction(node)
            node.level, node.entry = node.own, None
            if node.willing:
                node.entry = self.entry(node)
                entries.append(node.entry)
        role.order.clear()
        role.order.update(entries)
        role.groups = None

    def least(
        self, role: Branch, is_eligible: Callable[[Leaf], bool], profile: Profile | None
    ) -> tuple[Leaf, Node, Level, bool] | None:
        """Return the neediest eligible leaf below `role`, and how it was found.

        The result is the leaf, the child above it, the level of that child without the ineligible
        leaves, and whether that equals its present level. A level never falls when leaves are left
        out, so the first child whose present key is not below the best found ends the search.
        Misfits of `profile` may be skipped.
        """
        best: Entry | None = None
        found: tuple[Leaf, Node, Level, bool] | None = None
        entries = role.order if profile is None else profile.entries(role)
        is_first = entries is role.order
        for entry in entries:
            if best is not None and not entry < best:
                break
            node = entry[-1]
            if isinstance(node, Leaf):
                if is_eligible(node):
                    best, found = entry, (node, node, node.level, is_first)
            else:
                below = self.least(node, is_eligible, profile)
                if below is not None:
                    leaf, child, level, is_whole = below
                    if not is_whole:
                        level = self._policy.join(node, child, level)
                        entry = (*self._policy.key(node, level), node)
                    else:
                        level = node.level
                    if best is None or entry < best:
                        best, found = entry, (leaf, node, level, is_first and is_whole)
            is_first = False
        return found
