"""Permission of callers, checked on the objects of the state.

Rule: what a caller may not view does not exist for it. So a refusal is NotFound, unless the caller
may view the object: then it is PermissionDenied.
"""

from __future__ import annotations

from collections.abc import Iterable

from croupier.master.core.agents import Agent
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.model.access import (
    CLUSTER,
    OWN_USER,
    OWNER,
    Action,
    Decision,
    Object,
    Permissions,
    agent_object,
    image_object,
    role_object,
    user_object,
)
from croupier.model.errors import PermissionDenied
from croupier.model.ids import AgentId, Role
from croupier.model.principal import Principal
from croupier.model.task import TaskInfo


def may_on_role(permissions: Permissions, action: Action, role: Role, owner: str) -> Decision:
    """Decide about a framework or task of an owner in a role; the owner may do all."""
    return OWNER if permissions.owns(owner) else permissions.decide(action, role_object(role))


def may_view_framework(permissions: Permissions, framework: Framework) -> bool:
    """Return whether the principal may see the framework: its owner, or a viewer of a role."""
    return _may_on_any_role(permissions, Action.VIEW, framework)


def may_view_agent(permissions: Permissions, agent_id: AgentId) -> bool:
    """Return whether the principal may see the agent."""
    return bool(permissions.decide(Action.VIEW, agent_object(agent_id)))


def finds_in_role(permissions: Permissions, action: Action, role: Role, owner: str = "") -> bool:
    """Return whether a role, or `owner`'s object in it, exists for a caller of `action`."""
    viewed = may_on_role(permissions, Action.VIEW, role, owner)
    return bool(viewed or may_on_role(permissions, action, role, owner))


def finds_framework(permissions: Permissions, action: Action, framework: Framework) -> bool:
    """Return whether a framework exists for a principal that wants to do `action` on it."""
    viewed = may_view_framework(permissions, framework)
    return viewed or _may_on_any_role(permissions, action, framework)


def finds_agent(permissions: Permissions, action: Action, agent_id: AgentId) -> bool:
    """Return whether an agent exists for a principal that wants to do `action` on it."""
    target = agent_object(agent_id)
    return bool(permissions.decide(Action.VIEW, target) or permissions.decide(action, target))


def require_administer(state: State, caller: Principal) -> None:
    """Raise PermissionDenied if the caller may not administer the cluster."""
    require(state.permissions(caller), Action.ADMINISTER, CLUSTER)


def require(permissions: Permissions, action: Action, target: Object, owner: str = "") -> None:
    """Raise PermissionDenied unless the principal is `owner`, or may do `action` on `target`."""
    if not permissions.owns(owner) and not permissions.decide(action, target):
        raise PermissionDenied(f"{permissions.principal} may not {action.value} {target}")


def require_registered(permissions: Permissions, roles: Iterable[Role]) -> None:
    """Raise PermissionDenied if the principal may not have frameworks in all of these roles."""
    for role in roles:
        require(permissions, Action.REGISTER, role_object(role))


def require_image(permissions: Permissions, task: TaskInfo) -> None:
    """Raise PermissionDenied if the principal may not launch the task's image, if it has one."""
    if task.isolation.image:
        require(permissions, Action.LAUNCH_IMAGE, image_object(task.isolation.image))


def require_user(permissions: Permissions, agent: Agent, task: TaskInfo) -> None:
    """Check that the framework's principal may run as the account that the task gets.

    A task without a user needs no rule on an agent that gives it a uid of its own. Raises
    PermissionDenied if it may not.
    """
    user = task.command.user or agent.default_user
    if task.command.user or user != OWN_USER:
        require(permissions, Action.RUN_AS, user_object(user))


def _may_on_any_role(permissions: Permissions, action: Action, framework: Framework) -> bool:
    owner = framework.owner
    return any(may_on_role(permissions, action, each, owner) for each in framework.roles)
