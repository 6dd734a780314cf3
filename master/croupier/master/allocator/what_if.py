"""What roles would be entitled to with other settings, without setting them.

Only the path from a changed role to the root is worked out anew, on stand-ins; nothing of
the tree is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from croupier.master.allocator.directions import direction_of, lift_of
from croupier.master.allocator.node import Pool, add_amounts
from croupier.master.allocator.tree import Tree
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, ancestors


def role_entitlements(
    tree: Tree, changes: Mapping[Role, RoleSettings] | None = None
) -> dict[Role, Fraction]:
    """The entitlement of every role with frameworks, were `changes` set of the roles they name.

    0 for a role in which nobody wants or holds anything. O(roles).
    """
    tree.refresh()
    stand_ins = _stand_ins(tree, changes or {})
    found: dict[Role, Fraction] = {tree.root.role: Fraction(1)}
    waiting = [tree.root]
    while waiting:
        pool = waiting.pop()
        up, down = lift_of(stand_ins.get(pool, pool))
        for child in pool.children.values():
            weight = stand_ins.get(child, child).weight
            due = Fraction(weight * down, up) if child.pull is not None else Fraction(0)
            found[child.role] = found[pool.role] * due
            waiting.append(child)
    del found[tree.root.role]
    return found


def _stand_ins(tree: Tree, changes: Mapping[Role, RoleSettings]) -> dict[Pool, Pool]:
    """For each role that is changed, and each above one, how it would be."""
    touched = {tree.root: None} if changes else {}
    for role in changes:
        for each in (role, *ancestors(role)):
            if each in tree.roles:
                touched[tree.roles[each]] = None
    found: dict[Pool, Pool] = {}
    below: dict[Pool, list[Pool]] = {}
    for pool in sorted(touched, key=lambda pool: pool.depth, reverse=True):
        stand_in = Pool(pool.role, None, 0)
        stand_in.settings = changes.get(pool.role, pool.settings)
        stand_in.weight = stand_in.settings.weight
        stand_in.pulls = dict(pool.pulls)
        for child in below.get(pool, ()):
            add_amounts(stand_in.pulls, found[child].pull or {}, 1)
            add_amounts(stand_in.pulls, child.pull or {}, -1)
        if pool.pull is not None:
            direction = direction_of(stand_in, tree.totals)
            stand_in.pull = {name: stand_in.weight * part for name, part in direction.items()}
        found[pool] = stand_in
        if pool.parent is not None:
            below.setdefault(pool.parent, []).append(pool)
    return found
