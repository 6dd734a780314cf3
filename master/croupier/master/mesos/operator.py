"""The operator API: `POST /api/v1`, and the older pages, such as `/state`.

Each answer is made of calls of Croupier's own operator service on behalf of the caller, with its
permissions. Objects are made in slices of a few milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from croupier.master.mesos import views
from croupier.master.mesos.events import VERSION
from croupier.master.mesos.tasks import duration_ms
from croupier.master.web.calls import CALLS, Calls
from croupier.mesos.fields import Json, entry, flag, id_of, parse_object, text
from croupier.mesos.recordio import encoded
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
            "GET_HEALTH": self._health,
            "GET_VERSION": self._version,
            "GET_METRICS": self._metrics,
            "GET_MASTER": self._get_master,
            "GET_AGENTS": lambda _: _listed("agents", "Agents", views.agent_object),
            "GET_FRAMEWORKS": lambda _: _listed("frameworks", "Frameworks", views.framework_object),
            "GET_EXECUTORS": self._executors,
            "GET_TASKS": self._tasks,
            "GET_ROLES": lambda _: _listed("roles", "Roles", views.role_object),
            "GET_STATE": self._state,
            "DRAIN_AGENT": self._drain,
            "DEACTIVATE_AGENT": partial(_act_on_agent, "DeactivateAgent"),
            "REACTIVATE_AGENT": partial(_act_on_agent, "ReactivateAgent"),
            "MARK_AGENT_GONE": partial(_act_on_agent, "MarkAgentGone"),
            "TEARDOWN": self._teardown,
        }

    async def post(self, request: web.Request) -> web.Response:
        """Answer a call."""
        if request.content_type != JSON:
            return web.Response(status=415, text=f"Expecting 'Content-Type' of {JSON}")
        of = parse_object(await read_body(request, MOST_BODY))
        kind = text(of, "type")
        if kind not in self._calls:
            raise InvalidRequest(f"Failed to validate master::Call: unknown type {kind[:80]!r}")
        found = await self._calls[kind](entry(of, kind.lower()))
        if found is None:
            # Mesos answers an action without a body.
            return web.Response(status=200 if kind == "TEARDOWN" else 202)
        return _answer({"type": kind, kind.lower(): found})

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

    async def _health(self, _: Json) -> Json:
        return {"healthy": True}

    async def _version(self, _: Json) -> Json:
        return {"version_info": {"version": VERSION}}

    async def _metrics(self, _: Json) -> Json:
        found = await self._metrics_page()
        return {"metrics": [{"name": name, "value": value} for name, value in found.items()]}

    async def _get_master(self, _: Json) -> Json:
        since = self._elected_ms() / 1000
        return {"master_info": self._master(), "start_time": since, "elected_time": since}

    async def _executors(self, _: Json) -> Json:
        return {"executors": []}

    async def _tasks(self, _: Json) -> Json:
        found = await _all("Tasks", views.task_object)
        return {
            "tasks": [each for each in found if each["state"] not in _ENDED],
            "completed_tasks": [each for each in found if each["state"] in _ENDED],
        }

    async def _state(self, none: Json) -> Json:
        parts = ("GET_AGENTS", "GET_FRAMEWORKS", "GET_EXECUTORS", "GET_TASKS")
        return {part.lower(): await self._calls[part](none) for part in parts}

    async def _drain(self, of: Json) -> None:
        if flag(of, "mark_gone"):
            raise InvalidRequest(
                "mark_gone is not supported: mark the agent gone once it is drained"
            )
        request = pb.DrainAgentRequest(agent=id_of(of, "agent_id"))
        if grace := entry(of, "max_grace_period"):
            request.grace_ms = min(duration_ms(grace), MAX_GRACE_MS)
        await CALLS.get().ask("DrainAgent", request)

    async def _teardown(self, of: Json) -> None:
        request = pb.TeardownFrameworkRequest(framework_id=id_of(of, "framework_id"))
        await CALLS.get().ask("TeardownFramework", request)

    async def _metrics_page(self) -> Json:
        overview = await CALLS.get().ask("GetOverview", pb.GetOverviewRequest())
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
            "version": VERSION,
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
    body = encoded(found)
    CALLS.get().answered(len(body))
    return web.Response(body=body, content_type=JSON)


async def _act_on_agent(action: str, of: Json) -> None:
    request = getattr(pb, f"{action}Request")(agent=id_of(of, "agent_id"))
    await CALLS.get().ask(action, request)


async def _listed(name: str, kind: str, make: Made) -> Json:
    return {name: await _all(kind, make)}


async def _all(kind: str, make: Made) -> list[Json]:
    """Return what `make` makes of each view of a kind, such as `Agents`."""
    held, found = TimeSlice(), []
    async for view in _views(CALLS.get(), kind):
        if held.is_over:
            await held.give_way()
        found.append(make(view))
    return found


async def _views(calls: Calls, kind: str) -> AsyncIterator[Any]:
    token = ""
    while True:
        # Labels of tasks come with their commands.
        more = {"with_commands": True} if kind == "Tasks" else {}
        request = getattr(pb, f"List{kind}Request")(page_token=token, **more)
        answer = await calls.ask(f"List{kind}", request)
        for view in getattr(answer, kind.lower()):
            yield view
        token = answer.next_page_token
        if not token:
            return
