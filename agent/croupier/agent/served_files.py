"""Serves parts of open files over HTTP, to a bounded number of readers.

Rule: the bytes of one answer are contiguous, and `Croupier-Offset` is the offset of the first. If
output that a slow reader has not got yet is removed, the connection is closed before the end of
the answer; the reader asks again, and the new answer begins where the kept output does.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from croupier.agent.core.tasks import Key
from croupier.agent.output_links import OutputLinks
from croupier.agent.output_range import MAX_OFFSET, PartRequest, requested_part
from croupier.agent.output_trim import first_kept
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId, check_id
from croupier.process.http.connections import RETRY_AFTER_S

CHUNK_BYTES = 64 * 1024
# Seconds between two reads for a follower.
POLL_S = 0.05
MAX_READERS = 256
# The most readers at one address, so that others can read too.
READERS_PER_HOST = 192
# A reader that takes longer for one chunk yields to a new reader, if there is no room for both.
SLOW_S = 5.0
# Seconds for which a reader may follow by one link. It loses access this long after the master
# stops to sign links for it; other readers continue with a new link.
FOLLOW_S = 300.0
# A task may write what a browser would run.
HEADERS = {
    "Content-Type": "application/octet-stream",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
Handle = Callable[[Key, PartRequest], Awaitable[web.StreamResponse]]


class ServedFiles:
    """The readers of files of all tasks."""

    def __init__(self, is_live: Callable[[Key], bool], links: OutputLinks) -> None:
        """`is_live` returns whether a task may still write."""
        self.is_live, self._links = is_live, links
        self._readers: Counter[str] = Counter()
        # When each reader that has yet to take a chunk was sent it, the earliest first.
        self._waiting: dict[asyncio.Transport, tuple[str, float]] = {}

    async def answer(self, request: web.Request, handle: Handle) -> web.StreamResponse:
        """Return what `handle` answers to a request for a part of a task's files."""
        try:
            key = task_of(request)
            part = requested_part(request.query, request.headers.get("Range"))
            with self._a_reader(request.remote or ""):
                return await handle(key, part)
        except InvalidRequest as error:
            return web.Response(text=f"{error}\n", status=400)
        except NotFound as error:
            return web.Response(text=f"{error}\n", status=404)

    @contextmanager
    def _a_reader(self, host: str) -> Iterator[None]:
        is_full = self._readers.total() >= MAX_READERS
        has_most = self._readers[host] >= READERS_PER_HOST
        if (is_full or has_most) and not self._cut_off_slowest(host if has_most else None):
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

    def _cut_off_slowest(self, host: str | None) -> bool:
        """End the slowest reader, of `host` only if it is given; return whether there is one."""
        latest = asyncio.get_running_loop().time() - SLOW_S
        for transport, (peer, since) in self._waiting.items():
            if since <= latest and host in (None, peer):
                transport.abort()
                del self._waiting[transport]
                return True
        return False

    async def send(
        self, request: web.Request, key: Key, fd: int, part: PartRequest, *, is_output: bool
    ) -> web.StreamResponse:
        """Send a part of an open file, and what is appended meanwhile to a follower.

        `is_output`: whether it is an output file, which may have lost its beginning.
        """
        first = first_kept if is_output else _zero
        begin = await asyncio.to_thread(part.begin, fd, first(fd))
        part, headers = part.settled(begin, os.fstat(fd).st_size)
        if part.limit == 0 and part.is_range:
            return web.Response(status=416, headers=headers)
        status = 206 if part.is_range else 200
        response = web.StreamResponse(status=status, headers={**HEADERS, **headers})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            async with asyncio.timeout(FOLLOW_S if self._links.are_required else None):
                is_whole = await self._copy(request, response, key, fd, begin, part, first)
        except TimeoutError:
            is_whole = False
        except ConnectionError:
            # The reader has disconnected.
            return response
        if not is_whole and request.transport is not None:
            # Without the end of the answer, the reader knows that there is more.
            request.transport.close()
        return response

    async def _write(
        self, request: web.Request, response: web.StreamResponse, chunk: bytes
    ) -> None:
        transport, now = request.transport, asyncio.get_running_loop().time()
        if transport is None:
            raise ConnectionError("the reader has disconnected")
        self._waiting[transport] = (request.remote or "", now)
        try:
            await response.write(chunk)
        finally:
            self._waiting.pop(transport, None)

    async def _copy(
        self,
        request: web.Request,
        response: web.StreamResponse,
        key: Key,
        fd: int,
        offset: int,
        part: PartRequest,
        first: Callable[[int], int],
    ) -> bool:
        """Send the part; return whether nothing of it was removed meanwhile."""
        left = MAX_OFFSET if part.limit is None else part.limit
        while is_connected(request):
            # Checked before reading: all output until then is still sent.
            more = part.follow and self.is_live(key)
            while chunk := os.pread(fd, min(CHUNK_BYTES, left), offset):
                # Checked after reading: removed bytes read as zeros.
                if first(fd) > offset:
                    return False
                offset += len(chunk)
                left -= len(chunk)
                await self._write(request, response, chunk)
                # Nothing above waits while the reader is as fast as the disk.
                await asyncio.sleep(0)
            if not more or not left:
                await response.write_eof()
                break
            await asyncio.sleep(POLL_S)
        return True


def _zero(_: int) -> int:
    return 0


def task_of(request: web.Request) -> Key:
    """Return the task that the path of a request names.

    Raises:
        InvalidRequest: if an id is malformed.
    """
    match = request.match_info
    framework_id = FrameworkId(check_id("framework", match["framework_id"]))
    return framework_id, TaskId(check_id("task", match["task_id"]))


def is_connected(request: web.Request) -> bool:
    """Return whether the reader is still there."""
    return request.transport is not None and not request.transport.is_closing()
