"""The connections of an HTTP server: bounded in number, and in how long they may stand still.

Rule: a connection on which nothing happens ends. aiohttp waits without end for the rest of a
request, and for a peer to read. Deadlines are counted in rounds of one sweep, so a daemon that
stood still itself holds nothing against its peers.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from croupier.model.log_throttle import LogThrottle
from croupier.net.address import Address
from croupier.net.descriptors import http_share
from croupier.process.http.acceptor import Acceptor, refuse
from croupier.process.logging import get_logger

# Refused connections that are kept for a round, so that their answer arrives.
MOST_REFUSED: Final = 64
RETRY_AFTER_S: Final = 5

_BUSY: Final = b"too many connections; try again later\n"
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: %d\r\nConnection: close\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
    % (RETRY_AFTER_S, len(_BUSY), _BUSY)
)

_log = get_logger("croupier.http")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of an HTTP server.

    Attributes:
        most: connections in all; None: what the process's descriptors allow, at most 512.
        per_host: the part of them that may come from one address.
        request_s: how long a request may take to come, from the connection or its first byte.
        idle_s: how long a connection may be idle after a request.
        write_s: how long a peer may read nothing of what was written.
        sweep_s: how often all this is looked at.
    """

    most: int | None = None
    per_host: float = 0.75
    request_s: float = 10.0
    idle_s: float = 60.0
    write_s: float = 60.0
    sweep_s: float = 1.0


class HttpConnections:
    """Takes connections in and passes them on to aiohttp's protocol."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: HttpLimits) -> None:
        """`make` makes a protocol for each connection."""
        self._make, self._limits = make, limits
        self._most = http_share() if limits.most is None else limits.most
        self._per_host = max(1, int(self._most * limits.per_host))
        self._acceptor = Acceptor(self._take)
        self._open: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._refused: deque[socket.socket] = deque()
        self._starting: set[asyncio.Task[Any]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._said = LogThrottle(60.0)

    def __len__(self) -> int:
        return len(self._open)

    async def listen(self, address: Address) -> int:
        """Begin; returns the port.

        Raises:
            OSError: if the port is taken or the host is not this machine's.
        """
        port = await self._acceptor.listen(address)
        self._sweeping = asyncio.create_task(self._sweep(), name="http-sweep")
        return port

    def close(self) -> None:
        """Take in nothing more; what is open stays so."""
        self._acceptor.close()

    def end(self) -> None:
        """Cut off what is still open."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for starting in self._starting:
            starting.cancel()
        for connection in list(self._open):
            connection.abort()
        self._close_refused()

    def _take(self, accepted: socket.socket, host: str) -> None:
        if len(self._open) >= self._most or self._hosts[host] >= self._per_host:
            self._refuse(accepted, host)
            return
        connection = Connection(self._make(), self._limits, partial(self._forget, host))
        self._hosts[host] += 1
        self._open.add(connection)
        loop = asyncio.get_running_loop()
        starting = loop.create_task(self._start(connection, accepted))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _start(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted)
        except BaseException:
            if not connection.is_made:
                accepted.close()
                connection.connection_lost(None)
            raise

    def _refuse(self, accepted: socket.socket, host: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._said.is_due(host, now):
            _log.warning(
                "http_connection_refused", peer=host, peers=self._hosts[host], open=len(self._open)
            )
        if len(self._refused) >= MOST_REFUSED:
            self._refused.popleft().close()
        refuse(accepted, REFUSAL)
        self._refused.append(accepted)

    def _forget(self, host: str, connection: Connection) -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._limits.sweep_s)
            self._close_refused()
            for connection in list(self._open):
                connection.sweep()

    def _close_refused(self) -> None:
        while self._refused:
            self._refused.popleft().close()


class Connection(asyncio.Protocol):
    """One connection: aiohttp's protocol, with an eye on how it goes on."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        limits: HttpLimits,
        on_lost: Callable[[Connection], None],
    ) -> None:
        """Pass everything on to `inner`; `on_lost` is told of the end."""
        self._inner, self._limits, self._on_lost = inner, limits, on_lost
        self._transport: asyncio.Transport | None = None
        self._is_handled = self._has_served = self._has_begun = False
        # Writing is paused while much is unread, and goes on once little is.
        self._is_paused = self._has_resumed = False
        self._rounds = self._stuck = self._unread = 0

    @property
    def is_made(self) -> bool:
        """Whether it has a transport, which tells it of its end."""
        return self._transport is not None

    def begin_request(self) -> None:
        """A whole request has come, and is being answered."""
        self._is_handled = True

    def end_request(self) -> None:
        """It is answered."""
        self._is_handled = self._has_begun = False
        self._has_served = True
        self._rounds = 0

    def sweep(self) -> None:
        """Cut the connection off if it has stood still for too long."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        self._stuck = 0 if self._is_reading(unread) else self._stuck + 1
        self._unread, self._has_resumed = unread, False
        self._rounds += 1
        waits = not self._is_handled and not unread
        is_idle = self._has_served and not self._has_begun
        longest = self._limits.idle_s if is_idle else self._limits.request_s
        if self._is_over(self._stuck, self._limits.write_s) or (
            waits and self._is_over(self._rounds, longest)
        ):
            self.abort()

    def _is_reading(self, unread: int) -> bool:
        """Whether the peer may have read since the last round, with so much unread now."""
        has_grown = unread > self._unread and not self._is_paused
        return not unread or unread < self._unread or self._has_resumed or has_grown

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _is_over(self, rounds: int, seconds: float) -> bool:
        return rounds * self._limits.sweep_s > seconds

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._transport is not None:
            self._inner.connection_lost(exc)
        self._transport = None
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Pass on a part of a request."""
        if not self._is_handled and not self._has_begun:
            self._has_begun, self._rounds = True, 0
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on that the peer sends no more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Have aiohttp wait for the peer to read."""
        self._is_paused = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Have aiohttp go on."""
        self._is_paused, self._has_resumed = False, True
        self._inner.resume_writing()
