"""The server that workers connect to, and its certificate.

Rule: nothing that a peer sends is interpreted beyond a short JSON text before its token is checked.

Workers know the certificate and accept no other: it proves the executor to them, and encrypts what
they send. They prove themselves by tokens. No file is left: the key never outlives the executor.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import tempfile
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from croupier.futures.remote.program import program
from croupier.futures.remote.protocol import HEADER

# Clocks of machines may differ; no other party trusts the certificate.
_EARLIER: Final = timedelta(days=365)
_LATER: Final = timedelta(days=3650)
HELLO_S: Final = 10.0
MAX_HELLO: Final = 4096
# Connections that have not proved a worker yet.
MAX_STRANGERS: Final = 256
# Frames of workers may exceed the limit of results by so much: errors have texts.
SLACK: Final = 1 << 16
_LARGE: Final = 1 << 18
_SIZE: Final = struct.Struct("!I")
_ANSWER: Final = struct.Struct("!BI")


def _self_signed() -> tuple[str, str]:
    """Return a new certificate and its key, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "croupier futures")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LATER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a worker, which describes it."""

    task_id: str
    host: str
    python: str
    implementation: str
    minor: tuple[int, int]


class Workers(Protocol):
    """Receives the gate's events about workers."""

    def admit(self, hello: Hello, link: WorkerLink) -> str:
        """Take a worker that has proved itself; return why it is refused, or nothing."""

    def on_frame(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        """Handle a frame of an admitted worker."""

    def on_read(self, link: WorkerLink) -> None:
        """Handle the end of a batch of frames."""

    def on_closed(self, link: WorkerLink) -> None:
        """Handle the end of an admitted worker's connection."""


class Gate:
    """Admits workers, over TLS, that have the token of their task; they trust its `certificate`."""

    def __init__(self, workers: Workers, max_bytes: int) -> None:
        self.workers = workers
        self.max_frame = max_bytes + SLACK
        self.links: set[WorkerLink] = set()
        self.is_closed = False
        self._server: asyncio.Server | None = None
        self._secret = secrets.token_bytes(32)
        self.certificate, key = _self_signed()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        with tempfile.TemporaryDirectory(prefix="croupier-futures-") as private:
            path = Path(private) / "identity.pem"
            path.touch(mode=0o600)
            path.write_text(key + self.certificate)
            self._context.load_cert_chain(path)

    def token(self, task_id: str) -> str:
        """Return the token that proves a worker to be this task."""
        return hmac.new(self._secret, task_id.encode(), hashlib.sha256).hexdigest()

    def proves(self, task_id: str, token: str) -> bool:
        """Return whether the token is that of the task, in constant time."""
        return hmac.compare_digest(self.token(task_id).encode(), token.encode())

    async def listen(self, host: str, port: int) -> int:
        """Listen; return the port. Raises OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: WorkerLink(self),
            host or None,
            port,
            ssl=self._context,
            ssl_handshake_timeout=HELLO_S,
            backlog=1024,
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Close all connections; one that is in its handshake is closed when that ends."""
        self.is_closed = True
        if self._server is not None:
            # A server that closes in the turn after it has accepted a connection leaks that one.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            await asyncio.sleep(0)
            self._server.close()
        for link in list(self.links):
            link.abort()


class WorkerLink(asyncio.Protocol):
    """The connection of one worker; `hello` is None before it has proved itself."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.hello: Hello | None = None
        self._inbox = bytearray()
        self._outbox: deque[bytes | memoryview] = deque()
        self._is_paused = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the peer's hello."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        strangers = sum(link.hello is None for link in self._gate.links)
        if self._gate.is_closed or strangers > MAX_STRANGERS:
            transport.abort()
            return
        self._gate.links.add(self)
        _keep_alive(transport.get_extra_info("socket"))
        self._deadline = asyncio.get_running_loop().call_later(HELLO_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        self._inbox += data
        if self.hello is None and not self._greeted():
            return
        start, inbox = 0, self._inbox
        while len(inbox) - start >= HEADER.size:
            kind, number, size = HEADER.unpack_from(inbox, start)
            if size > self._gate.max_frame:
                self.abort()
                return
            end = start + HEADER.size + size
            if len(inbox) < end:
                break
            with memoryview(inbox) as view:
                body = bytes(view[start + HEADER.size : end])
            start = end
            self._gate.workers.on_frame(self, kind, number, body)
        if start:
            del inbox[:start]
            self._gate.workers.on_read(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Report that the worker is gone."""
        self._gate.links.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self.hello is not None:
            self._gate.workers.on_closed(self)

    def pause_writing(self) -> None:
        """Buffer frames until the peer has read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send the buffered frames."""
        self._is_paused = False
        self._flush()

    def send(self, *frames: tuple[int, int, bytes]) -> None:
        """Send frames (kind, number, body)."""
        small: list[bytes] = []
        for kind, number, body in frames:
            small.append(HEADER.pack(kind, number, len(body)))
            if len(body) < _LARGE:
                small.append(body)
                continue
            self._outbox.append(b"".join(small))
            small = []
            view = memoryview(body)
            self._outbox.extend(view[at : at + _LARGE] for at in range(0, len(body), _LARGE))
        if small:
            self._outbox.append(b"".join(small))
        self._flush()

    def abort(self) -> None:
        """Close the connection at once; the worker ends then."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            self._outbox.clear()
        while self._outbox and not self._is_paused:
            transport.write(self._outbox.popleft())

    def _greeted(self) -> bool:
        """Read the hello; return whether the worker is admitted."""
        inbox = self._inbox
        if len(inbox) < _SIZE.size:
            return False
        (size,) = _SIZE.unpack_from(inbox)
        if size > MAX_HELLO:
            self.abort()
            return False
        if len(inbox) < _SIZE.size + size:
            return False
        hello = self._proved(bytes(inbox[_SIZE.size : _SIZE.size + size]))
        del inbox[: _SIZE.size + size]
        if hello is None:
            self.abort()
            return False
        if self._deadline is not None:
            self._deadline.cancel()
        assert self._transport is not None
        self.hello = hello
        refusal = self._gate.workers.admit(hello, self)
        if refusal:
            self.hello = None
            text = refusal.encode()
            self._transport.write(_ANSWER.pack(1, len(text)) + text)
            self._transport.close()
            return False
        self._outbox.appendleft(program())
        self._outbox.appendleft(_ANSWER.pack(0, len(program())))
        self._flush()
        return True

    def _proved(self, text: bytes) -> Hello | None:
        try:
            said: dict[str, Any] = json.loads(text)
            task_id, token = str(said["task"]), str(said["token"])
            if not self._gate.proves(task_id, token):
                return None
            major, minor = (int(number) for number in said["minor"])
            return Hello(
                task_id,
                str(said["host"])[:256],
                str(said["python"])[:64],
                str(said["implementation"])[:64],
                (major, minor),
            )
        except (ValueError, TypeError, KeyError):
            return None


def _keep_alive(sock: socket.socket) -> None:
    """Detect within half a minute that the peer's machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
