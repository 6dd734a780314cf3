"""Accepting TCP connections, even while the process has no free descriptor.

asyncio's own servers then log an error for each of 100 attempts, many times a second. This one logs
one line, and stops accepting for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from croupier.model.log_throttle import LogThrottle
from croupier.net.address import Address
from croupier.process.logging import get_logger

BACKLOG: Final = 128
# Connections accepted before other tasks of the loop get a turn.
AT_ONCE: Final = 32
REST_S: Final = 1.0
# Errors of the process or the machine; errors of one connection are ignored.
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# `localhost` has an IPv6 address on machines without IPv6, too.
_MISSING: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

_log = get_logger("croupier.http")

Take = Callable[[socket.socket, str], None]


class Acceptor:
    """Listens on every address of a host, and passes each connection to `take`."""

    def __init__(self, take: Take, rest_s: float = REST_S) -> None:
        """Call `take` with each connection, which does not block, and its peer's host."""
        self._take, self._rest_s = take, rest_s
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._throttle = LogThrottle(60.0)

    async def listen(self, address: Address) -> int:
        """Listen on `address` and return the port.

        Raises:
            OSError: if the port is taken or the host is not this machine's.
        """
        found = await self._loop.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        port, missing = address.port, OSError(f"no address of {address.host} is known")
        for family, at in dict.fromkeys((each[0], each[4]) for each in found):
            try:
                port = self._bind(family, (at[0], port, *at[2:]))
            except OSError as error:
                if error.errno not in _MISSING:
                    self.close()
                    raise
                missing = error
        if not self._listening:
            raise missing
        for listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)
        return port

    def close(self) -> None:
        """Stop accepting."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()

    def _bind(self, family: int, at: tuple[object, ...]) -> int:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(at)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        self._listening.append(listening)
        return int(listening.getsockname()[1])

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
        if self._throttle.is_due(error.errno, self._loop.time()):
            _log.error("accept_failed", reason=error.strerror, retry_s=self._rest_s)
        self._loop.remove_reader(listening)
        self._resting[listening] = self._loop.call_later(self._rest_s, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._resting[listening]
        self._loop.add_reader(listening, self._accept, listening)


def refuse(connection: socket.socket, answer: bytes) -> None:
    """Send as much of `answer` as fits, and shut the connection down; the caller closes it."""
    with suppress(OSError):
        connection.send(answer)
        connection.shutdown(socket.SHUT_WR)
