"""Fetches small JSON documents, such as those of an identity provider.

Rule: a document has a bound, a request a deadline, and no redirect is followed: a server that the
operator has named must not choose another one.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from croupier.model.errors import Unavailable

MAX_BYTES: Final = 512 * 1024
TIMEOUT_S: Final = 5.0
_CHUNK: Final = 64 * 1024


async def fetch_json(url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the JSON object at `url`; proxies of the environment apply.

    Raises:
        Unavailable: if there is none within `timeout_s`, or it is larger than 512 KiB.
    """
    import aiohttp

    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(trust_env=True, auto_decompress=False) as session,
            session.get(url, headers={"Accept-Encoding": "identity"}, allow_redirects=False) as got,
        ):
            if got.status != 200:
                raise Unavailable(f"{url} answers {got.status}")
            content = bytearray()
            async for chunk in got.content.iter_chunked(_CHUNK):
                content += chunk
                if len(content) > MAX_BYTES:
                    raise Unavailable(f"{url} is larger than {MAX_BYTES} bytes")
    except TimeoutError:
        raise Unavailable(f"{url} did not answer within {timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unavailable(f"cannot fetch {url}: {error}") from None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unavailable(f"{url} is not a JSON object")
    return document
