"""The status of every role."""

from __future__ import annotations

from croupier.master.allocator.queries import RoleStatus
from croupier.master.core.roles import (
    count_tasks,
    in_tree_order,
    known_roles,
)
from croupier.master.core.state import State
from croupier.model.ids import Role


def role_statuses(state: State) -> dict[Role, RoleStatus]:
    """Return every role with frameworks or settings, and all above those, from the top down."""
    tasks = count_tasks(state)
    return {
        role: state.allocator.queries.role_status(role, *tasks.of(role))
        for role in in_tree_order(known_roles(state))
    }
