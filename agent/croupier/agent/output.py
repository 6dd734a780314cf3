"""The output of tasks over HTTP: `GET /output/FRAMEWORK/TASK/STREAM?offset=N&follow=1`.

Rule: the bytes of one answer are contiguous, and `Croupier-Offset` is the offset of the first. If
output that a slow reader has not got yet is removed, the connection is closed before the end of
the answer; the reader asks again, and the new answer tells where the kept output begins.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from croupier.agent.core.tasks import Key
from croupier.agent.output_links import OutputLinks
from croupier.agent.output_range import MAX_OFFSET, Wanted, wanted_part
from croupier.agent.output_trim import first_kept
from croupier.agent.sandbox import STREAMS, Sandboxes, Stream
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId, check_id
from croupier.process.http.connections import RETRY_AFTER_S
from croupier.process.http.routes import Requirement, Route

CHUNK_BYTES = 64 * 1024
# Seconds between two reads for a follower.
POLL_S = 0.05
MAX_READERS = 256
# The most readers at one address, so that others can read too.
READERS_PER_HOST = 192
# Seconds for which a reader may follow by one link. It loses access this long after the master
# stops to sign links for it; other readers continue with a new link.
FOLLOW_S = 300.0
# A task may print text that a browser would run.
_HEADERS = {
    "Content-Type": "application/octet-stream",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class OutputRoutes:
    """Serves the files stdout and stderr of existing sandboxes."""

    def __init__(
        self, sandboxes: Sandboxes, is_live: Callable[[Key], bool], links: OutputLinks
    ) -> None:
        """`is_live` returns whether a task may still print."""
        self._sandboxes, self._is_live, self._links = sandboxes, is_live, links
        self._readers: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        """Return the routes for the agent's HTTP server."""
        path = "/output/{framework_id}/{task_id}/{stream}"
        return [Route(path, self._get, Requirement.OUTPUT_LINK)]

    async def _get(self, request: web.Request) -> web.StreamResponse:
        try:
            key, stream = _requested(request)
            part = wanted_part(request.query, request.headers.get("Range"))
            with self._a_reader(request.remote or ""):
                fd = await self._open(request, key, stream, part.follow)
                try:
                    return await self._send(request, key, fd, part)
                finally:
                    os.close(fd)
        except InvalidRequest as error:
            return web.Response(text=f"{error}\n", status=400)
        except NotFound as error:
            return web.Response(text=f"{error}\n", status=404)

    @contextmanager
    def _a_reader(self, host: str) -> Iterator[None]:
        if self._readers.total() >= MAX_READERS or self._readers[host] >= READERS_PER_HOST:
            raise web.HTTPServiceUnavailable(
                text="too many readers of output; try again later\n",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        self._readers[host] += 1
        try:
            yield
        finally:
            self._readers[host] -= 1
            if not self._readers[host]:
                del self._readers[host]

    async def _open(self, request: web.Request, key: Key, stream: Stream, follow: bool) -> int:
        """Open the output; a follower waits until the task is started."""
        while True:
            waits = follow and self._is_live(key) and _is_connected(request)
            try:
                return self._sandboxes.open_output(key, stream)
            except NotFound:
                if not waits:
                    raise
            await asyncio.sleep(POLL_S)

    async def _send(
        self, request: web.Request, key: Key, fd: int, part: Wanted
    ) -> web.StreamResponse:
        begin = await asyncio.to_thread(part.begin, fd) if part.tail_lines else part.begin(fd)
        part, headers = part.settled(begin, os.fstat(fd).st_size)
        if part.limit == 0 and part.is_range:
            return web.Response(status=416, headers=headers)
        status = 206 if part.is_range else 200
        response = web.StreamResponse(status=status, headers={**_HEADERS, **headers})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            async with asyncio.timeout(FOLLOW_S if self._links.are_required else None):
                is_whole = await self._copy(request, response, key, fd, begin, part)
        except TimeoutError:
            is_whole = False
        except ConnectionError:
            # The reader has disconnected.
            return response
        if not is_whole and request.transport is not None:
            # Without the end of the answer, the reader knows that there is more.
            request.transport.close()
        return response

    async def _copy(
        self,
        request: web.Request,
        response: web.StreamResponse,
        key: Key,
        fd: int,
        offset: int,
        part: Wanted,
    ) -> bool:
        """Send the part; return whether nothing of it was removed meanwhile."""
        left = MAX_OFFSET if part.limit is None else part.limit
        while _is_connected(request):
            # Checked before reading: all output until then is still sent.
            more = part.follow and self._is_live(key)
            while chunk := os.pread(fd, min(CHUNK_BYTES, left), offset):
                # Checked after reading: removed bytes read as zeros.
                if first_kept(fd) > offset:
                    return False
                offset += len(chunk)
                left -= len(chunk)
                await response.write(chunk)
            if not more or not left:
                await response.write_eof()
                break
            await asyncio.sleep(POLL_S)
        return True


def _requested(request: web.Request) -> tuple[Key, Stream]:
    match = request.match_info
    stream = match["stream"]
    if stream not in STREAMS:
        raise NotFound(f"a task has {' and '.join(STREAMS)}, not {stream!r}")
    framework_id = FrameworkId(check_id("framework", match["framework_id"]))
    task_id = TaskId(check_id("task", match["task_id"]))
    return (framework_id, task_id), stream


def _is_connected(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()
