"""The proxy simulates the network faults that tests need."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping

import pytest

from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import running_master
from tests.harness.proxy import Proxy

ME = "me"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Return a proxy for an echo server in this process, which is the client `me`."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (front,) = free_addresses(1)

    def pids() -> Mapping[int, str]:
        return {os.getpid(): ME}

    proxy = Proxy(Address("127.0.0.1", port), front, pids)
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()
    await server.wait_closed()


async def ask(connection: socket.socket, timeout_s: float = 5.0) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, b"hello")
    return await asyncio.wait_for(loop.sock_recv(connection, 100), timeout_s)


async def heard(connection: socket.socket) -> bytes:
    """Return the answer; nothing if the connection was reset."""
    try:
        return await ask(connection)
    except ConnectionError:
        return b""


async def connected(proxy: Proxy) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    address = proxy.address.host, proxy.address.port
    await asyncio.get_running_loop().sock_connect(connection, address)
    return connection


async def test_without_a_fault_everything_gets_through(proxy: Proxy) -> None:
    with await connected(proxy) as connection:
        assert await ask(connection) == b"hello"


async def test_a_cut_resets_connections_and_refuses_new_ones(proxy: Proxy) -> None:
    with await connected(proxy) as connection:
        assert await ask(connection) == b"hello"
        proxy.cut(ME)
        with pytest.raises(ConnectionError):
            await ask(connection)
    with await connected(proxy) as refused:
        assert not await heard(refused)
    proxy.heal(ME)
    with await connected(proxy) as connection:
        assert await ask(connection) == b"hello"


async def test_others_are_not_cut_off(proxy: Proxy) -> None:
    with await connected(proxy) as connection:
        proxy.cut("another")
        assert await ask(connection) == b"hello"


async def test_a_black_hole_loses_data_silently(proxy: Proxy) -> None:
    with await connected(proxy) as connection:
        assert await ask(connection) == b"hello"
        proxy.swallow(ME)
        with pytest.raises(TimeoutError):
            await ask(connection, 0.2)
        proxy.heal(ME)
        with pytest.raises(ConnectionError):
            await ask(connection)


async def test_a_client_that_connects_into_a_black_hole_is_served_after_it(proxy: Proxy) -> None:
    proxy.swallow(ME)
    with await connected(proxy) as connection:
        asking = asyncio.create_task(ask(connection))
        done, _ = await asyncio.wait([asking], timeout=0.2)
        assert not done
        proxy.heal(ME)
        assert await asking == b"hello"


async def test_delayed_data_arrives(proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    with await connected(proxy) as connection:
        proxy.slow_down(ME, 0.1)
        began = loop.time()
        assert await ask(connection) == b"hello"
        assert loop.time() - began >= 0.2


async def test_a_master_that_is_far_away_is_reached(proxy: Proxy) -> None:
    """Connecting takes two round trips, of 0.4 s each here."""
    async with running_master() as master:
        proxy.server = master.address
        proxy.slow_down(ME, 0.2)
        channel = make_channel(proxy.address)
        try:
            operator = OperatorServiceStub(channel)
            assert (await operator.GetMaster(pb.GetMasterRequest(), timeout=10)).leader
        finally:
            await channel.close()
