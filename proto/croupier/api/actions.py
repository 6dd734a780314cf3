"""Requests to change something, and their answers."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from croupier.api.affected import Affected
from croupier.api.agents import Agent
from croupier.api.frameworks import Framework
from croupier.api.tasks import Task
from croupier.api.times import Duration

RolePart = Literal["weight", "resource_weights", "guarantee", "limit", "preemption"]


class AgentRequest(TypedDict, total=False):
    """A change of an agent.

    Attributes:
        dry_run: change nothing; return what would happen.
    """

    dry_run: bool


class DrainRequest(AgentRequest, total=False):
    """A drain of an agent.

    Attributes:
        dry_run: change nothing; return what would happen.
        grace: the longest time between SIGTERM and SIGKILL, such as `30s`; absent: each task's own.
    """

    grace: Duration


class KillRequest(DrainRequest, total=False):
    """The kill of a task.

    Attributes:
        dry_run: change nothing; return what would happen.
        grace: the time between SIGTERM and SIGKILL, such as `30s`; absent: the task's own.
    """


class TeardownRequest(TypedDict, total=False):
    """The teardown of a framework.

    Attributes:
        dry_run: change nothing; return what would happen.
    """

    dry_run: bool


class _OfRole(TypedDict):
    role: str


class RoleChange(_OfRole, total=False):
    """New settings of one role; those that are not named stay.

    Attributes:
        weight: above 0; a part among siblings.
        resource_weights: by resource, what the weight is multiplied by for it.
        guarantee: such as `cpus:4;mem:8GB`; empty: none.
        limit: as `guarantee`.
        preemption: `inherit` is that of the role above.
        reset: settings to put back to those of the master's command line; without others.
    """

    weight: float
    resource_weights: dict[str, float]
    guarantee: str
    limit: str
    preemption: Literal["on", "off", "inherit"]
    reset: list[RolePart]


class _Changes(TypedDict):
    changes: Annotated[list[RoleChange], {"minItems": 1, "maxItems": 100}]


class RolesRequest(_Changes, total=False):
    """Changes of roles: all of them, or none.

    Attributes:
        changes: at most one for each role.
        dry_run: change nothing; return the effect of the changes.
        force: accept what contradicts the state, such as a limit below the use of running tasks.
    """

    dry_run: bool
    force: bool


class AgentAction(TypedDict):
    """A change of an agent, or what it would do.

    Attributes:
        agent: after the change; before it if `dry_run`.
        affected: what would happen to tasks; None unless `dry_run`.
    """

    dry_run: bool
    agent: Agent
    affected: Affected | None


class KillAction(TypedDict):
    """The kill of a task, or the task that would be killed."""

    dry_run: bool
    task: Task


class TeardownAction(TypedDict):
    """The teardown of a framework, or what it would do.

    Attributes:
        framework: what would be torn down; None unless `dry_run`.
        tasks: the number of its tasks that have not ended.
        affected: what would happen to tasks; None unless `dry_run`.
    """

    dry_run: bool
    framework_id: str
    framework: Framework | None
    tasks: int
    affected: Affected | None
