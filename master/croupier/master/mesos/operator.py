"""The operator API: `POST /api/v1`, and the older pages, such as `/state`.

Each answer is made of calls of Croupier's own operator service on behalf of the caller, with its
permissions. Objects are made in slices of a few milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from croupier.master.mesos import views
from croupier.master.mesos.tasks import duration_ms
from croupier.master.web.calls import CALLS
from croupier.mesos import fields
from croupier.mesos.fields import Json, entry, flag, id_of, text
from croupier.model.errors import InvalidRequest
from croupier.model.task import TERMINAL
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.process.http.bodies import JSON, read_body
from croupier.process.http.routes import Handler
from croupier.process.time_slice import TimeSlice
from croupier.v1 import operator_pb2 as pb

MOST_BODY: Final = 64 * 1024
_ENDED: Final = frozenset(f"TASK_{state.name}" for state in TERMINAL)

Made = Callable[[Any], Json]


class OperatorApi:
    """Serves operators."""

    def __init__(self, master: Callable[[], Json], elected_ms: Callable[[], int]) -> None:
        """`master` describes the master, which leads since `elected_ms`."""
        self._master, self._elected_ms = master, elected_ms
        self._calls: Mapping[str, Callable[[Json], Awaitable[Json | None]]] = {
            "GET_HEALTH": lambda _: _fixed(healthy=True),
            "GET_VERSION": lambda _: _fixed(version_info={"version": fields.VERSION}),
            "GET_METRICS": self._metrics,
            "GET_MASTER": self._get_master,
            "GET_AGENTS": lambda _: _listed("agents", "Agents", views.agent_object),
            "GET_FRAMEWORKS": lambda _: _listed("frameworks", "Frameworks", views.framework_object),
            "GET_EXECUTORS": lambda _: _fixed(executors=[]),
            "GET_TASKS": self._tasks,
            "GET_ROLES": lambda _: _listed("roles", "Roles", views.role_object),
            "GET_STATE": self._state,
            "DRAIN_AGENT": _drain,
            "DEACTIVATE_AGENT": lambda of: _do("DeactivateAgent", agent=id_of(of, "agent_id")),
            "REACTIVATE_AGENT": lambda of: _do("ReactivateAgent", agent=id_of(of, "agent_id")),
            "MARK_AGENT_GONE": lambda of: _do("MarkAgentGone", agent=id_of(of, "agent_id")),
            "TEARDOWN": lambda of: _do("TeardownFramework", framework_id=id_of(of, "framework_id")),
        }

    async def post(self, request: web.Request) -> web.Response:
        """Answer a call."""
        if request.content_type != JSON:
            return web.Response(status=415, text=f"Expecting 'Content-Type' of {JSON}")
        of = fields.parse_object(await read_body(request, MOST_BODY))
        kind = text(of, "type")
        if kind not in self._calls:
            raise InvalidRequest(f"Failed to validate master::Call: unknown type {kind[:80]!r}")
        found = await self._calls[kind](entry(of, kind.lower()))
        if found is None:
            # Mesos answers an action without a body.
            return web.Response(status=200 if kind == "TEARDOWN" else 202)
        return _answer(fields.typed(kind, **found))

    def pages(self) -> dict[str, Handler]:
        """Return the handlers of the older pages, by their paths."""
        made = {
            "/state": self._state_page,
            "/state.json": self._state_page,
            "/slaves": lambda: _listed("slaves", "Agents", views.agent_page),
            "/frameworks": self._frameworks_page,
            "/tasks": lambda: _listed("tasks", "Tasks", views.task_page),
            "/roles": lambda: _listed("roles", "Roles", views.role_page),
            "/metrics/snapshot": self._metrics_page,
        }
        return {path: _served(make) for path, make in made.items()}

    async def _metrics(self, _: Json) -> Json:
        found = await self._metrics_page()
        return {"metrics": [{"name": name, "value": value} for name, value in found.items()]}

    async def _get_master(self, _: Json) -> Json:
        since = self._elected_ms() / 1000
        return {"master_info": self._master(), "start_time": since, "elected_time": since}

    async def _tasks(self, _: Json) -> Json:
        found = await _all("Tasks", views.task_object)
        return {
            "tasks": [each for each in found if each["state"] not in _ENDED],
            "completed_tasks": [each for each in found if each["state"] in _ENDED],
        }

    async def _state(self, none: Json) -> Json:
        parts = ("GET_AGENTS", "GET_FRAMEWORKS", "GET_EXECUTORS", "GET_TASKS")
        return {part.lower(): await self._calls[part](none) for part in parts}

    async def _metrics_page(self) -> Json:
        overview = await _ask("GetOverview")
        return views.metric_values(overview, time.time() - self._elected_ms() / 1000)

    async def _frameworks_page(self) -> Json:
        """Return frameworks with their tasks."""
        found = {each["id"]: each for each in await _all("Frameworks", views.framework_page)}
        for task in await _all("Tasks", views.task_page):
            framework = found.get(task["framework_id"])
            if framework is not None:
                kind = "completed_tasks" if task["state"] in _ENDED else "tasks"
                framework[kind].append(task)
        return {
            "frameworks": list(found.values()),
            "completed_frameworks": [],
            "unregistered_frameworks": [],
        }

    async def _state_page(self) -> Json:
        master, since = self._master(), self._elected_ms() / 1000
        agents = await _all("Agents", views.agent_page)
        pid = f"master@{master['address']['hostname']}:{master['port']}"
        return {
            "version": fields.VERSION,
            "id": master["id"],
            "pid": pid,
            "leader": pid,
            "leader_info": master,
            "hostname": master["hostname"],
            "start_time": since,
            "elected_time": since,
            "activated_slaves": sum(each["active"] for each in agents),
            "deactivated_slaves": sum(not each["active"] for each in agents),
            "flags": {},
            "slaves": agents,
            "recovered_slaves": [],
            "orphan_tasks": [],
            **await self._frameworks_page(),
        }


def _served(make: Callable[[], Awaitable[Json]]) -> Handler:
    async def serve(_: web.Request) -> web.Response:
        return _answer(await make())

    return serve


def _answer(found: Json) -> web.Response:
    body = fields.encoded(found)
    CALLS.get().answered(len(body))
    return web.Response(body=body, content_type=JSON)


async def _ask(method: str, **fields: Any) -> Any:
    return await CALLS.get().ask(method, getattr(pb, f"{method}Request")(**fields))


async def _do(method: str, **fields: Any) -> None:
    await _ask(method, **fields)


async def _drain(of: Json) -> None:
    if flag(of, "mark_gone"):
        raise InvalidRequest("mark_gone is not supported: mark the agent gone once it is drained")
    grace = {}
    if longest := entry(of, "max_grace_period"):
        grace["grace_ms"] = min(duration_ms(longest), MAX_GRACE_MS)
    await _ask("DrainAgent", agent=id_of(of, "agent_id"), **grace)


async def _fixed(**fields: Any) -> Json:
    return fields


async def _listed(name: str, kind: str, make: Made) -> Json:
    return {name: await _all(kind, make)}


async def _all(kind: str, make: Made) -> list[Json]:
    """Return what `make` makes of each view of a kind, such as `Agents`."""
    held, found = TimeSlice(), list[Json]()
    # Labels of tasks come with their commands.
    fields: Json = {"with_commands": True} if kind == "Tasks" else {}
    while True:
        answer = await _ask(f"List{kind}", **fields)
        for view in getattr(answer, kind.lower()):
            if held.is_over:
                await held.give_way()
            found.append(make(view))
        if not answer.next_page_token:
            return found
        fields["page_token"] = answer.next_page_token
