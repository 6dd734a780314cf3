"""Ports are never shared, and connections use no proxy."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.operations import RANGE
from croupier.model.errors import CroupierError, Unavailable
from croupier.net.address import Address
from croupier.net.task_scope import reraise_own_cancellation
from croupier.net.transport import bind, free_addresses, make_channel, make_server


async def test_the_system_chooses_a_free_port() -> None:
    server = make_server()
    assert bind(server, Address("127.0.0.1", 0)) > 0
    await server.stop(None)


async def test_two_servers_never_share_a_port(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = make_server(), make_server()
    port = bind(first, Address("127.0.0.1", 0))
    await first.start()
    try:
        with pytest.raises(
            Unavailable, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"
        ):
            bind(second, Address("127.0.0.1", port))
    finally:
        await first.stop(None)
        await second.stop(None)
    assert capfd.readouterr() == ("", ""), "gRPC prints nothing of its own"


async def test_the_web_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = make_server()
    port = bind(server, Address("127.0.0.1", 0))
    await server.start()
    try:
        async with make_channel(Address("127.0.0.1", port)) as channel:
            await asyncio.wait_for(channel.channel_ready(), 30)
    finally:
        await server.stop(None)


def test_free_addresses_are_different_and_free() -> None:
    addresses = free_addresses(50)
    assert len(set(addresses)) == 50
    assert all(address.is_loopback and 10_000 <= address.port < 31_000 for address in addresses)


async def test_a_free_address_is_kept_for_its_caller() -> None:
    [address] = free_addresses(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((address.host, address.port))
    for _ in range(2):
        server = make_server()
        assert bind(server, address) == address.port
        await server.start()
        async with make_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), 30)
        await server.stop(None)


async def test_compressed_messages_are_refused() -> None:
    """32 KB of gzip expand to 32 MB before any limit is checked."""
    received: list[int] = []

    async def count(request: bytes, _: object) -> bytes:
        received.append(len(request))
        return b""

    server = make_server()
    handlers: Any = {"Count": grpc.unary_unary_rpc_method_handler(count)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    address = Address("127.0.0.1", bind(server, Address("127.0.0.1", 0)))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(str(address)) as channel:
            call: Any = channel.unary_unary("/test/Count")
            assert await call(b"plain") == b""
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(b"0" * 1_000_000, compression=grpc.Compression.Gzip)
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(None)
    assert received == [5]


async def test_compressed_answers_are_refused() -> None:
    async def large(_request: bytes, _: object) -> bytes:
        return b"0" * 1_000_000

    server = grpc.aio.server(compression=grpc.Compression.Gzip)
    handlers: Any = {"Ask": grpc.unary_unary_rpc_method_handler(large)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    address = Address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    try:
        async with make_channel(address) as channel:
            call: Any = channel.unary_unary("/test/Ask")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"")
    finally:
        await server.stop(None)


# A cancelled task ends, however its gRPC call ends.


async def ends_by_status(*_: object, **__: object) -> NoReturn:
    """End with a gRPC status when the task is cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing) from None
    raise AssertionError


async def cancelled(task: asyncio.Task[None]) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)


async def test_a_cancelled_task_that_calls_etcd_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    client = EtcdClient([Address("127.0.0.1", 1)])
    (endpoint,) = client._endpoints
    monkeypatch.setattr(endpoint._channel, "unary_unary", lambda *_, **__: ends_by_status)

    async def insist() -> None:
        while True:
            try:
                await client.attempt(RANGE, pb.RangeRequest(key=b"k"), 5.0)
            except CroupierError:
                continue

    await cancelled(asyncio.create_task(insist()))
    await client.close()


async def test_a_task_that_was_not_cancelled_continues() -> None:
    reraise_own_cancellation()
