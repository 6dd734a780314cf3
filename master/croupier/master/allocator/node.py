"""Nodes of the share tree: roles, principals in a role, and frameworks in their roles.

A leaf is one framework in one of its roles. Right above it is its role, or the node of its owner in
that role: there, all frameworks of the owner divide one share. What a leaf holds counts for every
node above it. `ordering` puts siblings in order; a node keeps no order itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from sortedcontainers import SortedList

from croupier.master.allocator.back_off import Party, party_of
from croupier.master.allocator.kinds import ANY, Group, Groups, Kind, Signature
from croupier.master.allocator.pending_demand import PendingDemand, Shape
from croupier.master.allocator.soft_reservations import Reserved, SoftReservations
from croupier.model.ids import FrameworkId, Role
from croupier.model.roles import RoleSettings

# (tier, numerator, denominator): the level of a node as an exact fraction. A node below its
# guarantee has tier 0, and comes before every node of tier 1.
Level = tuple[int, int, int]
Amounts = dict[str, int]
NO_KINDS: Signature = frozenset()
# A node with leaves of more kinds is never skipped as a whole.
_MOST_IN_SIGNATURE = 8
DEFAULT = RoleSettings()
# The framework that was dealt to, and whether it was below a guarantee then.
Taker = tuple["Leaf", bool]


def add_amounts(held: Amounts, scalars: Mapping[str, int], sign: int) -> None:
    """Add `scalars` to `held`, or subtract them with `sign` -1; no amount is stored as 0."""
    for name, milli in scalars.items():
        amount = held.get(name, 0) + sign * milli
        assert amount >= 0, f"{amount} of {name} would be held"
        if amount:
            held[name] = amount
        else:
            held.pop(name, None)


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A node of the share tree: its holdings, and its place among its siblings.

    Attributes:
        parent: the role above; None at the root.
        arrival: its number in the order of arrival.
        settings: its role's settings; the defaults for a principal and a leaf.
        held: thousandths of each scalar that is offered to it or used by it.
        used: the part of `held` that tasks use.
        surplus: the part of `held` that is offered beyond its demand; no limit counts it.
        slots: units that are offered to it and tasks that it runs.
        dealt_at: the number of the last deal to it; 0 if there was none.
        own: its level from its own holdings.
        level: its level, with the neediest child considered.
        entry: its place in its parent's order, the node itself last; None if it has none.
        willing: how many leaves at or below it are willing.
        signature: the kinds of the listed leaves at or below it.
        group: the group of its parent that has its entry, while the parent keeps groups.
        weighted_direction: its part of the parent's `direction_sum`; None if it is not alive.
        holds: of a leaf, the holds that are charged to it; of a role, the holds for it.
    """

    name: str
    parent: Branch | None
    arrival: int
    # From here to just below the root: the nodes that a charge touches.
    path: tuple[Node, ...] = ()
    settings: RoleSettings = DEFAULT
    weight: int = DEFAULT.weight
    held: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    surplus: Amounts = field(default_factory=dict)
    slots: int = 0
    dealt_at: int = 0
    own: Level = (1, 0, 1)
    level: Level = (1, 0, 1)
    entry: tuple[Any, ...] | None = None
    willing: int = 0
    signature: Signature = NO_KINDS
    group: Group | None = None
    weighted_direction: Amounts | None = None
    holds: int = 0

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.path = (self, *self.parent.path)

    @property
    def is_alive(self) -> bool:
        """Whether it holds or wants something, and so counts in its siblings' entitlements."""
        return bool(self.held) or self.willing > 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


@dataclass(slots=True, eq=False, repr=False)
class Branch(Node):
    """A node with nodes below it: a role, or a principal in a role.

    Attributes:
        depth: how many nodes are above it.
        children: the roles right below it; a principal has none.
        principals: the principals right below it, by name; a principal has none.
        leaves: the frameworks right below it: of a role, those without an owner.
        order: entries of the children that have willing leaves, the neediest first.
        groups: the same entries by signature; None as long as no search needs them.
        kinds: how many listed leaves below it are of each kind.
        direction_sum: the sum of its children's weighted directions, by resource.
        alive: how many of its children are alive.
    """

    depth: int = 0
    children: dict[str, RoleNode] = field(default_factory=dict)
    principals: dict[str, PrincipalNode] = field(default_factory=dict)
    leaves: dict[FrameworkId, Leaf] = field(default_factory=dict)
    order: SortedList[tuple[Any, ...]] = field(default_factory=SortedList)
    groups: Groups | None = None
    kinds: dict[Kind, int] = field(default_factory=dict)
    direction_sum: Amounts = field(default_factory=dict)
    alive: int = 0

    def __post_init__(self) -> None:
        Node.__post_init__(self)
        self.depth = 0 if self.parent is None else self.parent.depth + 1

    @property
    def is_empty(self) -> bool:
        """Whether it has no node below it."""
        return not (self.leaves or self.principals or self.children)

    def count_kind(self, kind: Kind, change: int) -> None:
        """Count listed leaves below it of a kind, and update its signature."""
        count = self.kinds.get(kind, 0) + change
        if count:
            self.kinds[kind] = count
        else:
            del self.kinds[kind]
        if count == 0 or count == change:
            if len(self.kinds) == 1:
                self.signature = next(iter(self.kinds)).alone
            else:
                is_small = len(self.kinds) <= _MOST_IN_SIGNATURE
                self.signature = frozenset(self.kinds) if is_small else None

    def below(self) -> Iterator[Node]:
        """Yield the nodes right below it, by kind, in the order of arrival."""
        yield from self.children.values()
        yield from self.principals.values()
        yield from self.leaves.values()

    def nodes(self) -> Iterator[Node]:
        """Yield every node below it, children before their own children."""
        waiting: list[Node] = list(self.below())
        while waiting:
            node = waiting.pop()
            yield node
            if isinstance(node, Branch):
                waiting += node.below()


class Turn(IntEnum):
    """When a role is dealt to: in its usual order, after all usual roles, or never."""

    USUAL = 0
    LAST = 1
    NEVER = 2


# Read often, and a member of an enumeration is slow to look up.
_NEVER: Final = Turn.NEVER


@dataclass(slots=True, eq=False, repr=False)
class RoleNode(Branch):
    """A role.

    Attributes:
        role: its path; empty at the root.
        waiting: leaves that wait for headroom under the limit here; see `limits`.
        turn: its turn, or that of a role above it which is later.
    """

    role: Role = field(init=False)
    turn: Turn = Turn.USUAL
    waiting: dict[Leaf, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Branch.__post_init__(self)
        self.role = Role(self.name)


@dataclass(slots=True, eq=False, repr=False)
class PrincipalNode(Branch):
    """The frameworks of one principal in one role.

    It has weight 1, like a framework without an owner, so the number of its frameworks decides
    nothing outside it.

    Attributes:
        role_node: the role.
        ticket: its turn, under a random policy.
        time: the latest turn among its frameworks, under a random policy.
        reserved: the agents that are reserved for its frameworks together.
    """

    role_node: RoleNode = field(init=False)
    reserved: Reserved = field(default_factory=Reserved)
    ticket: int = 0
    time: int = 0

    def __post_init__(self) -> None:
        Branch.__post_init__(self)
        assert isinstance(self.parent, RoleNode)
        self.role_node = self.parent


@dataclass(slots=True, eq=False, repr=False)
class Leaf(Node):
    """A framework in one of its roles.

    Attributes:
        pending: the demand in this role that can be dealt; None is whole remainders.
        declared: the part of it that the framework declared, also while it is suppressed.
        queued: the part of it that stands for submitted tasks.
        kind: the kind of the demand that can be dealt.
        is_member: whether the framework still subscribes to the role.
        is_connected: whether its framework has a session.
        is_suppressed: whether it suppressed offers; submitted tasks are placed nevertheless.
        is_listed: whether it is in the order of its role.
        parked_by: the role whose limit it waits for, when limits block all its demand.
        blocked: the demand that waits for headroom under limits; None is whole remainders.
        waits_at: the roles whose limits those are.
        limited: the roles at or above it that have limits.
        reservations: the agents that are reserved for it.
        filters: on how many agents it has filters.
        ticket: its turn, under a random policy.
    """

    framework_id: FrameworkId = field(init=False)
    role_node: RoleNode = field(init=False)
    pending: list[PendingDemand] | None = None
    declared: list[PendingDemand] | None = None
    queued: dict[Shape, PendingDemand] = field(default_factory=dict)
    kind: Kind = ANY
    is_member: bool = True
    is_connected: bool = False
    is_suppressed: bool = False
    is_listed: bool = False
    parked_by: RoleNode | None = None
    blocked: tuple[PendingDemand | None, ...] = ()
    waits_at: tuple[RoleNode, ...] = ()
    limited: tuple[RoleNode, ...] = ()
    reservations: SoftReservations = field(default_factory=SoftReservations)
    filters: int = 0
    ticket: int = 0

    def __post_init__(self) -> None:
        Node.__post_init__(self)
        self.framework_id = FrameworkId(self.name)
        self.signature = self.kind.alone
        self.attach(self.parent)

    def attach(self, parent: Branch | None) -> None:
        """Add the leaf below its role, or below its owner in that role."""
        assert isinstance(parent, RoleNode | PrincipalNode)
        self.parent, self.path = parent, (self, *parent.path)
        self.role_node = parent if isinstance(parent, RoleNode) else parent.role_node
        self.reservations.share(parent.reserved if isinstance(parent, PrincipalNode) else None)

    @property
    def owner(self) -> str:
        """The name of its framework's principal; empty if it has none."""
        return self.parent.name if isinstance(self.parent, PrincipalNode) else ""

    @property
    def party(self) -> Party:
        """The party that it backs off with; see `back_off`."""
        return party_of(self.framework_id, self.owner)

    @property
    def role(self) -> Role:
        """The path of the role that it is charged to."""
        return self.role_node.role

    @property
    def is_needy(self) -> bool:
        """Whether a role at or above it is below its guarantee."""
        return any(not node.own[0] for node in self.path)

    @property
    def may_use_hold(self) -> bool:
        """Whether a hold is for it, or for a role at or above it."""
        return any(node.holds for node in self.path)

    @property
    def has_pending(self) -> bool:
        """Whether it has demand that is not offered yet."""
        return self.pending is None or any(each.left != 0 for each in self.pending)

    @property
    def is_willing(self) -> bool:
        """Whether it can receive offers, and has demand that no limit or budget blocks."""
        return (
            self.is_connected
            and self.is_member
            and (not self.is_suppressed or bool(self.queued))
            and self.parked_by is None
            and self.role_node.turn is not _NEVER
            and self.has_pending
        )

    def wanted(self) -> list[PendingDemand] | None:
        """Return what can be dealt now: submitted tasks first; None is whole remainders.

        A framework without declared demand gets no whole remainders while tasks are queued.
        """
        if not self.queued:
            return self.declared
        if self.is_suppressed:
            return list(self.queued.values())
        return [*self.queued.values(), *(self.declared or ())]

    def wait_at(self, roles: Iterable[RoleNode], blocked: Iterable[PendingDemand | None]) -> None:
        """Wait at these roles, and at no others, for headroom for the demand in `blocked`."""
        for role in self.waits_at:
            del role.waiting[self]
        self.waits_at, self.blocked = tuple(roles), tuple(blocked)
        for role in self.waits_at:
            role.waiting[self] = None


def diverging(one: Leaf, other: Leaf) -> tuple[Node, Node]:
    """Return the siblings above two leaves, right below their lowest common ancestor."""
    theirs = {node.parent: node for node in other.path}
    for node in one.path:
        if node.parent in theirs:
            return node, theirs[node.parent]
    raise AssertionError("every path ends at the root")


def limited_at(role: RoleNode) -> tuple[RoleNode, ...]:
    """Return the roles at or above a role that have limits."""
    return tuple(each for each in role.path if isinstance(each, RoleNode) and each.settings.limit)
