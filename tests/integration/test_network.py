"""Networks of daemons: IPv6, a busy master, and the proxy that simulates faults."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.net.unary import call_master
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2 import ListAgentsRequest
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually
from tests.harness.masters import running_master
from tests.harness.proxy import Proxy

ME = "me"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
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


# More than gRPC's own bound of calls that wait for the server's loop, beyond which it cancels some.
CALLS = 1_600
OF_CONNECTION = 100

BUSY_SERVER = """
import asyncio, time
import grpc
from croupier.net.address import Address
from croupier.net.transport import bind, make_server

async def echo(request, context):
    return request

async def main():
    server = make_server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.X", {"Y": handler}),))
    port = bind(server, Address("127.0.0.1", 0))
    await server.start()
    print(port, flush=True)
    while input() != "end":
        time.sleep(0.1)
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


async def test_calls_wait_while_the_loop_is_busy() -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BUSY_SERVER,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    channels = []
    try:
        address = Address("127.0.0.1", int(await server.stdout.readline()))
        channels = [make_channel(address) for _ in range(CALLS // OF_CONNECTION)]
        calls: list[Any] = []
        for channel in channels:
            ask: Any = channel.unary_unary("/x.X/Y")
            calls += [ask(b"x", timeout=100) for _ in range(OF_CONNECTION)]
        # The loop waits for a line, so nothing is served before all calls have arrived.
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        await asyncio.sleep(0.5)
        server.stdin.write(b"go\n" * 5_000)
        codes = [await call.code() for call in calls]
        assert codes.count(grpc.StatusCode.OK) == CALLS, set(codes)
    finally:
        for channel in channels:
            await channel.close()
        server.kill()
        await server.wait()


LOOPBACK = Address.parse("[::1]:0")


@pytest.fixture
def needs_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


@pytest.mark.usefixtures("needs_ipv6")
async def test_a_cluster_on_ipv6(tmp_path: Path) -> None:
    master = MasterDaemon(MasterConfig(listen=LOOPBACK, http=LOOPBACK, store=StoreChoice(None)))
    try:
        await master.start()
        assert str(master.address).startswith("[::1]:")
        async with running_agent(tmp_path, master.address, http=LOOPBACK) as agent:
            await eventually(lambda: agent.link.is_registered)
            async with make_channel(master.address) as channel:
                question = OperatorServiceStub(channel).ListAgents
                answer = await call_master(question, ListAgentsRequest(), master.address, 5.0)
            (view,) = answer.agents
            assert view.agent.http_address == str(agent.http_address)
            assert view.agent.http_address.startswith("[::1]:")
            for address in (master.http_address, agent.http_address):
                url = f"http://{address}/healthz"
                async with aiohttp.ClientSession() as session, session.get(url) as found:
                    assert found.status == 200
    finally:
        await master.stop()
