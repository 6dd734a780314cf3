"""The status of every role."""

from __future__ import annotations

from croupier.master.core.roles import (
    RoleStatus,
    count_tasks,
    in_tree_order,
    known_roles,
    role_status,
)
from croupier.master.core.state import State
from croupier.model.ids import Role


def role_statuses(state: State) -> dict[Role, RoleStatus]:
    """Return every role with frameworks or settings, and all above those, from the top down."""
    tasks = count_tasks(state)
    return {
        role: role_status(state, role, tasks[role]) for role in in_tree_order(known_roles(state))
    }
