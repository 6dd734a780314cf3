"""The nodes of roles, with their settings, their past use and their turns."""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.node import (
    DEFAULT,
    Leaf,
    RoleNode,
    Turn,
)
from croupier.master.allocator.ordering import Ordering
from croupier.master.allocator.past_use import PastUse, counted_weight
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings


class RoleNodes:
    """The nodes of all roles that have frameworks, and what is set for roles.

    Attributes:
        ordering: updates the order when a node changes.
        root: the node above all roles; it is in no order.
        roles: every role that has frameworks at or below it.
        settings: of the roles that have any.
        past: the past use of the roles whose weight it changes.
        turns: the roles with another turn than the usual one, each with its reason in words.
    """

    def __init__(self, ordering: Ordering, settings: Mapping[Role, RoleSettings] | None) -> None:
        self.ordering = ordering
        self.root = RoleNode(Role(""), None, 0)
        self.roles: dict[Role, RoleNode] = {}
        self.settings = dict(settings or {})
        self.past: dict[Role, PastUse] = {}
        self.turns: dict[Role, tuple[Turn, str]] = {}
        self._arrivals = 0
        for each in self.settings.values():
            self.ordering.note_weight(each)

    def set_past(self, past: Mapping[Role, PastUse]) -> None:
        """Let past use change the weights of these roles, and of no others.

        O(changed roles x depth x log n).
        """
        before, self.past = self.past, dict(past)
        for role in sorted(before.keys() | past.keys()):
            role_node = self.roles.get(role)
            if role_node is not None and before.get(role) != past.get(role):
                weight = role_node.weight
                self._apply(role_node)
                if role_node.weight != weight:
                    self.ordering.update_from(role_node)

    def weight_of(
        self, role: Role, settings: RoleSettings, past: Mapping[Role, PastUse] | None = None
    ) -> int:
        """Return the weight of a role with these settings, and this past use of all or the present.

        In thousandths.
        """
        own = (self.past if past is None else past).get(role) if settings.half_life_ms else None
        return settings.weight if own is None else counted_weight(settings.weight, own.factor)

    def set_turn(self, role: Role, turn: Turn, reason: str = "") -> list[Leaf]:
        """Set when a role is dealt to; return the leaves below it if that changes it.

        The caller relists them. O(nodes below the role).
        """
        before = self.turns.pop(role, (Turn.USUAL, ""))[0]
        if turn is not Turn.USUAL:
            self.turns[role] = turn, reason
        role_node = self.roles.get(role)
        if role_node is None or turn is before:
            return []
        self._apply_turn(role_node)
        below = list(role_node.nodes())
        for node in below:
            # Parents come before their children.
            if isinstance(node, RoleNode):
                self._apply_turn(node)
        return [node for node in below if isinstance(node, Leaf)]

    def turn_of(self, leaf: Leaf) -> tuple[Turn, str, Role]:
        """Return the turn of a leaf, the reason in words, and the role of which it is."""
        roles = (each.role for each in leaf.path if isinstance(each, RoleNode))
        found = [(*self.turns[role], role) for role in roles if role in self.turns]
        return max(found, key=lambda each: each[0], default=(Turn.USUAL, "", leaf.role))

    def _role_node(self, role: Role) -> RoleNode:
        role_node, path = self.root, ""
        for name in role.split("/"):
            path = f"{path}/{name}" if path else name
            below = role_node.children.get(name)
            if below is None:
                below = RoleNode(Role(path), role_node, self._next_arrival())
                role_node.children[name] = below
                self.roles[below.role] = below
                self._apply(below)
                self.ordering.note_depth(below)
            role_node = below
        return role_node

    def _apply(self, role_node: RoleNode) -> None:
        role_node.settings = self.settings.get(role_node.role, DEFAULT)
        role_node.weight = self.weight_of(role_node.role, role_node.settings)
        self._apply_turn(role_node)

    def _apply_turn(self, role_node: RoleNode) -> None:
        own = self.turns.get(role_node.role, (Turn.USUAL, ""))[0]
        parent = role_node.parent
        above = parent.turn if isinstance(parent, RoleNode) else Turn.USUAL
        role_node.turn = max(own, above)

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals
