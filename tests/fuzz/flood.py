"""Floods from one principal of a master with authentication: what honest peers notice.

    python -m tests.fuzz.flood [--streams 40] [--messages 4] [--only calls.heartbeat]

Each stream sends messages of 2 MiB with as many entries of one list as fit: half a million
heartbeats first. The streams come again for some seconds. The honest agent, framework and operator
of `tests.fuzz.honest` run beside the same floods of another process, which only reads them, and
then beside floods of their own master: the rest is the machine. The exit code is 1 if their p99 has
more than doubled, the master took more than 300 MiB, or a step of its loop took more than 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import grpc.aio

from croupier.net.address import Address
from croupier.net.transport import TO_SERVER_BYTES, bind, make_channel, make_server
from croupier.v1 import agent_pb2, framework_pb2
from tests.fuzz import judge
from tests.fuzz.contract import all_methods
from tests.fuzz.daemons import Daemon, Honest, start_master
from tests.fuzz.floods import Flood, all_floods
from tests.fuzz.parties import ADMIN, FUZZED_AGENT, admit, file_of, security_of
from tests.harness.eventually import eventually

START_S: Final = 60.0
FLOODS_S: Final = 5.0
LONGEST_S: Final = 60.0
# Streams of one connection; the master accepts 100.
OF_CONNECTION: Final = 20


def _opening(path: str) -> list[bytes]:
    """Return a legal beginning of a stream that the party of the flood may make."""
    if path.endswith("FrameworkService/Connect"):
        call = framework_pb2.Call()
        call.subscribe.client_id = call.subscribe.framework.name = "flood"
        call.subscribe.framework.roles.append("fuzz")
        return [framework_pb2.FrameworkServiceConnectRequest(calls=[call]).SerializeToString()]
    if path.endswith("AgentService/Connect"):
        register = agent_pb2.Register(agent_id=FUZZED_AGENT, hostname="flood")
        report = agent_pb2.Report(register=register)
        return [agent_pb2.AgentServiceConnectRequest(reports=[report]).SerializeToString()]
    return []


async def _stream(channel: Any, flood: Flood, messages: int, ended: Counter[str]) -> None:
    """Send a flood several times on one stream, and note how the stream ended."""
    call = channel.stream_stream(flood.method.path)()

    async def read() -> None:
        while await call.read() is not grpc.aio.EOF:
            pass

    reading = asyncio.create_task(read())
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
        async with asyncio.timeout(LONGEST_S):
            for data in (*_opening(flood.method.path), *[flood.data] * messages):
                await call.write(data)
            await call.done_writing()
            await reading
    is_over = call.done()
    reading.cancel()
    call.cancel()
    with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        await reading
    name = "not read to its end"
    if is_over:
        name = f"{(await call.code()).name}: {(await call.details() or '')[:60]}"
    ended[name] += 1


async def _ask(channel: Any, flood: Flood, ended: Counter[str]) -> None:
    try:
        await channel.unary_unary(flood.method.path)(flood.data, timeout=LONGEST_S)
    except grpc.aio.AioRpcError as error:
        ended[error.code().name] += 1
    else:
        ended["OK"] += 1


async def send(master: Address, folder: Path, only: str, streams: int, messages: int) -> None:
    """Send the floods whose names contain `only`, each on all streams at once."""
    floods = [
        each for each in all_floods() if only in (each.method.path, "all") or only in each.name
    ]
    until = time.monotonic() + FLOODS_S
    for number, flood in enumerate(cycle(floods)):
        if number >= len(floods) and time.monotonic() > until:
            break
        party = FUZZED_AGENT if "AgentService" in flood.method.path else "fuzz"
        ended: Counter[str] = Counter()
        began = time.monotonic()
        security = security_of(folder, party)
        channels = [make_channel(master, security) for _ in range(-(-streams // OF_CONNECTION))]
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                channel = channels[number % len(channels)]
                if flood.method.is_stream:
                    group.create_task(_stream(channel, flood, messages, ended))
                else:
                    group.create_task(_ask(channel, flood, ended))
        for channel in channels:
            await channel.close()
        took = round(time.monotonic() - began, 2)
        line = {"flood": f"{flood.method.path} {flood.name}", "took_s": took, "ended": dict(ended)}
        print(json.dumps(line), flush=True)


async def measure(folder: Path, only: str, streams: int, messages: int) -> list[judge.Finding]:
    """Run the floods against a master, print what was measured, and return the findings."""
    admin = file_of(folder, ADMIN)
    master, listen = start_master(folder, "--auth", "--admin-token-file", str(admin))
    peers = None
    found: list[judge.Finding] = []
    try:
        await eventually(lambda: admin.exists() and master.routes, START_S, "the master starts")
        await admit(listen, folder)
        peers = Honest(listen, folder, has_auth=True)
        await asyncio.to_thread(peers.phase)
        flags = ["--only", only, "--streams", str(streams), "--messages", str(messages)]
        async with _sink() as sink:
            await _sent(sink, master, folder, flags)
            alone = await asyncio.to_thread(peers.phase)
        base, cpu = _measured(master), master.cpu_s
        await _sent(listen, master, folder, flags)
        beside = await asyncio.to_thread(peers.phase)
        result = {
            "alone": alone, "beside": beside, "rss_mib": [base, master.peak_kib // 1024],
            "master_cpu_s": round(master.cpu_s - cpu, 2),
            "longest_step_s": max([0, *(each["seconds"] for each in judge.steps(master.steps))]),
        }  # fmt: skip
        print(json.dumps(result), flush=True)
        found += [*judge.of_latencies(alone, beside), *judge.of_daemon(master)]
    finally:
        if peers is not None:
            found += judge.of_honest(await asyncio.to_thread(peers.end))
        await asyncio.to_thread(master.stop)
    return found


async def _sent(target: Address, master: Daemon, folder: Path, flags: list[str]) -> None:
    """Flood a target from another process, and measure the master meanwhile."""
    words = ["-m", "tests.fuzz.flood", "--send", str(target), "--folder", str(folder), *flags]
    sender = await asyncio.create_subprocess_exec("nice", sys.executable, *words)
    waiting = asyncio.create_task(sender.wait())
    while not waiting.done():
        await asyncio.wait([waiting], timeout=0.02)
        master.measure()


@asynccontextmanager
async def _sink() -> AsyncIterator[Address]:
    """Run a process that reads floods and refuses them."""
    words = ["-m", "tests.fuzz.flood", "--sink"]
    sink = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE
    )
    assert sink.stdout is not None
    try:
        yield Address.parse((await sink.stdout.readline()).decode().strip())
    finally:
        sink.terminate()
        await sink.wait()


async def _serve_sink() -> None:
    async def refuse(requests: AsyncIterator[bytes], context: Any) -> None:
        async for data in requests:
            if len(data) > TO_SERVER_BYTES // 2:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a flood")

    server = make_server()
    refusing: Any = grpc.stream_stream_rpc_method_handler(refuse)
    for method in all_methods():
        service, _, name = method.path.strip("/").partition("/")
        handler = grpc.method_handlers_generic_handler(service, {name: refusing})
        server.add_generic_rpc_handlers((handler,))
    port = bind(server, Address("127.0.0.1", 0))
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


def _measured(daemon: Daemon) -> int:
    daemon.measure()
    return daemon.peak_kib // 1024


def main() -> int:
    """Measure, print the findings, and return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.flood", description=__doc__)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--messages", type=int, default=4, help="of each stream")
    parser.add_argument(
        "--only", default="calls.heartbeat", help="a part of a list's name, a method's path, or all"
    )
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="for logs; default: a new one")
    given = parser.parse_args()
    if given.sink:
        asyncio.run(_serve_sink())
    if given.send:
        sending = send(
            Address.parse(given.send), given.folder, given.only, given.streams, given.messages
        )
        asyncio.run(sending)
        return 0
    folder = given.folder or Path(tempfile.mkdtemp(prefix="croupier-flood-"))
    folder.mkdir(parents=True, exist_ok=True)
    found = asyncio.run(measure(folder, given.only, given.streams, given.messages))
    for finding in found:
        print(f"FOUND {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
