"""Listening sockets on every address of a host, and the acceptance of their connections."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from croupier.model.errors import Unavailable
from croupier.model.log_throttle import LogThrottle
from croupier.net.address import Address
from croupier.process.logging import get_logger

BACKLOG: Final = 128
# `localhost` has an IPv6 address on machines without IPv6, too.
_MISSING: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
# Connections accepted before other tasks of the loop get a turn.
AT_ONCE: Final = 32
REST_S: Final = 1.0
# Errors of the process or the machine; errors of one connection are ignored.
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = get_logger("croupier.http")

Take = Callable[[socket.socket, str], None]


class Listening:
    """Sockets that listen. Connections wait in the backlog until they are accepted.

    asyncio's own servers log an error for each of 100 attempts, many times a second, while the
    process has no free descriptor. This one logs one line, and stops accepting for a moment.

    Attributes:
        sockets: one for each address of the host.
        port: of all of them.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: list[socket.socket] = []
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._throttle = LogThrottle(60.0)

    @classmethod
    async def open(cls, address: Address) -> Listening:
        """Listen on `address`; raises Unavailable if the port is taken or the host another."""
        listening = cls(address.port)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listening._bind_all(list(dict.fromkeys((each[0], each[4]) for each in found)))
        except OSError as error:
            listening.close()
            raise Unavailable(f"cannot listen on {address}: {error.strerror or error}") from error
        return listening

    async def first(self) -> None:
        """Wait for the first connection."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        for each in self.sockets:
            loop.add_reader(each, arrived.set)
        try:
            await arrived.wait()
        finally:
            for each in self.sockets:
                loop.remove_reader(each)

    def accept(self, take: Take, rest_s: float = REST_S) -> None:
        """Call `take` with each connection from now on, and its peer's host; it does not block."""
        self._take, self._rest_s = take, rest_s
        for each in self.sockets:
            asyncio.get_running_loop().add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop listening; connections that wait are refused."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for each in self.sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self.sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    # The peer of this connection is gone.
                    continue
                self._rest(listening, error)
                return
            connection.setblocking(False)
            self._take(connection, str(peer[0]))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        loop = asyncio.get_running_loop()
        if self._throttle.is_due(error.errno, loop.time()):
            _log.error("accept_failed", reason=error.strerror, retry_s=self._rest_s)
        loop.remove_reader(listening)
        self._resting[listening] = loop.call_later(self._rest_s, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._resting[listening]
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _bind_all(self, places: list[tuple[int, tuple[object, ...]]]) -> None:
        missing = OSError("the host has no address")
        for family, at in places:
            try:
                self._bind(family, (at[0], self.port, *at[2:]))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
        if not self.sockets:
            raise missing

    def _bind(self, family: int, at: tuple[object, ...]) -> None:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(at)
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
        self.sockets.append(made)
        self.port = int(made.getsockname()[1])


def refuse(connection: socket.socket, answer: bytes) -> None:
    """Send as much of `answer` as fits, and shut the connection down; the caller closes it."""
    with suppress(OSError):
        connection.send(answer)
        connection.shutdown(socket.SHUT_WR)
