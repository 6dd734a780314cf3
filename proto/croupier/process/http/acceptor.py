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
from croupier.process.http.listening import Listening
from croupier.process.logging import get_logger

# Connections accepted before other tasks of the loop get a turn.
AT_ONCE: Final = 32
REST_S: Final = 1.0
# Errors of the process or the machine; errors of one connection are ignored.
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = get_logger("croupier.http")

Take = Callable[[socket.socket, str], None]


class Acceptor:
    """Passes each connection to `take`."""

    def __init__(self, take: Take, rest_s: float = REST_S) -> None:
        """Call `take` with each connection, which does not block, and its peer's host."""
        self._take, self._rest_s = take, rest_s
        self._loop = asyncio.get_running_loop()
        self._listening: Listening | None = None
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._throttle = LogThrottle(60.0)

    def accept(self, listening: Listening) -> None:
        """Accept connections of `listening` from now on; `close` closes it."""
        self._listening = listening
        for each in listening.sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop accepting."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        if self._listening is not None:
            for each in self._listening.sockets:
                self._loop.remove_reader(each)
            self._listening.close()

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
