"""How long one message blocks the master's loop, and how much memory it takes.

    python -m tests.bench.heavy_messages [NAME ...]

For each message a master on SQLite runs in this process; another process sends prepared bytes. A
task of the loop sleeps for a millisecond at a time: its longest turn, `blocked_ms`, is the longest
time for which the loop was blocked. `blocked_cpu_ms` is the most CPU time of such a turn, which a
busy machine does not increase. Meanwhile an honest operator calls GetMaster; `honest_ms` is its
longest wait. Prints one line of JSON for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
import structlog

from croupier.master.access.admission_flags import AdmissionFlags
from croupier.master.app import Master
from croupier.master.config import MasterConfig, StoreChoice
from croupier.model.resources import Resources
from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.process.garbage import freeze_imports
from croupier.v1 import agent_pb2, framework_pb2, operator_pb2, resources_pb2, task_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

FRAMEWORKS = "/croupier.v1.FrameworkService/Connect"
AGENTS = "/croupier.v1.AgentService/Connect"
ROLES = "/croupier.v1.OperatorService/UpdateRoles"
MIB = 1024 * 1024
# After the last message, for its consequences.
QUIET_S = 0.5
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Attack:
    """Messages for one method, after the agents that `agents` describes have registered."""

    method: str
    messages: list[bytes]
    agents: tuple[agent_pb2.Register, ...] = ()
    compress: bool = False


def nested(tags: tuple[int, ...], body: bytes) -> bytes:
    """Wrap `body` in nested fields with these tags."""
    for tag in reversed(tags):
        body = varint(tag << 3 | 2) + varint(len(body)) + body
    return body


def varint(number: int) -> bytes:
    """Encode a number as protobuf does."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def subscribe(*demands: framework_pb2.Demand, roles: tuple[str, ...] = ("*",)) -> bytes:
    """Return the first message of a framework."""
    call = framework_pb2.Call()
    call.subscribe.client_id = "heavy"
    call.subscribe.framework.name = "heavy"
    call.subscribe.framework.roles.extend(roles)
    call.subscribe.demands.extend(demands)
    return framework_pb2.FrameworkServiceConnectRequest(calls=[call]).SerializeToString()


def calls(*made: framework_pb2.Call) -> bytes:
    """Return a message with these calls."""
    return framework_pb2.FrameworkServiceConnectRequest(calls=made).SerializeToString()


def an_agent(cpus: int = 1000, *tasks: agent_pb2.AgentTask) -> agent_pb2.Register:
    """Return the REGISTER of a large machine."""
    amount = resources_pb2.Resources(cpus_milli=cpus * 1000, mem_milli=2**34)
    amount.ranges.add(name="ports").ranges.add(begin=1, end=1_000_000)
    return agent_pb2.Register(agent_id="a1", hostname="h1", resources=amount, tasks=tasks)


def a_task(number: int) -> task_pb2.TaskInfo:
    """Return a valid task."""
    task = task_pb2.TaskInfo(task_id=f"task-{number}")
    task.command.argv.extend(["sleep", "1"])
    task.resources.cpus_milli, task.resources.mem_milli = 100, 32_000
    return task


def a_running_task(number: int, ranges: bool = False, scalars: int = 0) -> agent_pb2.AgentTask:
    """Return a task that an agent runs."""
    task = a_task(number)
    if ranges:
        port = task.resources.ranges.add(name="ports").ranges.add()
        port.begin = port.end = 2 * number + 1
    for each in range(scalars):
        task.resources.scalars.add(name=f"s{each}", milli=1)
    status = task_pb2.TaskStatus(
        framework_id="f1",
        task_id=task.task_id,
        agent_id="a1",
        state=task_pb2.TASK_RUNNING,
        source=task_pb2.SOURCE_EXECUTOR,
        sequence=1,
    )
    return agent_pb2.AgentTask(framework_id="f1", task=task, latest=status, role="*")


def register(*tasks: agent_pb2.AgentTask) -> bytes:
    """Return a message with the REGISTER of these tasks."""
    report = agent_pb2.Report(register=an_agent(2_000_000, *tasks))
    return agent_pb2.AgentServiceConnectRequest(reports=[report]).SerializeToString()


def _empty_tasks(size: int, times: int = 1) -> Attack:
    tasks = nested((2, 1), nested((1,), b"") * (size // 2 - 16))
    accept = nested((1,), b"\x08\x01" + nested((3,), tasks))
    return Attack(FRAMEWORKS, [subscribe(), accept * times])


def _acknowledge() -> Attack:
    made = []
    for seq in range(1, 101):
        call = framework_pb2.Call(seq=seq)
        for number in range(10_000):
            call.acknowledge.updates.add(agent_id="a1", task_id=f"t{number}", sequence=1)
        made.append(calls(call))
    return Attack(FRAMEWORKS, [subscribe(), *made])


def _reconcile() -> Attack:
    made = []
    for seq in range(1, 301):
        call = framework_pb2.Call(seq=seq)
        call.reconcile.task_ids.extend(f"t{number}" for number in range(10_000))
        made.append(calls(call))
    return Attack(FRAMEWORKS, [subscribe(), *made])


def _unseen_verdicts() -> Attack:
    """Return 4 MB of ACCEPTs of 500 tasks without ids, whose verdicts are never marked as seen."""
    made = []
    for seq in range(1, 4096):
        call = framework_pb2.Call(seq=seq)
        call.accept.offer_ids.append("nope")
        call.accept.operations.add().launch.tasks.extend([task_pb2.TaskInfo()] * 500)
        made.append(call)
    batches = [calls(*made[start : start + 100]) for start in range(0, len(made), 100)]
    return Attack(FRAMEWORKS, [subscribe(), *batches])


def _small_tasks() -> Attack:
    one = nested((8,), b"\x0a\x04abcd")
    body = an_agent().SerializeToString() + one * (MIB // len(one))
    return Attack(AGENTS, [nested((1, 1), body)])


def _units() -> Attack:
    unit = framework_pb2.Demand(unit=resources_pb2.Resources(mem_milli=1))
    return Attack(FRAMEWORKS, [subscribe(unit)], agents=(an_agent(),))


def _accept() -> Attack:
    call = framework_pb2.Call(seq=1)
    call.accept.offer_ids.append("@offer")
    call.accept.operations.add().launch.tasks.extend(map(a_task, range(1000)))
    return Attack(FRAMEWORKS, [subscribe(), calls(call)], agents=(an_agent(),))


def _roles() -> Attack:
    deep = tuple(
        "/".join([f"role{number}", *(f"level{depth}" for depth in range(31))])
        for number in range(32)
    )
    return Attack(FRAMEWORKS, [subscribe(roles=deep)])


ATTACKS: dict[str, Callable[[], Attack]] = {
    "accept_of_empty_tasks_1mib": lambda: _empty_tasks(MIB),
    "accepts_of_empty_tasks_2mib": lambda: _empty_tasks(MIB - 1024, 2),
    "accept_of_1000_tasks": _accept,
    "acknowledge_10000_100_times": _acknowledge,
    "reconcile_10000_300_times": _reconcile,
    "verdicts_never_seen_4mb": _unseen_verdicts,
    "register_of_small_tasks_1mib": _small_tasks,
    "register_60000_scalars": lambda: Attack(
        AGENTS, [register(*(a_running_task(each, scalars=60) for each in range(1000)))]
    ),
    "register_5000_ranges": lambda: Attack(
        AGENTS, [register(*(a_running_task(each, ranges=True) for each in range(5000)))]
    ),
    "register_10000_ranges": lambda: Attack(
        AGENTS, [register(*(a_running_task(each, ranges=True) for each in range(10_000)))]
    ),
    "register_10000_tasks": lambda: Attack(AGENTS, [register(*map(a_running_task, range(10_000)))]),
    "demand_of_tiny_units": _units,
    "roles_32_of_32_levels": _roles,
    "parts_2mb": lambda: Attack(
        ROLES, [nested((1,), b"\x0a\x01r" + nested((3,), b"\x01" * 2_000_000))]
    ),
    "gzip_32mib": lambda: Attack(
        FRAMEWORKS, [nested((1,), b"\x08\x01" + nested((3, 1), b"0" * (31 * MIB)))], compress=True
    ),
}


# The sending process.


async def _honest(channel: grpc.aio.Channel, longest: list[float]) -> None:
    stub = OperatorServiceStub(channel)
    while True:
        began = time.perf_counter()
        with suppress(grpc.aio.AioRpcError):
            await stub.GetMaster(operator_pb2.GetMasterRequest(), timeout=PATIENCE_S)
        longest[0] = max(longest[0], time.perf_counter() - began)
        await asyncio.sleep(0.005)


async def _open_agents(channel: grpc.aio.Channel, attack: Attack) -> list[Any]:
    """Open the streams of honest agents, which stay open."""
    streams = []
    for agent in attack.agents:
        stream: Any = channel.stream_stream(AGENTS)()
        report = agent_pb2.Report(register=agent)
        message = agent_pb2.AgentServiceConnectRequest(reports=[report])
        await stream.write(message.SerializeToString())
        await stream.read()
        streams.append(stream)
    return streams


class Sender:
    """One stream of an attack, and its last answer."""

    def __init__(self, channel: grpc.aio.Channel, attack: Attack) -> None:
        compression = grpc.Compression.Gzip if attack.compress else None
        self._attack = attack
        self._stream: Any = channel.stream_stream(attack.method)(compression=compression)
        self._offer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answered = asyncio.Event()
        self._answer = ""

    async def run(self) -> str:
        """Send everything, wait for the last answer and return it."""
        reading = asyncio.create_task(self._read())
        waiting = asyncio.create_task(self._answered.wait())
        limit = PATIENCE_S if len(self._attack.messages) > 1 else 5.0
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for data in self._attack.messages:
                await self._stream.write(await self._completed(data))
            await asyncio.wait(
                [reading, waiting], timeout=limit, return_when=asyncio.FIRST_COMPLETED
            )
        for task in (reading, waiting):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        return self._answer[:80]

    async def _completed(self, data: bytes) -> bytes:
        if b"@offer" not in data:
            return data
        message = framework_pb2.FrameworkServiceConnectRequest.FromString(data)
        message.calls[0].accept.offer_ids[0] = await self._offer
        return message.SerializeToString()

    async def _read(self) -> None:
        try:
            async for data in self._stream:
                if self._attack.method != FRAMEWORKS:
                    self._answer = "registered"
                    self._answered.set()
                    continue
                for event in framework_pb2.FrameworkServiceConnectResponse.FromString(data).events:
                    self._on_event(event)
        except grpc.aio.AioRpcError as error:
            self._answer = error.details() or str(error.code())

    def _on_event(self, event: framework_pb2.Event) -> None:
        if event.HasField("offers") and not self._offer.done():
            self._offer.set_result(event.offers.offers[0].offer_id)
        if event.HasField("error"):
            self._answer = event.error.message
        if event.HasField("verdict"):
            self._answer = event.verdict.error.message or "accepted"
            if event.verdict.seq >= len(self._attack.messages) - 1:
                self._answered.set()


async def _send(name: str, address: str) -> None:
    attack = ATTACKS[name]()
    channel, honest = make_channel(Address.parse(address)), make_channel(Address.parse(address))
    longest = [0.0]
    streams = await _open_agents(channel, attack)
    polling = asyncio.create_task(_honest(honest, longest))
    await asyncio.sleep(QUIET_S)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    longest[0] = 0.0
    began = time.perf_counter()
    if attack.method == ROLES:
        try:
            ask: Any = channel.unary_unary(ROLES)
            await ask(attack.messages[0])
            answer = "accepted"
        except grpc.aio.AioRpcError as error:
            answer = (error.details() or "")[:80]
    else:
        answer = await Sender(channel, attack).run()
    took = time.perf_counter() - began
    await asyncio.sleep(QUIET_S)
    polling.cancel()
    result = {
        "bytes": sum(map(len, attack.messages)),
        "took_s": round(took, 2),
        "honest_ms": round(longest[0] * 1000),
        "answer": answer,
    }
    print(json.dumps(result), flush=True)
    for stream in streams:
        stream.cancel()
    await channel.close()
    await honest.close()


# The process with the master.


async def _tick(longest: list[float]) -> None:
    last, last_cpu = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(0.001)
        now, cpu = time.perf_counter(), time.thread_time()
        longest[:] = max(longest[0], now - last), max(longest[1], cpu - last_cpu)
        last, last_cpu = now, cpu


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


async def measure(name: str) -> dict[str, object]:
    """Return the effect of one message on a master."""
    with TemporaryDirectory() as folder:
        return await _measure(name, Path(folder) / "master.db")


async def _measure(name: str, path: Path) -> dict[str, object]:
    any_port = Address("127.0.0.1", 0)
    # No master has launched the tasks of these machines.
    admission = AdmissionFlags(
        adopt_unproven=86_400, max_agent_resources=Resources.parse("cpus:2000000")
    )
    store = StoreChoice(path)
    config = MasterConfig(listen=any_port, http=any_port, store=store, admission=admission)
    master = Master(config)
    await master.start()
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.heavy_messages", "--send", name, str(master.address),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    longest = [0.0, 0.0]
    ticking = asyncio.create_task(_tick(longest))
    assert sender.stdin is not None
    assert sender.stdout is not None
    try:
        await sender.stdout.readline()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        await asyncio.sleep(0.01)
        before, longest[:] = _resident_mb(), (0.0, 0.0)
        sender.stdin.write(b"go\n")
        result = json.loads(await sender.stdout.readline())
        grown = _resident_mb() - before
    finally:
        ticking.cancel()
        await sender.wait()
        await master.stop()
    return {
        "message": name,
        "blocked_ms": round(longest[0] * 1000),
        "blocked_cpu_ms": round(longest[1] * 1000),
        "grown_mb": round(grown),
        **result,
    }


async def _lines(names: list[str]) -> AsyncIterator[dict[str, object]]:
    for name in names:
        yield await measure(name)


async def main(names: list[str]) -> None:
    """Measure each message."""
    freeze_imports()
    async for line in _lines(names or list(ATTACKS)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument("--send", nargs=2, metavar=("NAME", "MASTER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        asyncio.run(_send(*options.send))
    else:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(40),
        )
        asyncio.run(main(options.names))
