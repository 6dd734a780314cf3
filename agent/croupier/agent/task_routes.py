"""The output, the files and the usage of tasks over HTTP.

    GET /output/FRAMEWORK/TASK/STREAM?offset=N&follow=1
    GET /files/FRAMEWORK/TASK?path=PATH                     with list=1 a directory, as JSON
    GET /usage/FRAMEWORK/TASK                               as JSON

A link is for all files, or for the output, of one task; a link to output is for no files.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Any

from aiohttp import web

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, LocalTask
from croupier.agent.isolation.disk_watch import MIB
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.limits import limits_of
from croupier.agent.output_range import PartRequest
from croupier.agent.sandbox import STREAMS, NothingWritten, Sandboxes, Stream
from croupier.agent.sandbox_files import components_of, list_directory, open_file
from croupier.agent.served_files import HEADERS, POLL_S, ServedFiles, is_connected, task_of
from croupier.agent.task_usage import TaskUsage
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.isolation import Feature
from croupier.model.task import TaskInfo
from croupier.process.http.routes import Requirement, Route


class SandboxRoutes:
    """Serves the output and the other files of existing sandboxes, and lists their directories."""

    def __init__(self, sandboxes: Sandboxes, served: ServedFiles) -> None:
        self._sandboxes, self._served = sandboxes, served

    def routes(self) -> list[Route]:
        """Return the routes for the agent's HTTP server."""
        output = "/output/{framework_id}/{task_id}/{stream}"
        return [
            Route(output, self._get_output, Requirement.OUTPUT_LINK),
            Route("/files/{framework_id}/{task_id}", self._get_file, Requirement.OUTPUT_LINK),
        ]

    async def _get_output(self, request: web.Request) -> web.StreamResponse:
        async def handle(key: Key, part: PartRequest) -> web.StreamResponse:
            fd = await self._open(request, key, _stream(request), part.follow)
            try:
                return await self._served.send(request, key, fd, part, is_output=True)
            finally:
                os.close(fd)

        return await self._served.answer(request, handle)

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

        async def handle(key: Key, part: PartRequest) -> web.StreamResponse:
            if request.query.get("list") == "1":
                return await self._list(key, path)
            fd = await asyncio.to_thread(open_file, self._sandboxes, key, path)
            try:
                is_output = components_of(path) in [(stream,) for stream in STREAMS]
                return await self._served.send(request, key, fd, part, is_output=is_output)
            finally:
                os.close(fd)

        return await self._served.answer(request, handle)

    async def _list(self, key: Key, path: str) -> web.Response:
        entries, is_cut = await asyncio.to_thread(list_directory, self._sandboxes, key, path)
        found = {"entries": [asdict(entry) for entry in entries], "is_cut": is_cut}
        headers = {name: HEADERS[name] for name in ("X-Content-Type-Options", "Cache-Control")}
        return web.json_response(found, headers=headers)


def _stream(request: web.Request) -> Stream:
    stream = request.match_info["stream"]
    if stream not in STREAMS:
        raise NotFound(f"a task has {' and '.join(STREAMS)}, not {stream!r}")
    return stream


class UsageRoute:
    """Serves the usage and the limits of tasks that the agent has not forgotten."""

    def __init__(self, state: AgentState, usage: TaskUsage, flags: IsolationFlags) -> None:
        """Use the agent's flags for the limits of tasks that name none."""
        self._state, self._usage, self._flags = state, usage, flags

    def routes(self) -> list[Route]:
        """Return the route for the agent's HTTP server."""
        return [Route("/usage/{framework_id}/{task_id}", self._get, Requirement.OUTPUT_LINK)]

    async def _get(self, request: web.Request) -> web.Response:
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        try:
            key = task_of(request)
        except InvalidRequest as error:
            return web.Response(text=f"{error}\n", status=400)
        task = self._state.tasks.get(key)
        if task is None:
            text = f"the agent does not know task {key[1]}, or its end is acknowledged\n"
            return web.Response(text=text, status=404)
        return web.json_response(self._view(task), headers=headers)

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
