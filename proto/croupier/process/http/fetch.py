"""Fetches from other HTTP servers: JSON documents, and output and files of tasks from agents.

Rule: a document has a bound, a request a deadline, and no redirect is followed: a server that the
operator has named must not choose another one.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.ids import AgentId
from croupier.net.certificate import agent_context
from croupier.net.credentials import ClientSecurity

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES: Final = 512 * 1024
TIMEOUT_S: Final = 5.0
CONNECT_S: Final = 5.0
# An agent that is silent for this long is asked again, in case it is gone.
SILENCE_S: Final = 30.0
CHUNK_BYTES: Final = 64 * 1024
# Bytes of an agent's refusal that are shown.
MAX_REASON: Final = 300
# Parsing holds the loop for about 20 ms for each MiB.
MAX_LISTING: Final = 2 << 20
# The authorities are read again after this time.
_CONTEXT_S: Final = 60.0
_MOST_CONTEXTS: Final = 256
# An agent names a host and a port, never a path.
_PLACE: Final = re.compile(r"(?:https?://)?[^/?#@\\\s]+/?")


async def fetch_json(url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the JSON object at `url`, up to 512 KiB, maybe by a proxy; raises Unavailable."""
    import aiohttp

    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(trust_env=True, auto_decompress=False) as session,
            session.get(url, headers={"Accept-Encoding": "identity"}, allow_redirects=False) as got,
        ):
            if got.status != 200:
                raise Unavailable(f"{url} answers {got.status}")
            excess = f"{url} is larger than {MAX_BYTES} bytes"
            document = await _json_object(got, MAX_BYTES, excess)
    except TimeoutError:
        raise Unavailable(f"{url} did not answer within {timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unavailable(f"cannot fetch {url}: {error}") from None
    if document is None:
        raise Unavailable(f"{url} is not a JSON object")
    return document


async def _json_object(
    answer: aiohttp.ClientResponse, most: int, excess: str
) -> dict[str, Any] | None:
    """Return the JSON object in an answer, or None; raise `excess` if it is over `most` bytes."""
    content = bytearray()
    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
        content += chunk
        if len(content) > most:
            raise Unavailable(excess)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class LinkRefused(Unavailable):
    """The agent refuses the link: it may have expired, or the agent has another key by now."""


class Interrupted(Unavailable):
    """The answer broke off before its end."""


class Busy(Unavailable):
    """The agent has too many readers."""


@dataclass(frozen=True, slots=True)
class Part:
    """An answer of an agent from `offset` on; `size` is that of the file when it began."""

    offset: int
    size: int
    chunks: AsyncGenerator[bytes, None]


_REFUSALS: Final = {
    400: InvalidRequest,
    401: LinkRefused,
    403: LinkRefused,
    404: NotFound,
    503: Busy,
}


class AgentFiles:
    """Files of tasks, read from their agents, without a proxy of the environment.

    Rule: an answer counts only if it is an agent's: over TLS by its certificate, and always by the
    header that names the offset. So an address that an agent has made up discloses no other
    server.
    """

    def __init__(self, find_security: Callable[[], ClientSecurity]) -> None:
        """Open nothing yet; `find_security` returns what names the authorities of agents."""
        self._find_security = find_security
        self._http: aiohttp.ClientSession | None = None
        self._contexts: OrderedDict[str, tuple[float, ssl.SSLContext]] = OrderedDict()

    async def close(self) -> None:
        """Close all connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    @asynccontextmanager
    async def read(self, agent_id: AgentId, address: str, link: str) -> AsyncIterator[Part]:
        """Open a part of a file, for the context.

        Raises:
            InvalidRequest: if the agent finds the request malformed, or has TLS, and no authority
                for it can be used.
            NotFound: if it has no such file.
            LinkRefused: if it needs another link.
            Unavailable: if it cannot be reached, or is Busy; Interrupted while the chunks are read.
        """
        answer = await self._get(agent_id, address, link)
        try:
            headers = answer.headers
            try:
                part = Part(
                    int(headers["Croupier-Offset"]),
                    int(headers["Croupier-Size"]),
                    _chunks(answer, address),
                )
            except (KeyError, ValueError):
                raise Unavailable(
                    f"{address} does not answer as an agent of this release"
                ) from None
            yield part
        finally:
            answer.release() if answer.content.at_eof() else answer.close()

    async def document(self, agent_id: AgentId, address: str, link: str) -> dict[str, Any]:
        """Return the JSON object that an agent answers. Raises as `read`."""
        import aiohttp

        answer = await self._get(agent_id, address, link)
        try:
            found = await _json_object(answer, MAX_LISTING, f"{address} answers too much")
        except (ValueError, aiohttp.ClientError, TimeoutError, OSError):
            found = None
        finally:
            answer.release() if answer.content.at_eof() else answer.close()
        if found is None:
            raise Unavailable(f"{address} does not answer as an agent of this release")
        return found

    async def _get(self, agent_id: AgentId, address: str, link: str) -> aiohttp.ClientResponse:
        if _PLACE.fullmatch(address) is None:
            raise Unavailable(f"{address!r} is no address of an agent")
        answer = await self._request(agent_id, address, link)
        from aiohttp import ClientError

        if answer.status == 200:
            return answer
        try:
            reason = (await answer.content.read(MAX_REASON)).decode(errors="replace").strip()
        except (ClientError, TimeoutError, OSError):
            reason = ""
        answer.close()
        text = reason if reason.isprintable() and reason else f"the agent answers {answer.status}"
        raise _REFUSALS.get(answer.status, Unavailable)(text)

    async def _request(self, agent_id: AgentId, address: str, path: str) -> aiohttp.ClientResponse:
        """Request an encoded path of the agent at HOST:PORT or https://HOST:PORT."""
        # Loading takes longer than the loop may wait.
        aiohttp: Any = await asyncio.to_thread(import_module, "aiohttp")
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S, connect=None
                ),
                auto_decompress=False,
            )
        root = address if "://" in address else f"http://{address}"
        tls = self._context(agent_id) if root.startswith("https:") else True
        try:
            return await self._http.get(root + path, ssl=tls, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"cannot reach the agent at {address}: {why}") from None

    def _context(self, agent_id: AgentId) -> ssl.SSLContext:
        made = self._contexts.get(agent_id)
        if made is None or monotonic() - made[0] > _CONTEXT_S:
            made = (monotonic(), agent_context(self._find_security(), agent_id))
            self._contexts[agent_id] = made
            if len(self._contexts) > _MOST_CONTEXTS:
                self._contexts.popitem(last=False)
        return made[1]


async def _chunks(answer: aiohttp.ClientResponse, address: str) -> AsyncGenerator[bytes, None]:
    from aiohttp import ClientError

    while True:
        try:
            chunk = await answer.content.read(CHUNK_BYTES)
        except (ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise Interrupted(f"the agent at {address} broke off: {why}") from None
        if not chunk:
            return
        yield chunk
