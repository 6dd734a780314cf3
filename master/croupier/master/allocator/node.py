"""Nodes of the share tree: roles, and frameworks in their roles.

A leaf is one framework in one of its roles; every other node is a role. What a leaf holds
counts for every node above it. `ordering` puts siblings in order; a node keeps no order itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sortedcontainers import SortedList

from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.reasons import Reasons
from croupier.master.allocator.soft_reservations import SoftReservations
from croupier.model.ids import FrameworkId, Role
from croupier.model.roles import RoleSettings

# (tier, numerator, denominator): how far a node has come, as an exact fraction. Tier 0 is
# below its guarantee; every number of it comes before any of tier 1.
Level = tuple[int, int, int]
Amounts = dict[str, int]
# The framework that was dealt to, whether it was below a guarantee, and what it held before.
Taker = tuple["Leaf", bool, Amounts]


def add_amounts(held: Amounts, scalars: Mapping[str, int], sign: int) -> None:
    """Add `scalars` to `held`, or subtract them with `sign` -1; no amount is stored as 0."""
    for name, milli in scalars.items():
        amount = held.get(name, 0) + sign * milli
        assert amount >= 0, f"{amount} of {name} would be held"
        if amount:
            held[name] = amount
        else:
            held.pop(name, None)


class Node:
    """A node of the share tree: what it holds, and its place among its siblings.

    Attributes:
        parent: the role above; None at the root.
        arrival: its number in the order of arrival.
        settings: what operators set for it.
        held: thousandths of each scalar that is offered to it or used by it.
        used: the part of `held` that tasks use.
        surplus: the part of `held` that is offered beyond its demand; no limit counts it.
        slots: units that are offered to it and tasks that it runs.
        dealt_at: the number of the last deal to it; 0 if there was none.
        own: its level from what it holds itself.
        level: its level, with the neediest child considered.
        entry: its place in its parent's order, the node itself last; None if it has none.
        willing: how many leaves at or below it are to be dealt to.
        pull: the weighted direction that it adds to its parent's; None if it is not alive.
    """

    __slots__ = (
        "arrival",
        "dealt_at",
        "entry",
        "held",
        "level",
        "name",
        "own",
        "parent",
        "path",
        "settings",
        "slots",
        "surplus",
        "used",
        "weight",
        "weighted_direction",
        "willing",
    )

    def __init__(self, name: str, parent: RoleNode | None, arrival: int) -> None:
        """Start with nothing held and weight 1."""
        self.name = name
        self.parent = parent
        self.arrival = arrival
        self.settings = DEFAULT
        self.weight = DEFAULT.weight
        self.held: Amounts = {}
        self.used: Amounts = {}
        self.surplus: Amounts = {}
        self.slots = 0
        self.dealt_at = 0
        self.own: Level = (1, 0, 1)
        self.level: Level = (1, 0, 1)
        self.entry: tuple[Any, ...] | None = None
        self.willing = 0
        self.weighted_direction: Amounts | None = None
        # From here to just below the root: the nodes that a charge touches.
        self.path: tuple[Node, ...] = (self, *parent.path) if parent is not None else ()

    @property
    def is_alive(self) -> bool:
        """Whether it holds or wants something, and so counts in its siblings' entitlements."""
        return bool(self.held) or self.willing > 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class RoleNode(Node):
    """A role, with the roles and frameworks right below it.

    Attributes:
        role: its path; empty at the root.
        order: entries of the children that have willing leaves, the neediest first.
        direction_sum: the sum of its children's weighted directions, by resource.
        alive: how many of its children are alive.
        waiting: leaves that wait for headroom under the limit here; see `limit_waiters`.
    """

    __slots__ = (
        "alive",
        "children",
        "depth",
        "direction_sum",
        "leaves",
        "order",
        "role",
        "waiting",
    )

    def __init__(self, role: Role, parent: RoleNode | None, arrival: int) -> None:
        """Start with nothing below it."""
        super().__init__(role, parent, arrival)
        self.role = role
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[str, RoleNode] = {}
        self.leaves: dict[FrameworkId, Leaf] = {}
        self.order: SortedList[tuple[Any, ...]] = SortedList()
        self.direction_sum: Amounts = {}
        self.alive = 0
        self.waiting: dict[Leaf, None] = {}

    def below(self) -> Iterator[Node]:
        """Yield the roles and leaves right below it, in the order of arrival."""
        yield from self.children.values()
        yield from self.leaves.values()

    def nodes(self) -> Iterator[Node]:
        """Yield every node below it, children before their own children."""
        waiting: list[Node] = list(self.below())
        while waiting:
            node = waiting.pop()
            yield node
            if isinstance(node, RoleNode):
                waiting += node.below()


class Leaf(Node):
    """A framework in one of its roles.

    Attributes:
        pending: the demand in this role; None is whole remainders.
        is_member: whether the framework still subscribes to the role.
        is_connected: whether offers can reach it.
        is_suppressed: whether it suppressed offers.
        is_listed: whether it is in the order of its role.
        parked_by: the role whose limit it waits for, when limits block all its demand.
        blocked: the demand that waits for headroom under limits; None is whole remainders.
        waits_at: the roles whose limits those are.
        limited: the roles at or above it that have limits.
        reservations: the agents that are reserved for it.
        filters: on how many agents it has filters.
        ticket: its turn, under a random policy.
    """

    __slots__ = (
        "blocked",
        "filters",
        "framework_id",
        "is_connected",
        "is_listed",
        "is_member",
        "is_suppressed",
        "limited",
        "parked_by",
        "pending",
        "reasons",
        "reservations",
        "role_node",
        "ticket",
        "waits_at",
    )

    def __init__(self, framework_id: FrameworkId, pool: RoleNode, arrival: int) -> None:
        """Start disconnected, with nothing held."""
        super().__init__(framework_id, pool, arrival)
        self.framework_id = framework_id
        self.role_node = pool
        self.pending: list[PendingDemand] | None = None
        self.is_member = True
        self.is_connected = False
        self.is_suppressed = False
        self.is_listed = False
        self.parked_by: RoleNode | None = None
        self.blocked: tuple[PendingDemand | None, ...] = ()
        self.waits_at: tuple[RoleNode, ...] = ()
        self.limited: tuple[RoleNode, ...] = ()
        self.reasons = Reasons()
        self.reservations = SoftReservations()
        self.filters = 0
        self.ticket = 0

    @property
    def role(self) -> Role:
        """The path of the role that it is charged to."""
        return self.role_node.role

    @property
    def is_needy(self) -> bool:
        """Whether a role above it is below its guarantee."""
        return any(not node.own[0] for node in self.path)

    @property
    def has_pending(self) -> bool:
        """Whether it has demand that is not offered yet."""
        return self.pending is None or any(want.left != 0 for want in self.pending)

    @property
    def is_willing(self) -> bool:
        """Whether it is to be dealt to."""
        return (
            self.is_connected
            and self.is_member
            and not self.is_suppressed
            and self.parked_by is None
            and self.has_pending
        )

    def wait_at(self, pools: Iterable[RoleNode], blocked: Iterable[PendingDemand | None]) -> None:
        """Wait at these roles, and at no others, for headroom for the demand in `blocked`."""
        for pool in self.waits_at:
            del pool.waiting[self]
        self.waits_at, self.blocked = tuple(pools), tuple(blocked)
        for pool in self.waits_at:
            pool.waiting[self] = None


def diverging(one: Leaf, other: Leaf) -> tuple[Node, Node]:
    """Return the siblings through which two leaves hang below the last role that they share."""
    theirs = {node.parent: node for node in other.path}
    for node in one.path:
        if node.parent in theirs:
            return node, theirs[node.parent]
    raise AssertionError("every path ends at the root")


DEFAULT = RoleSettings()
