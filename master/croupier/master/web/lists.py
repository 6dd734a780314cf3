"""Lists, page by page: `{"items": [...], "next": TOKEN}`; and single objects of them.

Rule: items are made in slices of a few milliseconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from croupier.api.objects import as_object
from croupier.master.services.filters import AGENT_WORDS, MAX_TEXT
from croupier.master.services.paging import WrongPageToken
from croupier.master.web.answers import encoded
from croupier.master.web.table import ApiRoute, Asked, Parameter, duration, flag, integer, words
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
    """A kind of objects that the master lists; `name` is its path, and the field of the answer."""

    name: str
    id_of: Callable[[Any], str]

    @property
    def method(self) -> str:
        """The call that lists it."""
        return f"List{self.name.capitalize()}"

    async def page(self, asked: Asked, **fields: Any) -> tuple[list[Any], str]:
        """Return the messages of a page, and the token of the next; raises as `Calls.ask`."""
        request = getattr(pb, f"{self.method}Request")(**fields)
        answer = await asked.ask(self.method, request)
        return list(getattr(answer, self.name)), answer.next_page_token

    async def pages(self, asked: Asked, **fields: Any) -> AsyncIterator[list[Any]]:
        """Yield the messages of all pages; raises as `Calls.ask`."""
        token = ""
        while True:
            found, token = await self.page(asked, page_token=token, **fields)
            yield found
            if not token:
                return

    async def find(self, asked: Asked, wanted: str, within: str = "", **fields: Any) -> Any:
        """Return the object `wanted`, if viewable; raises NotFound with `within`, or as `ask`."""
        # A longer text than a list searches for is longer than any id.
        if len(wanted) <= MAX_TEXT:
            async for page in self.pages(asked, **(fields or {"text": wanted})):
                for each in page:
                    if self.id_of(each) == wanted:
                        return each
        name = f"{self.name.removesuffix('s')} {wanted!r}{within}"
        raise NotFound(f"no {name[:300]}")

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


AGENTS: Final = ListedKind("agents", lambda each: each.agent.agent_id)
FRAMEWORKS: Final = ListedKind("frameworks", lambda each: each.framework.framework_id)
OFFERS: Final = ListedKind("offers", lambda each: each.offer.offer_id)
HOLDS: Final = ListedKind("holds", lambda each: each.hold_id)
RESERVATIONS: Final = ListedKind("reservations", lambda each: each.reservation_id)
ROLES: Final = ListedKind("roles", lambda each: each.role)
TASKS: Final = ListedKind("tasks", lambda each: each.task.task_id)
# Fields of requests that have other names than the parameters for them.
_FIELDS: Final = {
    "commands": "with_commands",
    "forecasts": "with_forecasts",
    "framework": "framework_id",
    "max_age": "max_age_ms",
    "min_age": "min_age_ms",
    "state": "states",
}


async def made(views: Iterable[Any]) -> list[bytes]:
    """Return objects as JSON, made in slices."""
    items: list[bytes] = []
    held = TimeSlice()
    for view in views:
        items.append(encoded(view))
        if held.is_over:
            await held.give_way()
    return items


def _list(kind: ListedKind, summary: str, *filters: Parameter) -> ApiRoute:
    async def handle(asked: Asked) -> bytes:
        query = {_FIELDS.get(each.name, each.name): asked.query[each.name] for each in filters}
        return await kind.listed(asked, **query)

    answer = getattr(pb, f"{kind.method}Response")
    return ApiRoute(f"/{kind.name}", handle, summary, answer, (*_PAGING, *filters), is_shared=True)


async def find_task(asked: Asked, framework_id: str, task_id: str) -> Any:
    """Return a task that the caller may view, with its command; raises as `ListedKind.find`."""
    fields = {"framework_id": framework_id, "task_id": task_id, "with_commands": True}
    return await TASKS.find(asked, task_id, f" of framework {framework_id!r}", **fields)


def _one(kind: ListedKind, path: str, answer: Any) -> ApiRoute:
    """Return the route to the object that the only part of the path names."""
    what = kind.name.removesuffix("s")
    return ApiRoute(
        path,
        lambda asked: kind.find(asked, *asked.path.values()),
        f"Return {'an' if what == 'agent' else 'a'} {what}.",
        answer,
    )


async def _why(asked: Asked) -> Any:
    query = asked.query
    request = pb.ExplainRequest(
        **asked.path,
        agent_id=query["agent"],
        with_forecasts=query["forecasts"] or bool(query["task"]),
        task_id=query["task"],
    )
    return await asked.ask("Explain", request)


ROUTES: Final = (
    _list(
        AGENTS,
        "List agents.",
        words("state", "only agents of these states", {word: word for word in AGENT_WORDS}),
        Parameter("text", "only agents with this in their id or hostname"),
    ),
    _list(
        FRAMEWORKS,
        "List frameworks.",
        Parameter("text", "only frameworks with this in their id, name or a role"),
    ),
    _list(
        OFFERS,
        "List outstanding offers.",
        Parameter("text", "only offers with this in an id or the role"),
    ),
    _list(
        HOLDS,
        "List the resources of agents that are held for frameworks and roles.",
        Parameter("text", "only holds with this in an id or the role"),
    ),
    _list(
        RESERVATIONS,
        "List the reservations of agents.",
        Parameter("text", "only reservations with this in their id or the role"),
    ),
    _list(
        ROLES,
        "List roles, parents before their children.",
        Parameter("text", "only roles with this in their path"),
    ),
    _list(
        TASKS,
        "List tasks, also those that ended recently.",
        Parameter("framework", "only tasks of the framework of this id"),
        Parameter("role", "only tasks of this role and those below it"),
        Parameter("agent", "only tasks of the agent of this id or hostname"),
        words("state", "only tasks in these states", {s.name: s.value for s in TaskState}),
        Parameter("text", "only tasks with this in their id or name"),
        duration("min_age", "only tasks that are at least this old, such as `10m`"),
        duration("max_age", "only tasks that are at most this old"),
        flag("commands", "with their commands, labels and isolation"),
        flag("forecasts", "foretell when those start that wait in queues, at most 200 of a page"),
    ),
    _one(AGENTS, "/agents/{agent_id}", pb.AgentView),
    _one(FRAMEWORKS, "/frameworks/{framework_id}", pb.FrameworkView),
    ApiRoute(
        "/frameworks/{framework_id}/why",
        _why,
        "Explain why a framework gets no more offers.",
        pb.ExplainResponse,
        (
            Parameter("agent", "explain offers of the agent of this id only"),
            flag("forecasts", "foretell when the next of its waiting tasks start"),
            Parameter("task", "foretell when the queued task of this id starts"),
        ),
    ),
    _one(ROLES, "/roles/{role:.+}", pb.RoleView),
    ApiRoute(
        "/tasks/{framework_id}/{task_id}",
        lambda asked: find_task(asked, **asked.path),
        "Return a task with its command.",
        pb.TaskView,
    ),
)
