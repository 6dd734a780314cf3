"""A program for benchmarks: many agents in one process, which run no tasks.

    python -m tests.harness.light_agents MASTER FIRST COUNT [--ends]

A channel of gRPC takes milliseconds of CPU to connect, which real agents spend on machines of their
own. Here each agent has a socket and a few frames of HTTP/2, in plain text. Rule: what it sends
stays below the first window of HTTP/2 (64 KB) until the server extends it, which is not checked.

Agents report every launched task as running, and with `--ends` as finished at once. They list their
tasks when they re-register, and back off as a real agent does. Each registration is appended to the
file `registered` of the working directory, with its time. SIGTERM ends the program, which prints
how many attempts to register ended, by reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from struct import Struct, pack, unpack

from croupier.agent.link import TIMES
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, resources_pb2, task_pb2

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


# How attempts to register ended.
ENDED: Counter[str] = Counter()
CPUS, MEM_MIB = 16, 65_536
# An entry of the file `registered`: the number of the agent, and the time of the monotonic clock.
REGISTERED = Struct("<Id")


class LightAgent:
    """An agent that runs no tasks."""

    def __init__(self, master: Address, number: int, registered: int, ends: bool) -> None:
        """Write registrations to the descriptor `registered`."""
        self._states = (task_pb2.TASK_RUNNING, task_pb2.TASK_FINISHED)[: 1 + ends]
        self._master, self._name = master, f"light{number}"
        self._number, self._registered = number, registered
        self._backoff = Backoff(TIMES.backoff_first_s, TIMES.backoff_cap_s, random.Random(number))
        self._tasks: dict[tuple[str, str], pb.AgentTask] = {}
        self._agent_id = f"{self._name}-id"
        self._epoch = 0
        self._opening = opening(master, "/croupier.v1.AgentService/Connect")
        self._stream: LightStream | None = None
        self._joining: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Stay connected until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                register = body(_request(pb.Report(register=self._register())))
                stream = self._stream = await connect(
                    self._master, self._opening + register, self._on_message
                )
            except OSError as error:
                ENDED[f"connect: {type(error).__name__}"] += 1
            else:
                self._joining = loop.call_later(TIMES.join_s, stream.end, "TIMEOUT: not registered")
                ENDED[await stream.ended] += 1
                self._joining.cancel()
                if self._beating is not None:
                    self._beating.cancel()
            await asyncio.sleep(self._backoff.next_s())

    def _on_message(self, data: bytes) -> None:
        message = pb.AgentServiceConnectResponse.FromString(data)
        self._epoch = max(self._epoch, message.master_epoch)
        statuses: list[task_pb2.TaskStatus] = []
        for order in message.orders:
            match order.WhichOneof("order"):
                case "registered":
                    self._on_registered(order.registered)
                case "launch":
                    statuses += self._launch(order.launch)
                case "acknowledge":
                    ack = order.acknowledge
                    task = self._tasks.get((ack.framework_id, ack.task_id))
                    if task is not None and ack.sequence == task.latest.sequence:
                        task.ClearField("unacknowledged")
                        if task.latest.state != task_pb2.TASK_RUNNING:
                            del self._tasks[ack.framework_id, ack.task_id]
                case "error":
                    assert self._stream is not None
                    self._stream.end(f"error: {order.error.message[:60]}")
        if statuses:
            self._send(pb.Report(updates=pb.StatusUpdates(statuses=statuses)))

    def _on_registered(self, registered: pb.Registered) -> None:
        assert self._joining is not None
        self._joining.cancel()
        os.write(self._registered, REGISTERED.pack(self._number, time.monotonic()))
        self._agent_id = registered.agent_id
        self._backoff.reset()
        if registered.reconnect_ms:
            self._backoff.limit(registered.reconnect_ms / 1000)
        interval_s = registered.heartbeat_ms / 1000
        self._beating = asyncio.get_running_loop().call_later(interval_s, self._beat, interval_s)

    def _register(self) -> pb.Register:
        return pb.Register(
            agent_id=self._agent_id,
            hostname=self._name,
            resources=resources_pb2.Resources(
                cpus_milli=CPUS * 1000, mem_milli=MEM_MIB * 1000, disk_milli=1_000_000
            ),
            boot_id="boot",
            master_epoch=self._epoch,
            tasks=self._tasks.values(),
        )

    def _beat(self, interval_s: float) -> None:
        self._send(pb.Report(heartbeat=framework_pb2.Heartbeat()))
        self._beating = asyncio.get_running_loop().call_later(interval_s, self._beat, interval_s)

    def _send(self, report: pb.Report) -> None:
        assert self._stream is not None
        self._stream.send(_request(report))

    def _launch(self, launch: pb.LaunchTask) -> list[task_pb2.TaskStatus]:
        """Return the statuses to report."""
        key = launch.framework_id, launch.task.task_id
        if key in self._tasks:
            return []
        statuses = [
            task_pb2.TaskStatus(
                framework_id=launch.framework_id, task_id=launch.task.task_id, sequence=sequence,
                agent_id=self._agent_id, state=state, source=task_pb2.SOURCE_AGENT,
            )
            for sequence, state in enumerate(self._states, 1)
        ]  # fmt: skip
        self._tasks[key] = pb.AgentTask(
            framework_id=launch.framework_id, task=launch.task, role=launch.role,
            latest=statuses[-1], unacknowledged=statuses, proof=launch.proof,
        )  # fmt: skip
        return statuses


def _request(report: pb.Report) -> bytes:
    return pb.AgentServiceConnectRequest(reports=[report]).SerializeToString()


def _stop() -> None:
    print(json.dumps(ENDED), flush=True)
    os._exit(0)


async def main(master: str, first: int, count: int, *, ends: bool) -> None:
    address = Address.parse(master)
    registered = os.open("registered", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    agents = [LightAgent(address, first + number, registered, ends) for number in range(count)]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop)
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run())
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4]), ends="--ends" in sys.argv))
