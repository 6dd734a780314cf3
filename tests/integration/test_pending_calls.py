"""A master that is busy for a moment keeps calls that arrive meanwhile."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

from croupier.net.address import Address
from croupier.net.transport import make_channel

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
            calls += [ask(b"x", timeout=30) for _ in range(OF_CONNECTION)]
        # The loop waits for a line, so nothing is served before all calls have arrived.
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        await asyncio.sleep(0.5)
        server.stdin.write(b"go\n" * 200)
        codes = [await call.code() for call in calls]
        assert codes.count(grpc.StatusCode.OK) == CALLS, set(codes)
    finally:
        for channel in channels:
            await channel.close()
        server.kill()
        await server.wait()
