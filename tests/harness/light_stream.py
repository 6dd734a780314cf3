"""A gRPC stream of a client without gRPC, for benchmarks with thousands of clients on one machine.

A channel of gRPC takes milliseconds of CPU to connect, which real agents spend on machines of their
own. Here it is a socket and a few frames of HTTP/2, in plain text. Rule: what is sent stays below
the first window of HTTP/2 (64 KB) until the server extends it, which is not checked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from struct import pack, unpack

from croupier.agent.link import TIMES
from croupier.net.address import Address

# Types and flags of frames.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
HEAD = 9
STREAM = 1
WINDOW = 2**31 - 1
# Time for the server's SETTINGS, as that of a real agent.
CONNECT_S = TIMES.connect_s


class LightStream(asyncio.Protocol):
    """One connection with one stream.

    Attributes:
        ended: set to the reason when the stream has ended.
    """

    def __init__(self, opening: bytes, on_message: Callable[[bytes], None]) -> None:
        """Send `opening` once connected; `on_message` gets the bytes of each message."""
        self._opening, self._on_message = opening, on_message
        self._received, self._body = bytearray(), bytearray()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._settings = loop.call_later(CONNECT_S, self.end, "connect: no SETTINGS in time")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._opening)

    def send(self, message: bytes) -> None:
        """Send a message; nothing once the stream has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(body(message))

    def end(self, why: str = "closed") -> None:
        """Close the connection; only the first reason counts."""
        self._settings.cancel()
        if not self.ended.done():
            self.ended.set_result(why)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("the connection broke")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= HEAD:
            size = int.from_bytes(received[at : at + 3], "big")
            if len(received) - at < HEAD + size:
                break
            kind, flags = received[at + 3], received[at + 4]
            self._on_frame(kind, flags, bytes(received[at + HEAD : at + HEAD + size]))
            at += HEAD + size
        del received[:at]

    def _on_frame(self, kind: int, flags: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind == SETTINGS and not flags & ACK:
            self._settings.cancel()
            self._transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))
        elif kind == DATA:
            self._on_data(payload)
        elif kind == HEADERS and flags & END_STREAM:
            words = re.findall(rb"[ -~]{4,}", payload)
            self.end(f"status: {b' '.join(words).decode()[-80:]}")
        elif kind in (RST_STREAM, GOAWAY):
            self.end(f"frame {kind}")

    def _on_data(self, payload: bytes) -> None:
        body = self._body
        body += payload
        while len(body) >= 5:
            (size,) = unpack(">I", body[1:5])
            if len(body) < 5 + size:
                break
            message = bytes(body[5 : 5 + size])
            del body[: 5 + size]
            self._on_message(message)


async def connect(
    address: Address, opening: bytes, on_message: Callable[[bytes], None]
) -> LightStream:
    """Connect; raises OSError."""
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: LightStream(opening, on_message), address.host, address.port
    )
    return stream


def opening(address: Address, path: str) -> bytes:
    """Return what a client of the method `path` sends first."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": str(address),
        "te": "trailers", "content-type": "application/grpc", "user-agent": "light",
    }  # fmt: skip
    # Literal fields that the server does not index.
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    # No table of headers (1), and windows that need no updates (4).
    settings = pack(">HIHI", 1, 0, 4, WINDOW)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(SETTINGS, 0, 0, settings)
        + frame(WINDOW_UPDATE, 0, 0, pack(">I", WINDOW - 65_535))
        + frame(HEADERS, END_HEADERS, STREAM, block)
    )


def body(message: bytes) -> bytes:
    """Return the frame of a message of the stream."""
    return frame(DATA, 0, STREAM, pack(">BI", 0, len(message)) + message)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return pack(">I", len(payload) << 8 | kind) + pack(">BI", flags, stream) + payload


def _text(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 127
    return bytes((len(data),)) + data
