"""The server of an executor: who is admitted as a worker, and what strangers can do."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from cryptography import x509

from croupier.futures.gate import MAX_HELLO, Gate, Hello, WorkerLink
from croupier.futures.remote.protocol import HEADER, READY
from tests.harness.eventually import eventually

MAX_BYTES = 1000


class Recorder:
    """Records what the gate tells."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.admitted: list[Hello] = []
        self.frames: list[tuple[int, int, bytes]] = []
        self.closed = 0

    def admit(self, hello: Hello, link: WorkerLink) -> str:
        self.admitted.append(hello)
        return self.refusal

    def on_frame(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        self.frames.append((kind, number, body))

    def on_read(self, link: WorkerLink) -> None:
        pass

    def on_closed(self, link: WorkerLink) -> None:
        self.closed += 1


class Peer:
    """A connection to a gate."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, content: bytes) -> None:
        self.writer.write(struct.pack("!I", len(content)) + content)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes] | None:
        """Return the gate's answer; None if it closes the connection."""
        try:
            async with asyncio.timeout(30):
                code, size = struct.unpack("!BI", await self.reader.readexactly(5))
                return code, await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


def hello(gate: Gate, **changes: Any) -> bytes:
    said = {
        "task": "t1", "token": gate.token("t1"), "host": "h", "python": "3.11.1",
        "implementation": "cpython", "minor": [3, 11],
    }  # fmt: skip
    return json.dumps({**said, **changes}).encode()


@asynccontextmanager
async def gate_of(workers: Recorder) -> AsyncIterator[tuple[Gate, int]]:
    gate = Gate(workers, MAX_BYTES)
    port = await gate.listen("127.0.0.1", 0)
    try:
        yield gate, port
    finally:
        await gate.close()
        await eventually(lambda: not gate.links)


@asynccontextmanager
async def peer_of(gate: Gate, port: int, certificate: str = "") -> AsyncIterator[Peer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate or gate.certificate)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def test_a_worker_with_its_token_gets_the_program_and_is_heard() -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port), peer_of(gate, port) as peer:
        await peer.say(hello(gate))
        answer = await peer.answer()
        assert answer is not None
        assert answer[0] == 0
        peer.writer.write(HEADER.pack(READY, 7, 2) + b"ok" + HEADER.pack(READY, 8, 0))
        await eventually(lambda: workers.frames == [(READY, 7, b"ok"), (READY, 8, b"")])
        peer.writer.write(HEADER.pack(READY, 9, 1 << 30))
        await eventually(lambda: workers.closed == 1, what="a frame that is too large ends it")
    assert workers.admitted == [Hello("t1", "h", "3.11.1", "cpython", (3, 11))]


async def test_a_worker_that_is_refused_is_told_why() -> None:
    workers = Recorder("another Python")
    async with gate_of(workers) as (gate, port), peer_of(gate, port) as peer:
        await peer.say(hello(gate))
        assert await peer.answer() == (1, b"another Python")
        peer.writer.write(HEADER.pack(READY, 7, 0))
        assert await peer.reader.read() == b""
    assert (workers.frames, workers.closed) == ([], 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "0" * 64},
        {"token": ""},
        {"token": "\u00e9"},
        {"token": None},
        {"task": "t2"},
        {"minor": "3.11"},
        {"minor": [3]},
        {"minor": [[], {}]},
    ],
    ids=str,
)
async def test_a_stranger_is_not_admitted(changes: dict[str, Any]) -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port), peer_of(gate, port) as peer:
        await peer.say(hello(gate, **changes))
        assert await peer.answer() is None
    assert (workers.admitted, workers.frames, workers.closed) == ([], [], 0)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"{}", b"[" * MAX_HELLO, pickle.dumps([1]), b'{"task": 1e999}'],
    ids=lambda content: content[:8].hex(),
)
async def test_what_is_no_hello_ends_the_connection(content: bytes) -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port), peer_of(gate, port) as peer:
        await peer.say(content)
        assert await peer.answer() is None
    assert workers.admitted == []


async def test_a_long_hello_ends_the_connection_before_it_is_read() -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port), peer_of(gate, port) as peer:
        peer.writer.write(struct.pack("!I", MAX_HELLO + 1))
        assert await peer.answer() is None


async def test_a_worker_accepts_its_own_executor_only() -> None:
    other = Gate(Recorder(), MAX_BYTES)
    async with gate_of(Recorder()) as (gate, port):
        with pytest.raises(ssl.SSLCertVerificationError):
            async with peer_of(gate, port, other.certificate):
                pass


async def test_a_handshake_that_ends_after_the_gate_has_closed_leaves_nothing() -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=gate.certificate)
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = context.wrap_bio(received, sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ssl.SSLWantReadError):
            peer.do_handshake()
        writer.write(sent.read())
        while sent.pending == 0:
            received.write(await reader.read(1 << 16))
            with suppress(ssl.SSLWantReadError):
                peer.do_handshake()
        await gate.close()
        peer.write(struct.pack("!I", len(hello(gate))) + hello(gate))
        writer.write(sent.read())
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass
        writer.transport.abort()
        assert not gate.links
    assert (workers.admitted, workers.closed) == ([], 0)


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_comes_while_the_gate_closes_leaves_nothing(turns: int) -> None:
    async with gate_of(Recorder()) as (gate, port):
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await gate.close()
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    gc.collect()  # warnings of sockets that are left are errors


async def test_plain_text_is_not_answered() -> None:
    workers = Recorder()
    async with gate_of(workers) as (gate, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        content = hello(gate)
        writer.write(struct.pack("!I", len(content)) + content)
        writer.write_eof()
        async with asyncio.timeout(30):
            try:
                answer = await reader.read()
            except ConnectionError:
                answer = b""
        assert answer[:1] in (b"", b"\x15"), "nothing but a TLS alert"
        writer.transport.abort()
    assert workers.admitted == []


def test_tokens_are_of_one_task_and_one_executor() -> None:
    one, two = Gate(Recorder(), MAX_BYTES), Gate(Recorder(), MAX_BYTES)
    assert one.proves("t1", one.token("t1"))
    assert not one.proves("t2", one.token("t1"))
    assert not two.proves("t1", one.token("t1"))
    names = x509.load_pem_x509_certificate(one.certificate.encode()).subject
    assert names.rfc4514_string() == "CN=croupier futures", "it tells nothing of the machine"
