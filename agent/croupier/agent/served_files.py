"""Serves parts of open files over HTTP, to a bounded number of readers.

A request names a part by offset, by limit, from the end, or by Range. Offsets count from the first
byte that the task wrote, also after the agent has removed the oldest output. A request for removed
bytes gets what follows them.

Rule: the bytes of one answer are contiguous, and `Croupier-Offset` is the offset of the first. If
output that a slow reader has not got yet is removed, the connection is closed before the end of
the answer; the reader asks again, and the new answer begins where the kept output does.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from croupier.agent.core.tasks import Key
from croupier.agent.output_links import OutputLinks
from croupier.agent.output_trim import first_kept
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import FrameworkId, TaskId, check_id
from croupier.process.http.connections import RETRY_AFTER_S

MAX_OFFSET: Final = 2**62
MAX_LINES: Final = 1_000_000
# Bytes that are searched for the beginning of the last lines.
MAX_SEARCH: Final = 16 << 20
_STEP: Final = 64 * 1024
# One range; a header with several, or of another unit, is ignored as HTTP allows.
_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{0,19})|bytes=-(\d{1,19})", re.ASCII)
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


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A request for a part of a file.

    Attributes:
        offset: of the first byte; None: by `tail_bytes` or `tail_lines`.
        limit: the most bytes; None: to the end.
        is_range: whether it was asked for by a Range header.
    """

    offset: int | None = 0
    limit: int | None = None
    tail_bytes: int = 0
    tail_lines: int = 0
    follow: bool = False
    is_range: bool = False

    def begin(self, fd: int, first: int) -> int:
        """Return where to read from: not before `first`, and perhaps beyond the end."""
        size = os.fstat(fd).st_size
        if self.offset is not None:
            return max(self.offset, first)
        if self.tail_lines:
            return last_lines(fd, self.tail_lines, first, size)
        return max(size - self.tail_bytes, first)

    def settled(self, begin: int, size: int) -> tuple[PartRequest, dict[str, str]]:
        """Return the request, with a limit if it is a range, and the headers of its answer."""
        headers = {
            "Accept-Ranges": "bytes",
            "Croupier-Offset": str(begin),
            "Croupier-Size": str(size),
        }
        if not self.is_range:
            return self, headers
        end = size
        if self.offset is not None and self.limit is not None:
            end = min(size, self.offset + self.limit)
        limit = max(0, end - begin)
        sent = f"{begin}-{end - 1}" if limit else "*"
        return replace(self, limit=limit), {**headers, "Content-Range": f"bytes {sent}/{size}"}


def requested_part(query: Mapping[str, str], range_header: str | None) -> PartRequest:
    """Return what a request asks for.

    Raises InvalidRequest if a value is malformed, or two contradict each other.
    """
    follow = query.get("follow", "0") == "1"
    limit = _number(query, "limit", MAX_OFFSET)
    lines, size = _number(query, "tail", MAX_LINES), _number(query, "tail_bytes", MAX_OFFSET)
    offset = _number(query, "offset", MAX_OFFSET)
    if sum(value is not None for value in (offset, lines, size)) > 1:
        raise InvalidRequest("give only one of offset, tail and tail_bytes")
    if lines is not None or size is not None:
        return PartRequest(None, limit, size or 0, lines or 0, follow)
    if offset is None and range_header is not None and not follow:
        found = _RANGE.fullmatch(range_header.strip())
        if found is not None:
            return _of_range(found)
    return PartRequest(offset or 0, limit, follow=follow)


def last_lines(fd: int, lines: int, first: int, size: int) -> int:
    """Return the offset at which the last lines of a file begin, by searching from its end.

    Not before `first`, and of long lines not further from the end than `MAX_SEARCH` bytes.
    """
    lowest, end = max(first, size - MAX_SEARCH), size
    # The end of the last line begins no further line.
    left = lines + (size > lowest and os.pread(fd, 1, size - 1) == b"\n")
    while end > lowest:
        begin = max(lowest, end - _STEP)
        chunk = os.pread(fd, end - begin, begin)
        if chunk.count(b"\n") >= left:
            at = len(chunk)
            for _ in range(left):
                at = chunk.rindex(b"\n", 0, at)
            return begin + at + 1
        left -= chunk.count(b"\n")
        end = begin
    return lowest


def _of_range(found: re.Match[str]) -> PartRequest:
    first, last, suffix = found.groups()
    if suffix is not None:
        return PartRequest(None, tail_bytes=min(int(suffix), MAX_OFFSET), is_range=True)
    begin = int(first)
    if begin > MAX_OFFSET or (last and int(last) < begin):
        raise InvalidRequest("the range ends before it begins, or is out of bounds")
    return PartRequest(begin, int(last) - begin + 1 if last else None, is_range=True)


def _number(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        unit = "lines" if name == "tail" else "bytes"
        raise InvalidRequest(f"{name} must be a number of {unit}")
    return int(text)


class ServedFiles:
    """The readers of files of all tasks."""

    def __init__(self, live_run: Callable[[Key], object | None], links: OutputLinks) -> None:
        """`live_run` returns the run of a task that may still write; None if there is none."""
        self._live_run, self._links = live_run, links
        self._readers: Counter[str] = Counter()
        # When each reader that has yet to take a chunk was sent it, the earliest first.
        self._waiting: dict[asyncio.Transport, tuple[str, float]] = {}

    @contextmanager
    def reading(self, request: web.Request) -> Iterator[tuple[Key, PartRequest]]:
        """Admit the reader of a part of a task's files, while the context lasts."""
        with answering():
            key = task_of(request)
            part = requested_part(request.query, request.headers.get("Range"))
            with self._a_reader(request.remote or ""):
                yield key, part

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

    def is_live(self, key: Key) -> bool:
        """Return whether a task may still write."""
        return self._live_run(key) is not None

    async def send(
        self, request: web.Request, key: Key, fd: int, part: PartRequest, *, is_output: bool
    ) -> web.StreamResponse:
        """Send a part of an open file, and what is appended meanwhile to a follower.

        `is_output`: whether it is an output file, which may have lost its beginning.
        """
        # A requeued task may run again within one poll, and writes to another file then.
        run = self._live_run(key)
        first = first_kept if is_output else (lambda _: 0)
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
                is_whole = await self._copy(request, response, key, run, fd, begin, part, first)
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
        run: object | None,
        fd: int,
        offset: int,
        part: PartRequest,
        first: Callable[[int], int],
    ) -> bool:
        """Send the part; return whether nothing of it was removed meanwhile."""
        left = MAX_OFFSET if part.limit is None else part.limit
        while is_connected(request):
            # Checked before reading: all output until then is still sent.
            more = part.follow and run is not None and self._live_run(key) is run
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


@contextmanager
def answering() -> Iterator[None]:
    """Answer errors of a request in the context with the codes 400 and 404."""
    try:
        yield
    except InvalidRequest as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    except NotFound as error:
        raise web.HTTPNotFound(text=f"{error}\n") from None


def task_of(request: web.Request) -> Key:
    """Return the task that the path of a request names.

    Raises InvalidRequest if an id is malformed.
    """
    match = request.match_info
    framework_id = FrameworkId(check_id("framework", match["framework_id"]))
    return framework_id, TaskId(check_id("task", match["task_id"]))


def is_connected(request: web.Request) -> bool:
    """Return whether the reader is still there."""
    return request.transport is not None and not request.transport.is_closing()
