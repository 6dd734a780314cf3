"""Who is neediest: roles in ascending weighted dominant share, and frameworks within them.

Children of a node stand in a `SortedKeyList` by `(key, last dealt, arrival)`. Equal shares
go to whoever was dealt to least recently, so no name can starve another (MESOS-6111).
A node's place never changes while it stands in a list: it is taken out, changed, put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from sortedcontainers import SortedKeyList

from croupier.master.allocator.filters import Filters
from croupier.master.allocator.reasons import Reasons
from croupier.master.allocator.share import Totals, weighted
from croupier.model.demand import Demand
from croupier.model.ids import FrameworkId, Role

Key = tuple[int, int, int]


class Node:
    """A node of the share tree: what it holds and where it stands among its siblings.

    Attributes:
        held: thousandths of each scalar that is offered to it or used by it.
        weight: its claim relative to its siblings, in thousandths.
        order: its sort key; see `Tree`.
    """

    __slots__ = ("arrival", "dealt_at", "held", "name", "order", "weight")

    def __init__(self, name: str, weight: int, arrival: int) -> None:
        """`arrival` numbers nodes in the order in which they came."""
        self.name = name
        self.weight = weight
        self.arrival = arrival
        self.dealt_at = 0
        self.held: dict[str, int] = {}
        self.order: Key = (0, 0, arrival)

    def charge(self, scalars: Mapping[str, int], sign: int) -> None:
        """Add `scalars` to what it holds, or take them away with `sign` -1."""
        held = self.held
        for name, milli in scalars.items():
            amount = held.get(name, 0) + sign * milli
            assert amount >= 0, f"{self.name} would hold {amount} of {name}"
            if amount:
                held[name] = amount
            else:
                held.pop(name, None)


class RoleNode(Node):
    """A role, and its frameworks that want something."""

    __slots__ = ("frameworks", "members", "role")

    def __init__(self, role: Role, weight: int, arrival: int) -> None:
        """A role without frameworks."""
        super().__init__(role, weight, arrival)
        self.role = role
        self.members = 0
        self.frameworks: SortedKeyList[FrameworkNode, Key] = SortedKeyList(key=_order)


class FrameworkNode(Node):
    """A framework: a leaf of the tree.

    Attributes:
        demand: what it declared; None: whole remainders.
        outstanding: units of the demand that stand in offers not yet answered.
        is_connected: whether offers can reach it.
        is_suppressed: whether it asked for none.
        is_listed: whether it stands in its role's list.
        holding: the agent that is kept for it; see `cycle`.
        may_hold_at: when it may have an agent kept for it again.
    """

    __slots__ = (
        "demand",
        "filters",
        "framework_id",
        "holding",
        "is_connected",
        "is_listed",
        "is_suppressed",
        "may_hold_at",
        "outstanding",
        "parent",
        "reasons",
    )

    def __init__(self, framework_id: FrameworkId, parent: RoleNode, arrival: int) -> None:
        """A framework that is not connected and holds nothing."""
        super().__init__(framework_id, 1000, arrival)
        self.framework_id = framework_id
        self.parent = parent
        self.demand: Demand | None = None
        self.outstanding = 0
        self.is_connected = False
        self.is_suppressed = False
        self.is_listed = False
        self.filters = Filters()
        self.reasons = Reasons()
        self.holding: str | None = None
        self.may_hold_at = 0.0

    def wanted(self) -> int | None:
        """Units it wants beyond what is offered to it; None is without end or shape."""
        if self.demand is None or self.demand.count is None:
            return None
        return max(self.demand.count - self.outstanding, 0)

    @property
    def is_willing(self) -> bool:
        """Whether it should be dealt to at all."""
        return self.is_connected and not self.is_suppressed and self.wanted() != 0


_order = attrgetter("order")


class Tree:
    """Roles and frameworks in the order in which they are to be dealt to."""

    def __init__(self, totals: Totals, weights: Mapping[Role, int]) -> None:
        """`weights` are in thousandths; a role that is not in it weighs 1."""
        self.totals = totals
        self.weights = dict(weights)
        self.roles: dict[Role, RoleNode] = {}
        self.frameworks: dict[FrameworkId, FrameworkNode] = {}
        self._listed: SortedKeyList[RoleNode, Key] = SortedKeyList(key=_order)
        self._arrivals = 0
        self._deals = 0

    def add(self, framework_id: FrameworkId, role: Role) -> FrameworkNode:
        """Add a framework under its role; it is listed once it is willing. O(1)."""
        assert framework_id not in self.frameworks
        parent = self.roles.get(role)
        if parent is None:
            parent = RoleNode(role, self.weights.get(role, 1000), self._next_arrival())
            self.roles[role] = parent
        parent.members += 1
        node = FrameworkNode(framework_id, parent, self._next_arrival())
        self.frameworks[framework_id] = node
        return node

    def remove(self, framework_id: FrameworkId) -> None:
        """Take out a framework that holds nothing, and its role with its last framework."""
        node = self.frameworks.pop(framework_id)
        assert not node.held, f"{framework_id} still holds {node.held}"
        self._unlist(node)
        node.parent.members -= 1
        if not node.parent.members:
            del self.roles[node.parent.role]

    def relist(self, node: FrameworkNode) -> bool:
        """List or unlist `node` as it is willing or not; whether it was newly listed."""
        if node.is_willing == node.is_listed:
            return False
        if not node.is_willing:
            self._unlist(node)
            return False
        if not node.parent.frameworks:
            self._listed.add(node.parent)
        node.parent.frameworks.add(node)
        node.is_listed = True
        return True

    def charge(self, node: FrameworkNode, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Charge `scalars` to the framework and its role. O(log n)."""
        self._change(node, lambda each: each.charge(scalars, sign))

    def deal(self, node: FrameworkNode, scalars: Mapping[str, int]) -> int:
        """Charge what is dealt as the latest deal, and return the deal's number. O(log n)."""
        self._deals += 1

        def dealt(each: Node) -> None:
            each.charge(scalars, 1)
            each.dealt_at = self._deals

        self._change(node, dealt)
        return self._deals

    def refresh(self) -> None:
        """Key every node anew if the cluster's totals changed. O(n log n)."""
        if not self.totals.is_stale:
            return
        self.totals.refresh()
        for role in self.roles.values():
            role.order = self._key(role)
            listed = list(role.frameworks)
            role.frameworks.clear()
            for node in listed:
                node.order = self._key(node)
            role.frameworks.update(listed)
        for node in self.frameworks.values():
            if not node.is_listed:
                node.order = self._key(node)
        roles = list(self._listed)
        self._listed.clear()
        self._listed.update(roles)

    def neediest_first(self) -> Iterator[FrameworkNode]:
        """Willing frameworks, least weighted dominant share first, role by role.

        Must not be continued after a change to the tree.
        """
        for role in self._listed:
            yield from role.frameworks

    @property
    def has_willing(self) -> bool:
        """Whether any framework wants anything."""
        return bool(self._listed)

    def is_ahead(self, one: FrameworkNode, other: FrameworkNode, unit: Mapping[str, int]) -> bool:
        """Whether `one` would hold no less than `other` even if `other` got `unit` besides.

        Compared where their paths part: as frameworks of one role, or as roles.
        """
        left: Node = one
        right: Node = other
        if one.parent is not other.parent:
            left, right = one.parent, other.parent
        after = dict(right.held)
        for name, milli in unit.items():
            after[name] = after.get(name, 0) + milli
        mine = weighted(self.totals.dominant(left.held), left.weight)
        return mine >= weighted(self.totals.dominant(after), right.weight)

    def check(self) -> None:
        """Assert every invariant of the tree."""
        for role in self.roles.values():
            mine = [node for node in self.frameworks.values() if node.parent is role]
            assert role.members == len(mine) > 0
            assert list(role.frameworks) == sorted(
                (node for node in mine if node.is_listed), key=_order
            )
            assert (role in self._listed) == bool(role.frameworks)
            held: dict[str, int] = {}
            for node in mine:
                assert node.is_listed == node.is_willing, node.name
                for name, milli in node.held.items():
                    held[name] = held.get(name, 0) + milli
            assert held == role.held, f"role {role.name}: {held} != {role.held}"
            if not self.totals.is_stale:
                assert all(node.order == self._key(node) for node in (role, *mine))
        assert list(self._listed) == sorted(self._listed, key=_order)

    def _change(self, node: FrameworkNode, change: Callable[[Node], None]) -> None:
        role = node.parent
        role_listed = bool(role.frameworks)
        if node.is_listed:
            role.frameworks.remove(node)
        if role_listed:
            self._listed.remove(role)
        for each in (node, role):
            change(each)
            each.order = self._key(each)
        if node.is_listed:
            role.frameworks.add(node)
        if role_listed:
            self._listed.add(role)

    def _unlist(self, node: FrameworkNode) -> None:
        if not node.is_listed:
            return
        node.parent.frameworks.remove(node)
        node.is_listed = False
        if not node.parent.frameworks:
            self._listed.remove(node.parent)

    def _key(self, node: Node) -> Key:
        share = self.totals.dominant(node.held)
        return weighted(share, node.weight), node.dealt_at, node.arrival

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals
