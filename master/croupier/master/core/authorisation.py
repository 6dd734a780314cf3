"""Permission of callers, checked on the objects of the state.

Rule: what a caller may not view does not exist for it. So a refusal is NotFound, unless the caller
may view the object: then it is PermissionDenied.
"""

from __future__ import annotations

from collections.abc import Iterable

from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.model.access import (
    CLUSTER,
    OWNER,
    Action,
    Decision,
    Object,
    Permissions,
    agent_object,
    role_object,
)
from croupier.model.errors import NotFound, PermissionDenied
from croupier.model.ids import AgentId, Role
from croupier.model.principal import Principal


def may_on_role(permissions: Permissions, action: Action, role: Role, owner: str) -> Decision:
    """Decide about what an owner has in a role: a framework or a task; the owner may do all."""
    return OWNER if permissions.owns(owner) else permissions.decide(action, role_object(role))


def may_view_framework(permissions: Permissions, framework: Framework) -> bool:
    """Return whether the principal may see the framework: its owner, or a viewer of a role."""
    owner = framework.owner
    return any(may_on_role(permissions, Action.VIEW, each, owner) for each in framework.roles)


def may_view_agent(permissions: Permissions, agent_id: AgentId) -> bool:
    """Return whether the principal may see the agent."""
    return bool(permissions.decide(Action.VIEW, agent_object(agent_id)))


def require_administer(state: State, caller: Principal) -> None:
    """Check that the caller may administer the cluster.

    Raises:
        PermissionDenied: if it may not.
    """
    require(state.permissions(caller), Action.ADMINISTER, (CLUSTER,))


def require(permissions: Permissions, action: Action, targets: Iterable[Object]) -> None:
    """Check that the principal may do `action` on all of `targets`.

    Raises:
        PermissionDenied: if it may not.
    """
    for target in targets:
        if not permissions.decide(action, target):
            raise PermissionDenied(f"{permissions.principal} may not {action.value} {target}")


def require_visible(permissions: Permissions, is_visible: bool, missing: str) -> None:
    """Check that the principal may view an object.

    Raises:
        NotFound: if it may not; the text is that for an object that does not exist.
    """
    if permissions.is_on and not is_visible:
        raise NotFound(missing)
