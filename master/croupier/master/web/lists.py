"""Lists, page by page: `{"items": [...], "next": TOKEN}`; and single objects of them.

Rule: items are made in slices of a few milliseconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from croupier.api.objects import as_object
from croupier.master.services.filters import AGENT_WORDS, MAX_TEXT
from croupier.master.services.paging import WrongPageToken
from croupier.master.web.answers import encoded
from croupier.master.web.table import (
    ApiHandler,
    ApiRoute,
    Asked,
    Parameter,
    duration,
    flag,
    integer,
    words,
)
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.task import TaskState
from croupier.process.time_slice import TimeSlice
from croupier.v1 import operator_pb2 as pb

_PAGING: Final = (
    integer("limit", "most items of the page", 1, 1_000, 100),
    Parameter("page", "`next` of the page before; absent: the first page"),
)


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind of objects that the master lists.

    Attributes:
        name: `agents`: the field of the answer to `ListAgents`, and the path.
        request: the class of the call's request.
        answer: that of its answer.
    """

    name: str
    request: Callable[..., Any]
    answer: type[Message]

    @property
    def method(self) -> str:
        """The call that lists it."""
        return f"List{self.name.capitalize()}"

    async def page(self, asked: Asked, **fields: Any) -> tuple[list[Any], str]:
        """Return the messages of a page, and the token of the next; raises as `Calls.ask`."""
        answer = await asked.ask(self.method, self.request(**fields))
        return list(getattr(answer, self.name)), answer.next_page_token

    async def pages(self, asked: Asked, **fields: Any) -> AsyncIterator[list[Any]]:
        """Yield the messages of all pages; raises as `Calls.ask`."""
        token = ""
        while True:
            found, token = await self.page(asked, page_token=token, **fields)
            yield found
            if not token:
                return

    async def listed(self, asked: Asked, **fields: Any) -> bytes:
        """Return the page that a request asks for, as JSON; raises as `Calls.ask`."""
        query = asked.query
        try:
            found, token = await self.page(
                asked, page_size=query["limit"], page_token=query["page"], **fields
            )
        except WrongPageToken:
            raise InvalidRequest(
                "page is not of this list: give `next` of the page before, as it is, with the same"
                " filters"
            ) from None
        items = await made(map(as_object, found))
        return b'{"items":[%b],"next":%b}' % (b",".join(items), encoded(token or None))


AGENTS: Final = ListedKind("agents", pb.ListAgentsRequest, pb.ListAgentsResponse)
FRAMEWORKS: Final = ListedKind("frameworks", pb.ListFrameworksRequest, pb.ListFrameworksResponse)
OFFERS: Final = ListedKind("offers", pb.ListOffersRequest, pb.ListOffersResponse)
ROLES: Final = ListedKind("roles", pb.ListRolesRequest, pb.ListRolesResponse)
TASKS: Final = ListedKind("tasks", pb.ListTasksRequest, pb.ListTasksResponse)


async def made(views: Iterable[Any]) -> list[bytes]:
    """Return objects as JSON, made in slices."""
    items: list[bytes] = []
    held = TimeSlice()
    for view in views:
        items.append(encoded(view))
        if held.is_over:
            await held.give_way()
    return items


def _by_text(kind: ListedKind, summary: str, where: str) -> ApiRoute:
    async def handle(asked: Asked) -> bytes:
        return await kind.listed(asked, text=asked.query["text"])

    found = Parameter("text", f"only {kind.name} with this in {where}")
    return _list(kind, handle, summary, found)


async def _agents(asked: Asked) -> bytes:
    query = asked.query
    return await AGENTS.listed(asked, text=query["text"], states=query["state"])


async def _tasks(asked: Asked) -> bytes:
    query = asked.query
    return await TASKS.listed(
        asked,
        framework_id=query["framework"],
        role=query["role"],
        agent=query["agent"],
        states=query["state"],
        text=query["text"],
        min_age_ms=query["min_age"],
        max_age_ms=query["max_age"],
        with_commands=query["commands"],
    )


def _list(kind: ListedKind, handler: ApiHandler, summary: str, *filters: Parameter) -> ApiRoute:
    query = (*_PAGING, *filters)
    return ApiRoute(f"/{kind.name}", handler, summary, kind.answer, query, is_shared=True)


async def find_agent(asked: Asked, agent_id: str) -> Any:
    """Return an agent that the caller may view.

    Raises:
        NotFound: if there is none of that id.
        CroupierError: as `Calls.ask`.
    """
    name = f"agent {agent_id!r}"
    return await _first(asked, AGENTS, lambda each: each.agent.agent_id == agent_id, name, agent_id)


async def find_framework(asked: Asked, framework_id: str) -> Any:
    """Return a framework that the caller may view; raises as `find_agent`."""

    def matches(each: pb.FrameworkView) -> bool:
        return each.framework.framework_id == framework_id

    return await _first(asked, FRAMEWORKS, matches, f"framework {framework_id!r}", framework_id)


async def find_role(asked: Asked, role: str) -> Any:
    """Return a role that the caller may view; raises as `find_agent`."""
    return await _first(asked, ROLES, lambda each: each.role == role, f"role {role!r}", role)


async def find_task(asked: Asked, framework_id: str, task_id: str) -> Any:
    """Return a task that the caller may view, with its command; raises as `find_agent`."""
    name = f"task {task_id!r} of framework {framework_id!r}"
    fields: dict[str, Any] = {
        "framework_id": framework_id,
        "task_id": task_id,
        "with_commands": True,
    }
    return await _first(asked, TASKS, lambda each: each.task.task_id == task_id, name, **fields)


async def _first(
    asked: Asked,
    kind: ListedKind,
    matches: Callable[[Any], bool],
    name: str,
    text: str = "",
    **fields: Any,
) -> Any:
    """Return the first item of a list that matches, among those that have `text`."""
    # Longer than any id, and than what a list searches for.
    if len(text) > MAX_TEXT:
        raise NotFound(f"no {name[:300]}")
    if text:
        fields["text"] = text
    async for page in kind.pages(asked, **fields):
        for each in page:
            if matches(each):
                return each
    raise NotFound(f"no {name[:300]}")


def _route(path: str, find: Callable[..., Awaitable[Any]], what: str, answer: Any) -> ApiRoute:
    """Return the route to an object that `find` finds by the parts of the path."""
    return ApiRoute(path, lambda asked: find(asked, **asked.path), f"Return {what}.", answer)


async def _why(asked: Asked) -> Any:
    request = pb.ExplainRequest(**asked.path, agent_id=asked.query["agent"])
    return await asked.ask("Explain", request)


ROUTES: Final = (
    _list(
        AGENTS,
        _agents,
        "List agents.",
        words("state", "only agents of these states", {word: word for word in AGENT_WORDS}),
        Parameter("text", "only agents with this in their id or hostname"),
    ),
    _by_text(FRAMEWORKS, "List frameworks.", "their id, name or a role"),
    _by_text(OFFERS, "List outstanding offers.", "an id or the role"),
    _by_text(ROLES, "List roles, parents before their children.", "their path"),
    _list(
        TASKS,
        _tasks,
        "List tasks, also those that ended recently.",
        Parameter("framework", "only tasks of the framework of this id"),
        Parameter("role", "only tasks of this role and those below it"),
        Parameter("agent", "only tasks of the agent of this id or hostname"),
        words("state", "only tasks in these states", {s.name: s.value for s in TaskState}),
        Parameter("text", "only tasks with this in their id or name"),
        duration("min_age", "only tasks that are at least this old, such as `10m`"),
        duration("max_age", "only tasks that are at most this old"),
        flag("commands", "with their commands, labels and isolation"),
    ),
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
