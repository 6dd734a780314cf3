"""The share tree: roles, principals and frameworks, their holdings, and their order.

A change to a leaf updates the order of each node on its path: O(depth x (log n + resources)). A
change of the cluster's totals marks the tree stale, and every node is keyed again before the next
decision: O(n log n).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from croupier.master.allocator.entitlements import Entitlements
from croupier.master.allocator.kinds import Kind, Kinds
from croupier.master.allocator.node import (
    Amounts,
    Branch,
    Leaf,
    Node,
    PrincipalNode,
    RoleNode,
    Taker,
    add_amounts,
    limited_at,
)
from croupier.master.allocator.ordering import Entry, Ordering
from croupier.master.allocator.pending_demand import PendingDemand, resources_of
from croupier.master.allocator.policies import Drf, Policy
from croupier.master.allocator.profiles import Profile
from croupier.master.allocator.role_nodes import RoleNodes
from croupier.master.allocator.share import Totals
from croupier.model.ids import FrameworkId, Role
from croupier.model.roles import RoleSettings


class Tree(RoleNodes):
    """Roles, principals and frameworks in the order in which they are dealt to.

    Attributes:
        leaves: by framework and role.
        deals: how many deals were made.
        has_guarantees: whether any role has one.
        takers: the frameworks that were dealt to last, the latest last.
        askers: the leaves with demand for a resource, by its name.
        kinds: the kinds of the leaves' demand.
    """

    def __init__(
        self,
        totals: Totals,
        policy: Policy | None = None,
        settings: Mapping[Role, RoleSettings] | None = None,
    ) -> None:
        """Start empty; roles without `settings` have weight 1, no guarantee and no limit."""
        self.totals = totals
        self.policy: Policy = policy or Drf()
        super().__init__(Ordering(self.policy, totals), settings)
        self.leaves: dict[tuple[FrameworkId, Role], Leaf] = {}
        self.deals = 0
        self.has_guarantees = any(each.guarantee for each in self.settings.values())
        self.takers: deque[Taker] = deque(maxlen=8)
        # Those under limits, and the changes up to then.
        self._entitlements: tuple[int, Entitlements] | None = None
        self.askers: dict[str, dict[Leaf, None]] = {}
        self.kinds = Kinds()

    # Shape.

    def add(self, framework_id: FrameworkId, role: Role, owner: str = "") -> Leaf:
        """Add a framework of this owner under a role; `relist` lists it once it is willing.

        O(depth).
        """
        assert (framework_id, role) not in self.leaves
        parent = self._parent(self._role_node(role), owner)
        leaf = Leaf(framework_id, parent, self._next_arrival())
        parent.leaves[framework_id] = leaf
        self.leaves[framework_id, role] = leaf
        leaf.limited = limited_at(leaf.role_node)
        return leaf

    def move(self, leaf: Leaf, owner: str) -> None:
        """Move a leaf to another owner in the same role, with all that it holds. O(log n)."""
        if owner == leaf.owner:
            return
        offered, used, slots, surplus = dict(leaf.held), dict(leaf.used), leaf.slots, leaf.surplus
        add_amounts(offered, used, -1)
        if leaf.is_listed:
            leaf.is_listed = False
            self._count_willing(leaf, -1)
        self.set_surplus(leaf, {})
        self.charge(leaf, used, -1, slots)
        self.withdraw(leaf, offered)
        self._detach(leaf)
        parent = self._parent(leaf.role_node, owner)
        leaf.attach(parent)
        parent.leaves[leaf.framework_id] = leaf
        self.charge(leaf, used, 1, slots)
        for node in leaf.path:
            add_amounts(node.held, offered, 1)
        self.ordering.rekey(leaf)
        self.set_surplus(leaf, surplus)
        self.relist(leaf)

    def remove(self, leaf: Leaf) -> None:
        """Remove a leaf that holds nothing, and the roles that are empty without it."""
        assert not leaf.held, f"{leaf.framework_id} still holds {leaf.held}"
        self.unpark(leaf)
        self.count_slots(leaf, -leaf.slots)
        for name in resources_of(leaf.pending):
            del self.askers[name][leaf]
        if leaf.is_listed:
            leaf.is_listed = False
            self._count_willing(leaf, -1)
        self.kinds.release(leaf.kind)
        del self.leaves[leaf.framework_id, leaf.role]
        self._detach(leaf)
        role_node: Branch | None = leaf.role_node
        while isinstance(role_node, RoleNode) and role_node.parent and role_node.is_empty:
            del self.roles[role_node.role]
            del role_node.parent.children[role_node.role.rpartition("/")[2]]
            role_node = role_node.parent

    def set_role(self, role: Role, settings: RoleSettings) -> None:
        """Apply settings of a role. O(leaves below it)."""
        if settings.is_default:
            self.settings.pop(role, None)
        else:
            self.settings[role] = settings
        self.ordering.note_weight(settings)
        self._entitlements = None
        self.has_guarantees = any(each.guarantee for each in self.settings.values())
        role_node = self.roles.get(role)
        if role_node is None:
            return
        self._apply(role_node)
        for node in role_node.nodes():
            if isinstance(node, Leaf):
                node.limited = limited_at(node.role_node)
                self.unpark(node)
        self.ordering.update_from(role_node)

    def unpark(self, leaf: Leaf) -> bool:
        """End the leaf's wait at limits; return whether it was newly listed."""
        leaf.wait_at((), ())
        leaf.parked_by = None
        return self.relist(leaf)

    def relist(self, leaf: Leaf) -> bool:
        """List the leaf if it is willing, or unlist it; return whether it was newly listed."""
        if leaf.is_willing == leaf.is_listed:
            return False
        leaf.is_listed = leaf.is_willing
        if leaf.is_listed:
            self.policy.listed(leaf)
        self._count_willing(leaf, 1 if leaf.is_listed else -1)
        return leaf.is_listed

    def set_pending(self, leaf: Leaf, pending: list[PendingDemand] | None) -> None:
        """Set the pending demand; None is whole remainders. The caller relists the leaf."""
        for name in resources_of(leaf.pending):
            del self.askers[name][leaf]
        leaf.pending = pending
        for name in resources_of(pending):
            self.askers.setdefault(name, {})[leaf] = None
        self.update_kind(leaf)
        # The direction of an idle leaf is that of its demand.
        self.ordering.update_from(leaf)

    def update_kind(self, leaf: Leaf) -> None:
        """Update the leaf's kind after a change of its demand."""
        before, kind = leaf.kind, self.kinds.take(leaf.pending)
        self.kinds.release(before)
        if kind is before:
            return
        leaf.kind, leaf.signature = kind, kind.alone
        if leaf.is_listed:
            self._count_kind(leaf, before, -1)
            self._count_kind(leaf, kind, 1)
            self.ordering.rekey(leaf)

    # Holdings.

    def deal(
        self, leaf: Leaf, scalars: Mapping[str, int], units: int = 1, owner: Leaf | None = None
    ) -> int:
        """Charge a deal of `units` units, and return its number among all deals. O(log n).

        All of a hold counts as used. With `owner`, that of a hold, the charge passes from it; here
        and below nothing is charged if the leaf itself is the owner.
        """
        if owner is not None:
            self._pass_on(owner, leaf, scalars)
            scalars = {}
        self.deals += 1
        number = self.deals
        self.policy.dealt(leaf)
        own, reseat = self.policy.own, self.ordering.reseat
        comes_alive = leaf.weighted_direction is None
        for node in leaf.path:
            held = node.held
            for name, milli in scalars.items():
                held[name] = held.get(name, 0) + milli
            node.slots += units
            node.dealt_at = number
            node.own = own(node)
            if comes_alive:
                self.ordering.update_direction(node)
            reseat(node)
        return number

    def launch(self, leaf: Leaf, scalars: Mapping[str, int], owner: Leaf | None = None) -> None:
        """Count offered resources as used by tasks; those of a hold are already."""
        if owner is not None:
            return
        for node in leaf.path:
            add_amounts(node.used, scalars, 1)
        self.ordering.update_from(leaf)

    def charge(
        self,
        leaf: Leaf,
        scalars: Mapping[str, int],
        sign: int = 1,
        tasks: int = 1,
        owner: Leaf | None = None,
    ) -> None:
        """Charge resources that tasks use together, or release them with `sign` -1."""
        if owner is not None:
            self._pass_on(*((owner, leaf) if sign > 0 else (leaf, owner)), scalars)
            scalars = {}
        for node in leaf.path:
            add_amounts(node.held, scalars, sign)
            add_amounts(node.used, scalars, sign)
            node.slots += sign * tasks
        self.ordering.rekey(leaf)

    def withdraw(self, leaf: Leaf, scalars: Mapping[str, int], owner: Leaf | None = None) -> None:
        """Release offered resources."""
        if owner is not None:
            self._pass_on(leaf, owner, scalars)
            return
        for node in leaf.path:
            add_amounts(node.held, scalars, -1)
        self.ordering.rekey(leaf)

    def _pass_on(self, giver: Leaf, taker: Leaf, scalars: Mapping[str, int]) -> None:
        """Pass the charge of resources of a hold from one leaf to another."""
        if giver is not taker:
            self.charge(giver, scalars, -1, tasks=0)
            self.charge(taker, scalars, tasks=0)

    def count_slots(self, leaf: Leaf, change: int) -> None:
        """Change the leaf's number of slots."""
        if change:
            for node in leaf.path:
                node.slots += change
            self.ordering.rekey(leaf)

    def set_surplus(self, leaf: Leaf, surplus: Amounts) -> bool:
        """Set the leaf's surplus; return whether any amount of it grew."""
        if surplus == leaf.surplus:
            return False
        before = leaf.surplus
        for node in leaf.path:
            if node is not leaf:
                add_amounts(node.surplus, surplus, 1)
                add_amounts(node.surplus, before, -1)
        leaf.surplus = surplus
        return any(milli > before.get(name, 0) for name, milli in surplus.items())

    # Order.

    def refresh(self) -> None:
        """Key every node again if the order of shares may have changed. O(n log n)."""
        self.ordering.refresh(self.root)

    def neediest(
        self,
        is_eligible: Callable[[Leaf], bool],
        profile: Profile | None = None,
        top: Branch | None = None,
    ) -> Leaf | None:
        """Return the eligible leaf that the policy puts first, ignoring all other leaves.

        Misfits of `profile` may be skipped without a question. With `top`, only leaves below that
        node count. O(depth + leaves passed over).
        """
        found = self.ordering.least(top or self.root, is_eligible, profile)
        return found[0] if found is not None else None

    def in_order(self) -> Iterator[Leaf]:
        """Yield the willing leaves in order, role by role.

        The iterator is invalid after a change to the tree.
        """
        waiting: list[Iterator[Entry]] = [iter(self.root.order)]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
            elif isinstance(entry[-1], Leaf):
                yield entry[-1]
            else:
                waiting.append(iter(entry[-1].order))

    # Entitlements.

    def share_of(self, node: Node) -> Fraction:
        """Return the node's dominant share of the cluster, over its weights by resource."""
        return self.totals.share(node.held, node.settings.resource_weights)

    def entitlement(self, node: Node) -> Fraction:
        """Return the node's entitlement under limits; 0 if it neither holds nor wants anything.

        O(depth); after a change, O(depth x roles right below those above it).
        """
        if self._entitlements is None or self._entitlements[0] != self.ordering.changes:
            is_limited = any(each.limit for each in self.settings.values())
            found = Entitlements(self.root, totals=self.totals if is_limited else None)
            self._entitlements = self.ordering.changes, found
        return self._entitlements[1].of(node)

    def entitlements(self) -> dict[Node, Fraction]:
        """Return the entitlement of every node that is alive; the root's is 1. O(n)."""
        entitlements = Entitlements(self.root)
        alive = (node for node in self.root.nodes() if node.weighted_direction is not None)
        return {node: entitlements.of(node) for node in (self.root, *alive)}

    # Internals.

    def _parent(self, role_node: RoleNode, owner: str) -> RoleNode | PrincipalNode:
        """Return the node right above the role's frameworks of this owner."""
        if not owner:
            return role_node
        principal = role_node.principals.get(owner)
        if principal is None:
            principal = PrincipalNode(owner, role_node, self._next_arrival())
            role_node.principals[owner] = principal
            self.ordering.note_depth(principal)
        return principal

    def _detach(self, leaf: Leaf) -> None:
        """Take a leaf that holds nothing from its parent; drop a principal that is empty then."""
        parent = leaf.parent
        assert parent is not None
        del parent.leaves[leaf.framework_id]
        if isinstance(parent, PrincipalNode) and parent.is_empty:
            del parent.role_node.principals[parent.name]

    def _count_willing(self, leaf: Leaf, change: int) -> None:
        for node in leaf.path:
            node.willing += change
        self.root.willing += change
        self._count_kind(leaf, leaf.kind, change)
        self.ordering.rekey(leaf)

    def _count_kind(self, leaf: Leaf, kind: Kind, change: int) -> None:
        branch = leaf.parent
        while branch is not None:
            branch.count_kind(kind, change)
            branch = branch.parent
