"""Suitability of an agent for a task: features to enforce, secrets, and the user.

Rule: what a task asks for and its agent cannot enforce is refused, never ignored.
"""

from __future__ import annotations

from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require
from croupier.model.access import OWN_USER, Action, Permissions, image_object, user_object
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import feature_names
from croupier.model.task import TaskInfo

_NO_SECRETS_SENT = (
    "gets no secrets: they need TLS between agents and masters, or --insecure on the master"
)


def check_suitable(agent: Agent, task: TaskInfo) -> None:
    """Check that the agent can be sent the task, and can enforce all that the task asks for.

    Raises:
        InvalidRequest: if it cannot.
    """
    missing = task.needs() - agent.features
    if missing:
        able = ", ".join(feature_names(agent.features)) or "nothing"
        raise InvalidRequest(
            f"agent {agent.agent_id} cannot enforce {', '.join(feature_names(missing))}, which the"
            f" task asks for; it enforces {able}"
        )
    if task.command.secrets and not agent.takes_secrets:
        raise InvalidRequest(f"agent {agent.agent_id} {_NO_SECRETS_SENT}")


def require_image(permissions: Permissions, task: TaskInfo) -> None:
    """Check that the framework's principal may launch the task's image, if it has one.

    Raises:
        PermissionDenied: if it may not.
    """
    if task.isolation.image:
        require(permissions, Action.LAUNCH_IMAGE, image_object(task.isolation.image))


def require_user(permissions: Permissions, agent: Agent, task: TaskInfo) -> None:
    """Check that the framework's principal may run as the account that the task gets.

    A task without a user needs no rule on an agent that gives it a uid of its own.

    Raises:
        PermissionDenied: if it may not.
    """
    user = task.command.user or agent.default_user
    if task.command.user or user != OWN_USER:
        require(permissions, Action.RUN_AS, user_object(user))
