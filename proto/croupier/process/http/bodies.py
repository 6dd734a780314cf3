"""Bodies of requests, which are JSON."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from croupier.model.errors import InvalidRequest, TooSlow

JSON: Final = "application/json"
# Time for a body to arrive.
BODY_S: Final = 10.0


async def read_body(request: web.Request, most: int) -> bytes:
    """Return the body of a request.

    Raises InvalidRequest if it is larger than `most` bytes; TooSlow if it does not arrive in time.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > most:
                    raise InvalidRequest(f"the body has more than {most} bytes")
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {BODY_S:g} s") from None
    return bytes(data)
