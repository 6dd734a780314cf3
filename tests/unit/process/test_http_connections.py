"""Connections without progress are aborted, and one address cannot take all."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from croupier.model.errors import Unavailable
from croupier.net.address import Address
from croupier.net.server_tls import ServerTls, TlsFiles
from croupier.process.clock import SystemClock
from croupier.process.http.connections import TLS_BUFFER_BYTES, Connection, HttpLimits
from croupier.process.http.listening import Listening
from croupier.process.http.routes import Requirement, Route
from croupier.process.http.server import HttpServer
from tests.harness.certificates import authority
from tests.harness.eventually import eventually
from tests.harness.http_servers import listen

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = HttpLimits(request_s=0.1, idle_s=0.1, write_s=0.1, sweep_s=0.02)
PATIENT = HttpLimits(request_s=60, idle_s=60, write_s=60, sweep_s=0.02)
SOON = 30.0


class Served:
    """A server with slow and endless routes."""

    def __init__(self, limits: HttpLimits, tls: Callable[[], ServerTls] | None = None) -> None:
        routes = [
            Route("/slow", self.get_slow, Requirement.PUBLIC),
            Route("/endless", self.get_endless, Requirement.PUBLIC),
        ]
        self.server = HttpServer(
            CollectorRegistry(),
            SystemClock(),
            lambda: None,
            routes,
            limits=limits,
            guards={},
            tls=tls,
        )
        self.port = 0
        self.streaming = 0

    async def get_slow(self, _: web.Request) -> web.Response:
        await asyncio.sleep(0.4)
        return web.Response(text="done")

    async def get_endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.streaming += 1
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response
        finally:
            self.streaming -= 1


@asynccontextmanager
async def serving(
    limits: HttpLimits, tls: Callable[[], ServerTls] | None = None
) -> AsyncIterator[Served]:
    served = Served(limits, tls)
    served.port = await listen(served.server)
    try:
        yield served
    finally:
        await served.server.stop()


@asynccontextmanager
async def connected(
    served: Served, said: bytes = b"", host: str = "127.0.0.1"
) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", served.port, local_addr=(host, 0), limit=1024
    )
    try:
        writer.write(said)
        yield reader
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> str:
    """Return the head of a response; empty if the connection ended without one."""
    async with asyncio.timeout(SOON):
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""


async def ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(SOON):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
    return True


@pytest.mark.parametrize("said", [b"", b"G", ASK[:-2], b"GET /healthz HTTP/1.1\r\nHost: x"])
async def test_an_incomplete_request_is_aborted(said: bytes) -> None:
    async with serving(QUICK) as served, connected(served, said) as reader:
        assert await ended(reader)


async def test_an_idle_connection_is_aborted() -> None:
    async with serving(QUICK) as served, connected(served, ASK) as reader:
        assert (await answer(reader)).startswith("HTTP/1.1 200 ")
        assert await ended(reader)


async def test_a_request_that_is_being_answered_is_not_aborted() -> None:
    ask = ASK.replace(b"/healthz", b"/slow")
    async with serving(QUICK) as served, connected(served, ask) as reader:
        assert (await answer(reader)).startswith("HTTP/1.1 200 ")


async def test_a_peer_that_does_not_read_is_aborted() -> None:
    ask = ASK.replace(b"/healthz", b"/endless")
    async with serving(QUICK) as served, connected(served, ask):
        await eventually(lambda: served.streaming == 1, SOON)
        await eventually(lambda: served.streaming == 0, SOON)


class Written(asyncio.Transport):
    """A transport whose unread bytes the test sets, and its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = self.read = 0
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str, default: object = None) -> object:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return bytes(120) + self.read.to_bytes(8, sys.byteorder)

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize(
    ("each_second", "is_cut_off"), [(0, True), (1, True), (99, True), (100, False), (9000, False)]
)
def test_a_peer_that_reads_too_little_of_a_large_answer_is_aborted(
    each_second: int, is_cut_off: bool
) -> None:
    limits = HttpLimits(write_s=4, least_rate=100, sweep_s=1)
    transport, connection = Written(), Connection(asyncio.Protocol(), limits, lambda _: None)
    connection.connection_made(transport)
    connection.begin_request()
    transport.unread = 100_000
    for _ in range(20):
        connection.sweep()
        transport.read += each_second
    assert transport.is_aborted == is_cut_off


def test_a_peer_that_has_read_everything_is_not_slow() -> None:
    limits = HttpLimits(write_s=4, least_rate=100, sweep_s=1)
    transport, connection = Written(), Connection(asyncio.Protocol(), limits, lambda _: None)
    connection.connection_made(transport)
    connection.begin_request()
    for second in range(20):
        # A follower of a task that prints little.
        transport.unread = 1 if second % 4 else 0
        connection.sweep()
    assert not transport.is_aborted


async def test_a_reader_of_one_byte_at_a_time_is_aborted() -> None:
    ask = ASK.replace(b"/healthz", b"/endless")
    async with serving(QUICK) as served:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", served.port))
            client.sendall(ask)
            client.setblocking(False)
            await eventually(lambda: served.streaming == 1, SOON)

            def read_one() -> bool:
                with suppress(BlockingIOError, ConnectionError):
                    client.recv(1)
                return served.streaming == 0

            await eventually(read_one, SOON)


async def test_a_writer_of_one_byte_at_a_time_is_aborted() -> None:
    async with serving(QUICK) as served, connected(served) as reader:
        transport = reader._transport  # type: ignore[attr-defined]
        for byte in ASK[:-1]:
            transport.write(bytes([byte]))
            await asyncio.sleep(0.01)
            if reader.at_eof():
                break
        assert await ended(reader)


@pytest.mark.parametrize(
    "said",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-Y: z\r\n" * 30_000,
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\nx\r\n" * 50_000,
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        + b"x" * 300_000,
        ASK.replace(b"/healthz", b"/slow").replace(
            b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        + b"x" * 300_000,
    ],
    ids=["long header", "many headers", "chunks", "body", "upgrade"],
)
async def test_a_connection_that_sends_too_much_is_ended(said: bytes) -> None:
    async with serving(QUICK) as served:
        async with connected(served, said) as reader:
            assert await ended(reader)
        async with connected(served, ASK) as honest:
            assert (await answer(honest)).startswith("HTTP/1.1 200 ")


async def test_pipelined_requests_are_read_no_faster_than_they_are_answered() -> None:
    ask = ASK.replace(b"/healthz", b"/slow")
    async with serving(PATIENT) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.setblocking(False)

            def is_full() -> bool:
                """Send more requests; return whether the server stops to read them."""
                with suppress(BlockingIOError):
                    while client.send(ask * 1_000):
                        pass
                return True

            await eventually(is_full, SOON)
            assert served.server._connections is not None
            for connection in served.server._connections._open:
                assert connection._received <= PATIENT.most_received
            async with connected(served, ASK) as honest:
                assert (await answer(honest)).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST /healthz HTTP/1.1", b"PUT /metrics HTTP/1.1", b"DELETE /readyz HTTP/1.1",
        b"OPTIONS /slow HTTP/1.1", b"TRACE /healthz HTTP/1.1", b"CONNECT localhost:80 HTTP/1.1",
        b"GET http://evil.example/healthz HTTP/1.1", b"GET //healthz HTTP/1.1",
        b"GET /healthz/../slow HTTP/1.1", b"GET /%68ealthz%2f HTTP/1.1", b"GET * HTTP/1.1",
        b"GET /healthz HTTP/9.9", b"FOO /healthz HTTP/1.1",
    ],
)  # fmt: skip
async def test_odd_requests_are_refused(request_line: bytes) -> None:
    said = request_line + b"\r\nHost: localhost\r\n\r\n"
    async with serving(QUICK) as served, connected(served, said) as reader:
        status = (await answer(reader)).split()[1:2]
        assert status in ([], ["400"], ["404"], ["405"]), status


async def test_one_address_cannot_take_all_connections() -> None:
    limits = HttpLimits(4, per_host=0.75, request_s=60, sweep_s=0.02)
    async with serving(limits) as served:
        with capture_logs() as said:
            async with (
                connected(served), connected(served), connected(served),
                connected(served, ASK) as fourth, connected(served, ASK) as fifth,
            ):  # fmt: skip
                for refused in (fourth, fifth):
                    head = await answer(refused)
                    assert head.startswith("HTTP/1.1 503 ")
                    assert "\r\nRetry-After: 5\r\n" in head
                    assert await ended(refused)
                async with connected(served, ASK, "127.0.0.2") as other:
                    assert (await answer(other)).startswith("HTTP/1.1 200 ")
                    async with connected(served, ASK, "127.0.0.3") as beyond:
                        assert (await answer(beyond)).startswith("HTTP/1.1 503 ")
        # The log has each address once.
        assert [line["event"] for line in said] == ["http_connection_refused"] * 2

        async def is_free() -> bool:
            async with connected(served, ASK) as again:
                return (await answer(again)).startswith("HTTP/1.1 200 ")

        await eventually(is_free, SOON)


async def test_a_malformed_request_is_one_line_that_quotes_nothing() -> None:
    async with serving(PATIENT) as served:
        with capture_logs() as said:
            for _ in range(20):
                async with connected(served, b"GET /secret\x00\xff nonsense\r\n\r\n") as reader:
                    assert (await answer(reader)).startswith("HTTP/1.0 400 ")
        assert [line["event"] for line in said] == ["http_request_malformed"]
        assert "secret" not in str(said)


async def test_a_lack_of_descriptors_is_one_line_and_accepting_resumes() -> None:
    taken: list[socket.socket] = []
    listening = await Listening.open(Address("127.0.0.1", 0))
    listening.accept(lambda connection, _: taken.append(connection), rest_s=0.05)
    port = listening.port
    clients = [socket.socket() for _ in range(4)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        with capture_logs() as said:
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                for client in clients:
                    client.connect(("127.0.0.1", port))
                await asyncio.sleep(0.2)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert not taken
            await eventually(lambda: len(taken) == len(clients), SOON)
        assert [line["event"] for line in said] == ["accept_failed"]
    finally:
        listening.close()
        for each in (*clients, *taken):
            each.close()


async def test_an_address_that_this_machine_lacks_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = ["192.0.2.1", "127.0.0.1"]

    async def resolve(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    (await Listening.open(Address("localhost", 0))).close()
    hosts.pop()
    with pytest.raises(Unavailable, match="Cannot assign requested address"):
        await Listening.open(Address("localhost", 0))


async def test_the_host_header_must_name_this_machine() -> None:
    async with serving(PATIENT) as served:
        hosts = {
            b"evil.example": "421", b"127.0.0.1.evil.example:80": "421", b"localhost.evil": "421",
            b"": "421", b"localhost": "200", b"127.0.0.1:8": "200", b"[::1]:8": "200",
            socket.gethostname().encode(): "200",
        }  # fmt: skip
        for host, status in hosts.items():
            ask = ASK.replace(b"localhost", host)
            async with connected(served, ask) as reader:
                assert (await answer(reader)).split()[1] == status, host


async def test_a_handshake_that_stalls_or_fails_ends_and_disturbs_no_other(tmp_path: Path) -> None:
    files = authority().issue(tmp_path, "agent/a1")
    tls = ServerTls.load(TlsFiles(files.cert, files.key), time.time())
    # Both ends of a good handshake are in this loop, and have to be done in this time.
    async with serving(replace(QUICK, request_s=0.5), lambda: tls) as served:
        address = ("127.0.0.1", served.port)
        silent, plain = [await asyncio.open_connection(*address) for _ in range(2)]
        plain[1].write(ASK)
        with capture_logs() as logs:
            async with asyncio.timeout(SOON):
                for reader, writer in (plain, silent):
                    with suppress(ConnectionError):
                        assert b"200" not in await reader.read()
                    writer.close()
            await eventually(lambda: len(logs) >= 2, SOON)
        failed = [line["reason"] for line in logs if line["event"] == "http_handshake_failed"]
        assert sorted(failed) == ["ConnectionAbortedError", "HTTP_REQUEST"]
        trusted = ssl.create_default_context(cafile=files.ca)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, ssl=trusted, server_hostname="localhost"
        )
        writer.write(ASK)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        protocol: Any = writer.transport
        assert len(protocol._ssl_protocol._ssl_buffer) == TLS_BUFFER_BYTES
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
