"""The connections of an HTTP server: bounded in number and in idle time.

Rule: a connection without progress is closed, and so is one whose peer reads or writes too slowly.
aiohttp itself waits without end for the rest of a request, and for a peer to read. Deadlines are
counted in rounds of one sweep, so that a stall of the daemon itself closes no connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from asyncio import sslproto
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from croupier.model.log_throttle import LogThrottle
from croupier.net.transport import http_share
from croupier.process.http.listening import Listening, refuse
from croupier.process.logging import get_logger

# Refused connections that stay open for a round, so that their answer arrives.
MOST_REFUSED: Final = 64
RETRY_AFTER_S: Final = 5
# The longest that a connection stays open after the answer to a request that was too large.
STOPPED_S: Final = 2.0

# The place of `tcpi_bytes_acked` in `struct tcp_info` of linux/tcp.h.
_ACKNOWLEDGED_AT: Final = 120

_BUSY: Final = b"too many connections; try again later\n"
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: %d\r\nConnection: close\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
    % (RETRY_AFTER_S, len(_BUSY), _BUSY)
)

# asyncio gives each TLS connection 256 KiB, before the peer has proved anything. Freed buffers of
# that size fragment the heap: 10,000 broken handshakes cost 150 MB.
TLS_BUFFER_BYTES: Final = 16 * 1024
sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES

_log = get_logger("croupier.http")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of an HTTP server.

    Attributes:
        most: connections in all; None is the process's share of descriptors, at most 512.
        per_host: the part of them that may come from one address.
        request_s: the longest that a TLS handshake, and then a request, may take to arrive.
        idle_s: the longest that a connection may be idle after a request.
        write_s: time over which the rate of a peer that leaves much unread is measured.
        least_rate: bytes that such a peer must read each second.
        most_received: bytes of a request, and bytes received while it is answered; no more is
            read of a larger request, which gets 413.
        sweep_s: time between two checks of all connections.
    """

    most: int | None = None
    per_host: float = 0.75
    request_s: float = 10.0
    idle_s: float = 60.0
    write_s: float = 60.0
    least_rate: float = 1024.0
    most_received: int = 128 * 1024
    sweep_s: float = 1.0


class HttpConnections:
    """Accepts connections and passes them to aiohttp's protocol."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        limits: HttpLimits,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Accept connections for aiohttp's protocols of `make`; `tls` None is plain text."""
        self._make, self._limits, self._tls = make, limits, tls
        self._most = http_share() if limits.most is None else limits.most
        self._per_host = max(1, int(self._most * limits.per_host))
        self._listening: Listening | None = None
        self._open: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._refused: deque[socket.socket] = deque()
        self._starting: set[asyncio.Task[Any]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._throttle = LogThrottle(60.0)

    def __len__(self) -> int:
        return len(self._open)

    def accept(self, listening: Listening) -> None:
        """Accept connections of `listening` from now on; `close` closes it."""
        self._listening = listening
        listening.accept(self._take)
        self._sweeping = asyncio.create_task(self._sweep(), name="http-sweep")

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        if self._listening is not None:
            self._listening.close()

    def end(self) -> None:
        """Abort all open connections."""
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
        starting = asyncio.get_running_loop().create_task(self._start(connection, accepted, host))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _start(self, connection: Connection, accepted: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls(), "ssl_handshake_timeout": self._limits.request_s}
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, **tls)
        except BaseException as error:
            if not connection.is_made:
                accepted.close()
                connection.connection_lost(None)
            # A handshake fails by one of these.
            if not isinstance(error, OSError) or self._tls is None:
                raise
            self._log_handshake(host, error)

    def _log_handshake(self, host: str, error: OSError) -> None:
        reason = error.reason if isinstance(error, ssl.SSLError) else ""
        if self._throttle.is_due((host, reason), asyncio.get_running_loop().time()):
            # HTTP_REQUEST: the client sent plain HTTP.
            reason = reason or type(error).__name__
            _log.warning("http_handshake_failed", peer=host, reason=reason)

    def _refuse(self, accepted: socket.socket, host: str) -> None:
        if self._throttle.is_due(host, asyncio.get_running_loop().time()):
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
    """One connection: aiohttp's protocol, with a watch over its progress."""

    def __init__(
        self, inner: asyncio.Protocol, limits: HttpLimits, on_lost: Callable[[Connection], None]
    ) -> None:
        self._inner, self._limits, self._on_lost = inner, limits, on_lost
        self._transport: asyncio.Transport | None = None
        self._on_end: Callable[[], None] | None = None
        self._is_handled = self._has_served = self._has_begun = self._is_stopped = False
        self._rounds = self._received = 0
        # Rounds in which the peer has left something unread, and what it had read before them.
        self._unread_rounds = self._read_before = 0

    @property
    def is_made(self) -> bool:
        """Whether it has a transport, which reports its end."""
        return self._transport is not None

    def notify_end(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` when the connection ends: a handler that waits does not notice it."""
        self._on_end = on_end
        if self._transport is None:
            on_end()

    def begin_request(self) -> None:
        """Record that a whole request has arrived and is being answered."""
        self._is_handled = True
        self._received = 0

    def end_request(self) -> None:
        """Record that the request is answered."""
        self._is_handled = self._has_begun = False
        self._has_served = True
        self._rounds = self._received = 0

    def sweep(self) -> None:
        """Abort the connection if it has made no progress for too long."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        self._rounds += 1
        waits = not self._is_handled and not unread
        is_idle = self._has_served and not self._has_begun
        longest = self._limits.idle_s if is_idle else self._limits.request_s
        if self._is_stopped:
            longest = STOPPED_S
        if (unread and self._is_slow(self._transport)) or (
            waits and self._is_over(self._rounds, longest)
        ):
            self.abort()
        elif not unread:
            self._unread_rounds = 0

    def _is_slow(self, transport: asyncio.Transport) -> bool:
        """Return whether the peer has read too little in the last `write_s`."""
        limits, read = self._limits, _acknowledged(transport)
        if not self._unread_rounds:
            self._read_before = read
        self._unread_rounds += 1
        if not self._is_over(self._unread_rounds, limits.write_s):
            return False
        self._unread_rounds = 0
        return read - self._read_before < limits.least_rate * limits.write_s

    def stop_reading(self) -> None:
        """Stop reading: the request is too large, and its answer says so."""
        if self._transport is not None and not self._is_stopped:
            self._is_stopped = True
            # The peer's system keeps what it sends; an end with unread data would drop the answer.
            self._transport.pause_reading()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _is_over(self, rounds: int, seconds: float) -> bool:
        return rounds * self._limits.sweep_s > seconds

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with a transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        if self._transport is not None:
            self._inner.connection_lost(exc)
        self._transport = None
        self._on_lost(self)
        if self._on_end is not None:
            self._on_end()

    def data_received(self, data: bytes) -> None:
        """Pass on bytes of a request."""
        if not self._is_handled and not self._has_begun:
            self._has_begun, self._rounds = True, 0
        self._received += len(data)
        if self._received > self._limits.most_received:
            if self._is_handled or self._is_stopped:
                self.abort()
                return
            self.stop_reading()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on the end of the peer's data."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Make aiohttp wait for the peer to read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Let aiohttp write again."""
        self._inner.resume_writing()


def _acknowledged(transport: asyncio.Transport) -> int:
    """Return the bytes that the peer's system has acknowledged over the life of the connection.

    It acknowledges little more than the peer reads, once its buffer is full.
    """
    try:
        information = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_AT + 8
        )
    except OSError:
        return 0
    return int.from_bytes(information[_ACKNOWLEDGED_AT:], sys.byteorder)
