"""Answers: JSON with an entity tag, compressed."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from aiohttp import web

# Smaller bodies fit into one packet.
COMPRESSED_FROM: Final = 1_400
# Of every answer of the API, which is never shown as a page.
API_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Browsers ask each time whether what they have is current.
_OF_CALLER: Final = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Accept-Encoding"}


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an answer.

    Attributes:
        data: JSON.
        compressed: the same with gzip; None if it is too small for that.
        tag: identifies its content.
    """

    data: bytes
    compressed: bytes | None
    tag: str

    @classmethod
    async def of(cls, data: bytes, *, is_packed: bool = False) -> Body:
        """Return the body that holds `data`; `is_packed`: it is compressed already."""
        tag = f'"{blake2b(data, digest_size=12).hexdigest()}"'
        compressed = None
        if len(data) >= COMPRESSED_FROM and not is_packed:
            # Without the interpreter's lock.
            compressed = await asyncio.to_thread(gzip.compress, data, 3, mtime=0)
        return cls(data, compressed, tag)


def encoded(value: Any) -> bytes:
    """Return a JSON value as compact text."""
    return json.dumps(value, separators=(",", ":")).encode()


def answer(
    request: web.Request,
    body: Body,
    headers: Mapping[str, str] = _OF_CALLER,
    content_type: str = "application/json",
    charset: str | None = None,
) -> web.Response:
    """Return the answer with a body, or that the caller has it already, by If-None-Match."""
    headers = {**headers, "ETag": body.tag}
    given = [each.strip() for each in request.headers.get("If-None-Match", "").split(",")]
    if given == ["*"] or body.tag in (each.removeprefix("W/") for each in given):
        return web.Response(status=304, headers=headers)
    data = body.data
    if body.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        data = body.compressed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=data, headers=headers, content_type=content_type, charset=charset)
