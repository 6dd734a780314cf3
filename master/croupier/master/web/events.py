"""Events: of the past as a page, and live as server-sent events.

Rule: a reader of the stream holds a position and the batch that is being written to it, nothing
more. One that does not read is cut off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from google.protobuf.message import Message

from croupier.api.objects import as_object
from croupier.api.times import DURATION
from croupier.master.journal.lines import KINDS, PROBLEM
from croupier.master.services.stream import WRITE_TIMEOUT_S
from croupier.master.web.answers import API_HEADERS, encoded
from croupier.master.web.errors import error_answer
from croupier.master.web.table import ApiRoute, Asked, Parameter, integer, read_duration, words
from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb

# The encoded messages that many readers share.
MOST_ENCODED: Final = 2_000
# Interval between two overviews.
OVERVIEW_S: Final = 1.0
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
# An id of no term: its reader gets a reset.
_UNKNOWN: Final = "0-0"


@lru_cache(MOST_ENCODED)
def _json(parse: Callable[[bytes], Message], data: bytes) -> bytes:
    return encoded(as_object(parse(data)))


def _shared_json(message: Message) -> bytes:
    """Return a message as JSON, which many readers share."""
    return _json(type(message).FromString, message.SerializeToString(deterministic=True))


def _since(text: str) -> str | int:
    """Return an id, or a time in milliseconds."""
    return text if _ID.fullmatch(text) else read_duration(text)


def _words() -> dict[str, str]:
    all_kinds = (name for kind in KINDS for name in (kind.partition("-")[0], kind))
    return {name: name for name in (PROBLEM, *all_kinds)}


_SINCE: Final = Parameter(
    "since",
    "an event's id, to continue after it, or a duration: only events of this last time",
    {
        "type": "string",
        "pattern": rf"^[0-9]{{1,20}}-[0-9]{{1,20}}$|{DURATION['pattern']}",
        "maxLength": 41,
        "examples": ["3-1042", "10m"],
    },
    _since,
    "",
)
_KIND: Final = words(
    "kind",
    "only events of these kinds, or whose kinds begin so; `problem`: failures of all kinds",
    _words(),
)
_LIMIT: Final = integer(
    "limit", "most events of the past: the latest, or the first after an id", 1, 1_000, 100
)


def _request(asked: Asked, **more: Any) -> pb.WatchEventsRequest:
    query = asked.query
    request = pb.WatchEventsRequest(kinds=query["kind"], limit=query["limit"], **more)
    if isinstance(query["since"], int):
        request.within_ms = query["since"]
    else:
        request.since = query["since"]
    return request


async def _events(asked: Asked) -> bytes:
    items: list[bytes] = []
    last_id = reset = ""
    async for answer in asked.calls.stream("WatchEvents", _request(asked)):
        items += map(_shared_json, answer.events)
        last_id, reset = answer.last_id, reset or answer.reset
    rest = encoded({"next": last_id, "reset": reset or None})[1:]
    return b'{"items":[%b],%b' % (b",".join(items), rest)


async def _watch(asked: Asked) -> web.StreamResponse:
    request = _request(asked, follow=True)
    resumed = asked.http.headers.get("Last-Event-ID", "")
    if resumed:
        request.ClearField("within_ms")
        request.since = resumed if _ID.fullmatch(resumed) else _UNKNOWN
    async with aclosing(asked.calls.stream("WatchEvents", request)) as answers:
        # A refusal is an answer of its own, so the stream begins after the first batch.
        first = await anext(answers)
        return await _stream(asked, first, answers)


async def _stream(
    asked: Asked, first: pb.WatchEventsResponse, answers: AsyncGenerator[Any, None]
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={
            **API_HEADERS,
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            # Of proxies that would hold the stream back.
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(asked.http)
    if asked.http.method == "HEAD":
        # Bytes after its answer would be taken for the answer to the next request.
        return response
    writer = _Writer(asked, response)
    with suppress(ConnectionError):
        await writer.write(batch_text(first))
        await writer.copy(answers)
    return response


class _Writer:
    def __init__(self, asked: Asked, response: web.StreamResponse) -> None:
        self._asked, self._response = asked, response
        self._overview: Any = None
        self._overview_at = 0.0

    async def copy(self, answers: AsyncGenerator[Any, None]) -> None:
        """Write batches and overviews until the stream ends, and then why."""
        reading: asyncio.Task[Any] | None = None
        try:
            while True:
                await self._write_overview()
                reading = reading or asyncio.create_task(anext(answers))
                done, _ = await asyncio.wait([reading], timeout=OVERVIEW_S)
                if done:
                    answer, reading = reading.result(), None
                    await self.write(batch_text(answer))
        except CroupierError as error:
            await self.write(event("end", (error_answer(error).text or "").encode()))
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])

    async def _write_overview(self) -> None:
        """Write changed totals every `OVERVIEW_S`; raises CroupierError at the end of the term."""
        now = asyncio.get_running_loop().time()
        if now < self._overview_at:
            return
        self._overview_at = now + OVERVIEW_S
        answer = await self._asked.ask("GetOverview", pb.GetOverviewRequest())
        if answer != self._overview:
            self._overview = answer
            await self.write(event("overview", _shared_json(answer)))

    async def write(self, text: bytes) -> None:
        """Write `text`; raises ConnectionError if the reader is gone, or reads nothing for long."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._response.write(text)
        except TimeoutError:
            transport = self._asked.http.transport
            if transport is not None:
                transport.abort()
            raise ConnectionResetError("the reader does not read") from None
        self._asked.calls.answered(len(text))


def batch_text(answer: pb.WatchEventsResponse) -> bytes:
    """Return a batch as server-sent events; an empty one is a comment."""
    parts = []
    if answer.reset:
        reset = {"reset": answer.reset, "last_id": answer.last_id}
        parts.append(event("reset", encoded(reset)))
    parts += [event("cluster", _shared_json(each), each.id) for each in answer.events]
    return b"".join(parts) or comment()


ROUTES: Final = (
    ApiRoute("/events", _events, "List events.", pb.WatchEventsResponse, (_SINCE, _LIMIT, _KIND)),
    ApiRoute(
        "/watch",
        _watch,
        "Stream events as they happen, after those of the past: `cluster`, `reset`, `end`, and"
        " `overview` when the totals change. The header Last-Event-ID continues after an event.",
        None,
        (_SINCE, _LIMIT, _KIND),
        content_type="text/event-stream",
    ),
)


def event(kind: str, data: bytes, event_id: str = "") -> bytes:
    """Return an event of a kind; `data` and `event_id` have no line breaks."""
    head = f"id: {event_id}\n" if event_id else ""
    return b"%bevent: %b\ndata: %b\n\n" % (head.encode(), kind.encode(), data)


def comment() -> bytes:
    """Return what readers ignore, as a sign of life."""
    return b":\n\n"
