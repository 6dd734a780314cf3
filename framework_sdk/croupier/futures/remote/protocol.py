"""Frames between an executor, its workers, and the keeper and the child of a worker."""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

# Each frame begins with its kind, a number (of a call or a function), and the length of its body.
HEADER: Final = struct.Struct("!BQI")

# From the executor.
SETUP: Final = 1  # the initializer; the number is the limit of results in bytes
FUNCTION: Final = 2  # a function that later calls name by its number
FORGET: Final = 3  # such a function is used no more
CALL: Final = 4
TAKE_BACK: Final = 5  # return the calls that have not begun
STOP_CALL: Final = 6  # kill the child if it runs this call
EXIT: Final = 7

# From the worker.
READY: Final = 20
RESULT: Final = 21
ERROR: Final = 22
GIVEN_BACK: Final = 23  # the numbers of calls that have not begun
DIED: Final = 24  # the child; the number is that of its call, or 0
SETUP_FAILED: Final = 25  # the text of the initializer's error

# A call's body begins with the number of its function, or 0, and whether it is a chunk of a map.
CALL_HEAD: Final = struct.Struct("!QB")
# An error's body begins with what kind of error it is, and the length of its text.
ERROR_HEAD: Final = struct.Struct("!BI")
RAISED: Final = 0  # followed by the pickled exception
UNPICKLABLE: Final = 1  # an exception that cannot be pickled
TOO_LARGE: Final = 2  # the result

CHUNK: Final = 1 << 18
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pipe:
    """A socket that does not block, with buffers for frames in both directions."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._inbox = bytearray()
        self._outbox: deque[memoryview] = deque()

    @property
    def has_output(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outbox)

    def fill(self) -> bool:
        """Read what there is; return whether the peer is still there."""
        try:
            while data := self.sock.recv(CHUNK):
                self._inbox += data
        except _AGAIN:
            return True
        except OSError:
            return False
        return False

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the complete frames that were read."""
        start, inbox = 0, self._inbox
        while len(inbox) - start >= HEADER.size:
            kind, number, size = HEADER.unpack_from(inbox, start)
            end = start + HEADER.size + size
            if len(inbox) < end:
                break
            with memoryview(inbox) as view:
                body = bytes(view[start + HEADER.size : end])
            start = end
            yield kind, number, body
        if start:
            del inbox[:start]

    def send(self, kind: int, number: int = 0, body: bytes = b"") -> None:
        """Send a frame, now or when the socket takes it."""
        head = HEADER.pack(kind, number, len(body))
        if len(body) < CHUNK:
            self._outbox.append(memoryview(head + body))
        else:
            self._outbox.append(memoryview(head))
            self._outbox.append(memoryview(body))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes; a peer that is gone shows when it is read."""
        with suppress(*_AGAIN):
            while self._outbox:
                part = self._outbox[0]
                try:
                    sent = self.sock.send(part[:CHUNK])
                except (*_AGAIN, InterruptedError):
                    return
                except OSError:
                    self._outbox.clear()
                    return
                if sent == len(part):
                    self._outbox.popleft()
                else:
                    self._outbox[0] = part[sent:]
