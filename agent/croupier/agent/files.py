"""The files of sandboxes over HTTP: `GET /files/FRAMEWORK/TASK?path=PATH`.

A link is for all files of one task, and for none of another; a link to output is for no files.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict

from aiohttp import web

from croupier.agent.core.tasks import Key
from croupier.agent.output_range import PartRequest
from croupier.agent.sandbox import STREAMS, Sandboxes
from croupier.agent.sandbox_files import components_of, list_directory, open_file
from croupier.agent.served_files import HEADERS, ServedFiles
from croupier.process.http.routes import Requirement, Route


class FileRoutes:
    """Lists directories of existing sandboxes, with `list=1`, and serves files."""

    def __init__(self, sandboxes: Sandboxes, served: ServedFiles) -> None:
        self._sandboxes, self._served = sandboxes, served

    def routes(self) -> list[Route]:
        """Return the route for the agent's HTTP server."""
        return [Route("/files/{framework_id}/{task_id}", self._get, Requirement.OUTPUT_LINK)]

    async def _get(self, request: web.Request) -> web.StreamResponse:
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
