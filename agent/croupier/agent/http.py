"""The agent's HTTP server: metrics, health, and the output, the files and the usage of tasks.

    GET /output/FRAMEWORK/TASK/STREAM?offset=N&follow=1
    GET /files/FRAMEWORK/TASK?path=PATH                     with list=1 a directory, as JSON
    GET /usage/FRAMEWORK/TASK                               as JSON

A link is for all files, or for the output, of one task; a link to output is for no files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, LocalTask
from croupier.agent.directories import closing
from croupier.agent.isolation.disk_watch import MIB
from croupier.agent.isolation.isolator import limits_of
from croupier.agent.output_links import OutputLinks
from croupier.agent.sandbox import STREAMS, NothingWritten, Sandboxes, Stream
from croupier.agent.sandbox_files import components_of, list_directory, open_file
from croupier.agent.served_files import (
    HEADERS,
    POLL_S,
    ServedFiles,
    answering,
    is_connected,
    task_of,
)
from croupier.agent.task_usage import TaskUsage
from croupier.model.clock import Clock
from croupier.model.errors import NotFound
from croupier.model.isolation import Feature
from croupier.model.task import TaskInfo
from croupier.net.server_tls import ServerTls
from croupier.process.http.credentials import clients_only, metrics_guard
from croupier.process.http.routes import Guard, Requirement, Route, allow_all
from croupier.process.http.server import HttpServer

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig
    from croupier.agent.isolation.flags import IsolationFlags

_JSON_HEADERS: Final = {name: HEADERS[name] for name in ("X-Content-Type-Options", "Cache-Control")}


def make_http(
    config: AgentConfig,
    registry: CollectorRegistry,
    clock: Clock,
    ready: Callable[[], str | None],
    tasks: TaskRoutes,
    tls: Callable[[], ServerTls] | None,
    is_authenticated: bool,
) -> HttpServer:
    """Return the server, which does not listen yet.

    `ready` returns what the agent still waits for, or None when it is ready, and `tls` its present
    certificate. `is_authenticated`: the agent itself has a credential.
    """

    def trust_domain() -> str:
        return "" if tls is None else tls().certificate.trust_domain

    metrics: Guard = allow_all
    if config.protects_metrics(is_authenticated=is_authenticated):
        metrics = metrics_guard(config.metrics_token_file, clients_only(trust_domain))
    return HttpServer(
        registry,
        clock,
        ready,
        tasks.routes(),
        (config.hostname, config.http.host, *config.http_names),
        tls=tls,
        guards={Requirement.READ_METRICS: metrics, Requirement.OUTPUT_LINK: tasks.links.check},
    )


class TaskRoutes:
    """Serves the output, the other files, the usage and the limits of tasks."""

    def __init__(
        self,
        state: AgentState,
        sandboxes: Sandboxes,
        usage: TaskUsage,
        links: OutputLinks,
        flags: IsolationFlags,
    ) -> None:
        """Use `flags`, as the agent has resolved them, for limits of tasks that name none."""
        self._state, self._sandboxes, self._usage, self._flags = state, sandboxes, usage, flags
        self._served = ServedFiles(state.live_task, links)
        self.links = links

    def routes(self) -> list[Route]:
        """Return the routes for the agent's HTTP server."""
        task, link = "{framework_id}/{task_id}", Requirement.OUTPUT_LINK
        return [
            Route(f"/output/{task}/{{stream}}", self._get_output, link),
            Route(f"/files/{task}", self._get_file, link),
            Route(f"/usage/{task}", self._get_usage, link),
        ]

    async def _get_output(self, request: web.Request) -> web.StreamResponse:
        with (
            self._served.reading(request) as (key, part),
            closing(await self._open(request, key, _stream(request), part.follow)) as fd,
        ):
            return await self._served.send(request, key, fd, part, is_output=True)

    async def _open(self, request: web.Request, key: Key, stream: Stream, follow: bool) -> int:
        """Open the output; a follower waits until the task is started."""
        while True:
            waits = follow and self._served.is_live(key) and is_connected(request)
            try:
                return self._sandboxes.open_output(key, stream)
            except NotFound as error:
                if not waits and isinstance(error, NothingWritten):
                    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                if not waits:
                    raise
            await asyncio.sleep(POLL_S)

    async def _get_file(self, request: web.Request) -> web.StreamResponse:
        path = request.query.get("path", "")
        with self._served.reading(request) as (key, part):
            if request.query.get("list") == "1":
                entries, is_cut = await asyncio.to_thread(
                    list_directory, self._sandboxes, key, path
                )
                listed = {"entries": [asdict(entry) for entry in entries], "is_cut": is_cut}
                return web.json_response(listed, headers=_JSON_HEADERS)
            with closing(await asyncio.to_thread(open_file, self._sandboxes, key, path)) as fd:
                is_output = components_of(path) in [(stream,) for stream in STREAMS]
                return await self._served.send(request, key, fd, part, is_output=is_output)

    async def _get_usage(self, request: web.Request) -> web.Response:
        with answering():
            key = task_of(request)
            task = self._state.tasks.get(key)
            if task is None:
                raise NotFound(f"the agent does not know task {key[1]}, or its end is acknowledged")
        return web.json_response(self._view(task), headers=_JSON_HEADERS)

    def _view(self, task: LocalTask) -> dict[str, Any]:
        usage = self._usage.of(task.key)
        return {
            "framework_id": task.framework_id,
            "task_id": task.info.task_id,
            "state": task.state.name,
            "usage": None if usage is None else asdict(usage),
            "limits": self._limits(task.info),
        }

    def _limits(self, info: TaskInfo) -> dict[str, float | None]:
        """Return the limits of a task, None for those that are not enforced."""
        has_quota = self._flags.cpu_quota == "on"
        limits = limits_of(info, self._flags.default_limits, has_quota=has_quota)
        found = {
            "cpus": (Feature.CPU_QUOTA, limits.cpus / 1000),
            "memory_bytes": (Feature.MEMORY, limits.mem * MIB // 1000),
            "disk_bytes": (Feature.DISK, limits.disk * MIB // 1000),
            "pids": (Feature.PIDS, limits.pids),
            "files": (Feature.FILES, limits.files),
        }
        features = self._state.features
        enforced = {
            name: amount or None if feature in features else None
            for name, (feature, amount) in found.items()
        }
        return {**enforced, "completion_ms": info.max_completion_ms or None}


def _stream(request: web.Request) -> Stream:
    stream = request.match_info["stream"]
    if stream not in STREAMS:
        raise NotFound(f"a task has {' and '.join(STREAMS)}, not {stream!r}")
    return stream
