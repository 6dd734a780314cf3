"""The output of tasks over HTTP: `GET /output/FRAMEWORK/TASK/STREAM?offset=N&follow=1`."""

from __future__ import annotations

import asyncio
import os

from aiohttp import web

from croupier.agent.core.tasks import Key
from croupier.agent.output_range import PartRequest
from croupier.agent.sandbox import STREAMS, NothingWritten, Sandboxes, Stream
from croupier.agent.served_files import POLL_S, ServedFiles, is_connected
from croupier.model.errors import NotFound
from croupier.process.http.routes import Requirement, Route


class OutputRoutes:
    """Serves the files stdout and stderr of existing sandboxes."""

    def __init__(self, sandboxes: Sandboxes, served: ServedFiles) -> None:
        self._sandboxes, self._served = sandboxes, served

    def routes(self) -> list[Route]:
        """Return the routes for the agent's HTTP server."""
        path = "/output/{framework_id}/{task_id}/{stream}"
        return [Route(path, self._get, Requirement.OUTPUT_LINK)]

    async def _get(self, request: web.Request) -> web.StreamResponse:
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


def _stream(request: web.Request) -> Stream:
    stream = request.match_info["stream"]
    if stream not in STREAMS:
        raise NotFound(f"a task has {' and '.join(STREAMS)}, not {stream!r}")
    return stream
