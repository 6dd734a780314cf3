"""Single objects, and why a framework gets no more offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from croupier.master.services.filters import MAX_TEXT
from croupier.master.web.lists import AGENTS, FRAMEWORKS, ROLES, TASKS, ListedKind
from croupier.master.web.parameters import Parameter
from croupier.master.web.table import ApiRoute, Asked
from croupier.model.errors import NotFound
from croupier.v1 import operator_pb2 as pb


async def find_agent(asked: Asked, agent_id: str) -> pb.AgentView:
    """Return an agent that the caller may view.

    Raises:
        NotFound: if there is none of that id.
        CroupierError: as `Calls.ask`.
    """
    found: pb.AgentView = await _first(
        asked,
        AGENTS,
        lambda each: each.agent.agent_id == agent_id,
        f"agent {agent_id!r}",
        text=agent_id,
    )
    return found


async def find_framework(asked: Asked, framework_id: str) -> pb.FrameworkView:
    """Return a framework that the caller may view; raises as `find_agent`."""
    found: pb.FrameworkView = await _first(
        asked,
        FRAMEWORKS,
        lambda each: each.framework.framework_id == framework_id,
        f"framework {framework_id!r}",
        text=framework_id,
    )
    return found


async def find_role(asked: Asked, role: str) -> pb.RoleView:
    """Return a role that the caller may view; raises as `find_agent`."""
    found: pb.RoleView = await _first(
        asked, ROLES, lambda each: each.role == role, f"role {role!r}", text=role
    )
    return found


async def find_task(asked: Asked, framework_id: str, task_id: str) -> pb.TaskView:
    """Return a task that the caller may view, with its command; raises as `find_agent`."""
    found: pb.TaskView = await _first(
        asked,
        TASKS,
        lambda each: each.task.task_id == task_id,
        f"task {task_id!r} of framework {framework_id!r}",
        framework_id=framework_id,
        task_id=task_id,
        with_commands=True,
    )
    return found


async def _first(
    asked: Asked, kind: ListedKind, matches: Callable[[Any], bool], name: str, **fields: Any
) -> Any:
    # Longer than any id, and than what a list searches for.
    if len(fields.get("text", "")) > MAX_TEXT:
        raise NotFound(f"no {name[:300]}")
    async for page in kind.pages(asked, **fields):
        for each in page:
            if matches(each):
                return each
    raise NotFound(f"no {name[:300]}")


def _route(path: str, find: Callable[..., Awaitable[Any]], what: str, answer: Any) -> ApiRoute:
    """Return the route to an object that `find` finds by the parts of the path."""
    return ApiRoute(path, lambda asked: find(asked, **asked.path), f"Return {what}.", answer)


async def _why(asked: Asked) -> Any:
    request = pb.ExplainRequest(
        framework_id=asked.path["framework_id"], agent_id=asked.query["agent"]
    )
    return await asked.ask("Explain", request)


ROUTES: Final = (
    _route("/agents/{agent_id}", find_agent, "an agent", pb.AgentView),
    _route("/frameworks/{framework_id}", find_framework, "a framework", pb.FrameworkView),
    ApiRoute(
        "/frameworks/{framework_id}/why",
        _why,
        "Explain why a framework gets no more offers.",
        pb.ExplainResponse,
        (Parameter("agent", "explain offers of the agent of this id only"),),
    ),
    _route("/roles/{role:.+}", find_role, "a role", pb.RoleView),
    _route("/tasks/{framework_id}/{task_id}", find_task, "a task with its command", pb.TaskView),
)
