"""Reads output and files of tasks from the HTTP servers of their agents.

Rule: an answer counts only if it is an agent's: over TLS by its certificate, and always by the
header that names the offset. So an address that an agent has made up discloses no other server.
No redirect is followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
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
_REFUSALS: Final = {400: InvalidRequest, 404: NotFound}


class LinkRefused(Unavailable):
    """The agent refuses the link: it may have expired, or the agent has another key by now."""


class Interrupted(Unavailable):
    """The answer broke off before its end."""


@dataclass(frozen=True, slots=True)
class Part:
    """An answer of an agent.

    Attributes:
        offset: of its first byte.
        size: of the file when the answer began.
    """

    offset: int
    size: int
    chunks: AsyncGenerator[bytes, None]


class AgentFiles:
    """Connections to the HTTP servers of agents."""

    def __init__(self, security: ClientSecurity) -> None:
        """Open nothing yet; `security` names the authorities of agents with TLS."""
        self._security = security
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
            InvalidRequest: if the agent finds the request malformed.
            NotFound: if it has no such file.
            LinkRefused: if it needs another link.
            Unavailable: if it cannot be reached, or is busy; also while the chunks are read.
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
            content = bytearray()
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                content += chunk
                if len(content) > MAX_LISTING:
                    raise Unavailable(f"{address} answers too much")
            found = json.loads(content)
        except (ValueError, RecursionError, aiohttp.ClientError, TimeoutError, OSError):
            found = None
        finally:
            answer.release() if answer.content.at_eof() else answer.close()
        if not isinstance(found, dict):
            raise Unavailable(f"{address} does not answer as an agent of this release")
        return found

    async def _get(self, agent_id: AgentId, address: str, link: str) -> aiohttp.ClientResponse:
        if _PLACE.fullmatch(address) is None:
            raise Unavailable(f"{address!r} is no address of an agent")
        http = await self._session()
        from aiohttp import ClientError

        root = address if "://" in address else f"http://{address}"
        try:
            tls = self._context(agent_id) if root.startswith("https:") else True
            answer = await http.get(root + link, ssl=tls, allow_redirects=False)
        except (ClientError, TimeoutError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"cannot reach the agent at {address}: {why}") from None
        if answer.status == 200:
            return answer
        try:
            reason = (await answer.content.read(MAX_REASON)).decode(errors="replace").strip()
        except (ClientError, TimeoutError, OSError):
            reason = ""
        answer.close()
        text = reason if reason.isprintable() and reason else f"the agent answers {answer.status}"
        if answer.status in (401, 403):
            raise LinkRefused(text)
        raise _REFUSALS.get(answer.status, Unavailable)(text)

    async def _session(self) -> aiohttp.ClientSession:
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
        return self._http

    def _context(self, agent_id: AgentId) -> ssl.SSLContext:
        made = self._contexts.get(agent_id)
        if made is None or monotonic() - made[0] > _CONTEXT_S:
            made = (monotonic(), agent_context(self._security, agent_id))
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
