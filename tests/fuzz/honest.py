"""Honest peers of a master under attack: one agent, one framework and one operator.

    python -m tests.fuzz.honest MASTER [FOLDER with the tokens of parties]

The framework runs one task at a time on the whole agent. Each line of standard input ends a phase:
the program prints the latencies of the phase as JSON. The end of the input ends the program; its
last line has everything that was lost.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc.aio
from google.protobuf.message import Message

from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2, framework_pb2, operator_pb2, resources_pb2, task_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.v1.framework_pb2_grpc import FrameworkServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.fuzz.parties import ADMIN, HONEST_AGENT, file_of
from tests.harness.eventually import eventually

HOSTNAME: Final = "honest-host"
ROLE: Final = "honest"
RESOURCES: Final = resources_pb2.Resources(cpus_milli=64_000, mem_milli=64_000_000)
BEAT_S: Final = 1.0
# Time between two tasks, and between two questions of the operator.
PAUSE_S: Final = 0.005
ASK_S: Final = 0.02
# A phase has a percentile only with so many values.
FEWEST: Final = 20
# Time for the last task to end.
LAST_S: Final = 20.0
# From ACCEPT to its verdict, from ACCEPT to the next offer, and of a call of an operator.
LATENCIES: Final = ("verdict", "cycle", "ask")


class Results:
    """Latencies in milliseconds of the present phase, and all that was lost."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Begin a phase."""
        self.latencies: dict[str, list[float]] = {name: [] for name in LATENCIES}

    def took(self, name: str, began: float) -> None:
        """Note that something that began at a time of the monotonic clock has ended."""
        self.latencies[name].append((time.monotonic() - began) * 1e3)

    def summary(self) -> dict[str, list[float]]:
        """Return p50, p99 and the number of each latency."""
        return {name: _percentiles(values) for name, values in self.latencies.items()}


def _percentiles(values: list[float]) -> list[float]:
    if len(values) < FEWEST:
        return []
    ordered = sorted(values)
    found = (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], len(ordered))
    return [round(each, 3) for each in found]


class Peer:
    """One stream. gRPC allows one write at a time.

    Attributes:
        call: the stream.
    """

    def __init__(self, call: Any) -> None:
        self.call = call
        self._writing = asyncio.Lock()

    async def _write(self, request: Message) -> None:
        async with self._writing:
            await self.call.write(request)


class HonestAgent(Peer):
    """An agent whose tasks end at once."""

    def __init__(self, stub: Any, agent_id: str) -> None:
        super().__init__(stub.Connect())
        self._agent_id = agent_id

    async def run(self) -> None:
        """Serve until the stream ends."""
        register = agent_pb2.Register(
            agent_id=self._agent_id,
            hostname=HOSTNAME,
            resources=RESOURCES,
            boot_id="boot",
            http_address="127.0.0.1:9",
        )
        await self._report(agent_pb2.Report(register=register))
        beating = asyncio.create_task(self._beat())
        try:
            while (message := await self.call.read()) is not grpc.aio.EOF:
                await self._obey(message.orders)
        finally:
            beating.cancel()

    async def _obey(self, orders: Iterable[agent_pb2.Order]) -> None:
        statuses = []
        for order in orders:
            if order.HasField("registered"):
                self._agent_id = order.registered.agent_id
            if order.HasField("launch"):
                statuses += self._statuses(order.launch)
        if statuses:
            updates = agent_pb2.StatusUpdates(statuses=statuses)
            await self._report(agent_pb2.Report(updates=updates))

    def _statuses(self, launch: agent_pb2.LaunchTask) -> list[task_pb2.TaskStatus]:
        return [
            task_pb2.TaskStatus(
                framework_id=launch.framework_id,
                task_id=launch.task.task_id,
                agent_id=self._agent_id,
                state=state,
                source=task_pb2.SOURCE_EXECUTOR,
                sequence=sequence,
                exit_code=0 if sequence == 2 else None,
            )
            for sequence, state in ((1, task_pb2.TASK_RUNNING), (2, task_pb2.TASK_FINISHED))
        ]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._report(agent_pb2.Report(heartbeat=framework_pb2.Heartbeat()))

    async def _report(self, report: agent_pb2.Report) -> None:
        await self._write(agent_pb2.AgentServiceConnectRequest(reports=[report]))


class HonestFramework(Peer):
    """A framework that launches a task on the whole agent, and then waits for its next offer."""

    def __init__(self, stub: Any, results: Results) -> None:
        super().__init__(stub.Connect())
        self._results = results
        self._seq = self._answered = 0
        self._called_at: dict[int, float] = {}
        self._accepted_at: float | None = None
        self.launched: set[str] = set()
        self.finished: list[str] = []
        self.is_ending = False

    async def run(self) -> None:
        """Serve until the stream ends."""
        info = framework_pb2.FrameworkInfo(name="honest", roles=[ROLE], failover_timeout_ms=60_000)
        demand = framework_pb2.Demand(unit=RESOURCES, min_per_offer=1)
        demand.constraints.add(
            attribute="hostname", operator=resources_pb2.Constraint.OPERATOR_EQUALS, value=HOSTNAME
        )
        subscribe = framework_pb2.Subscribe(framework=info, client_id="one", demands=[demand])
        await self._send(framework_pb2.Call(subscribe=subscribe))
        beating = asyncio.create_task(self._beat())
        try:
            while (message := await self.call.read()) is not grpc.aio.EOF:
                for event in message.events:
                    await self._on_event(event)
        finally:
            beating.cancel()

    async def _on_event(self, event: framework_pb2.Event) -> None:
        match event.WhichOneof("event"):
            case "offers":
                if self._accepted_at is not None:
                    self._results.took("cycle", self._accepted_at)
                    self._accepted_at = None
                await self._launch(event.offers.offers)
            case "verdict":
                self._on_verdict(event.verdict)
            case "update":
                await self._on_update(event.update)
            case "error":
                self._results.lost.append(f"framework: {event.error.message}")

    async def _launch(self, offers: Any) -> None:
        if self.is_ending:
            return
        await asyncio.sleep(PAUSE_S)
        for offer in offers:
            command = task_pb2.Command(argv=["true"])
            task = task_pb2.TaskInfo(task_id=f"t{self._seq}", command=command, resources=RESOURCES)
            self.launched.add(task.task_id)
            operation = framework_pb2.Operation(launch=framework_pb2.Launch(tasks=[task]))
            accept = framework_pb2.Accept(offer_ids=[offer.offer_id], operations=[operation])
            await self._send(framework_pb2.Call(accept=accept))

    def _on_verdict(self, verdict: framework_pb2.Verdict) -> None:
        self._answered = verdict.seq
        began = self._called_at.pop(verdict.seq, None)
        if began is not None:
            self._results.took("verdict", began)
        texts = [verdict.error.message, *(task.error.message for task in verdict.tasks)]
        if refused := list(filter(None, texts)):
            self._results.lost.append(f"call {verdict.seq} was refused: {refused[0]}")

    async def _on_update(self, update: framework_pb2.Update) -> None:
        acknowledge = framework_pb2.Acknowledge()
        for status in update.statuses:
            acknowledge.updates.add(
                agent_id=status.agent_id, task_id=status.task_id, sequence=status.sequence
            )
            if status.state == task_pb2.TASK_FINISHED:
                self.finished.append(status.task_id)
            elif status.state != task_pb2.TASK_RUNNING:
                self._results.lost.append(f"task {status.task_id} is in state {status.state}")
        await self._send(framework_pb2.Call(acknowledge=acknowledge))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._send(framework_pb2.Call(heartbeat=framework_pb2.Heartbeat()))

    async def _send(self, call: framework_pb2.Call) -> None:
        if not call.HasField("subscribe") and not call.HasField("heartbeat"):
            self._seq += 1
            call.seq = self._seq
        if call.HasField("accept"):
            self._called_at[call.seq] = self._accepted_at = time.monotonic()
        await self._write(
            framework_pb2.FrameworkServiceConnectRequest(calls=[call], verdicts_seen=self._answered)
        )


async def ask(stub: Any, results: Results) -> None:
    """Ask for the master again and again."""
    while True:
        began = time.monotonic()
        try:
            await stub.GetMaster(operator_pb2.GetMasterRequest(), timeout=20)
        except grpc.aio.AioRpcError as error:
            results.lost.append(f"GetMaster: {error.code().name} {error.details()}")
        results.took("ask", began)
        await asyncio.sleep(ASK_S)


async def serve(master: Address, folder: Path | None = None) -> None:
    """Run the peers until standard input ends."""
    results = Results()
    parties = (HONEST_AGENT, "honest", ADMIN)
    securities = (
        None if folder is None else ClientSecurity(token_file=file_of(folder, party))
        for party in parties
    )
    channels = [make_channel(master, security) for security in securities]
    agent = HonestAgent(AgentServiceStub(channels[0]), HONEST_AGENT if folder else "")
    framework = HonestFramework(FrameworkServiceStub(channels[1]), results)
    peers = [
        asyncio.create_task(_noted(agent, "agent", results)),
        asyncio.create_task(_noted(framework, "framework", results)),
        asyncio.create_task(ask(OperatorServiceStub(channels[2]), results)),
    ]
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(results.summary()), flush=True)
        results.begin()
    framework.is_ending = True
    with suppress(AssertionError):
        await eventually(lambda: set(framework.finished) == framework.launched, LAST_S)
    for task_id in sorted(framework.launched - set(framework.finished)):
        results.lost.append(f"task {task_id} has not finished")
    for peer in peers:
        peer.cancel()
    lost = {"lost": results.lost[:100], "tasks": len(framework.finished)}
    print(json.dumps(lost), flush=True)
    for channel in channels:
        await channel.close()


async def _noted(peer: HonestAgent | HonestFramework, name: str, results: Results) -> None:
    """Run a peer, and note the end of its stream as a loss."""
    try:
        await peer.run()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    except Exception as error:
        results.lost.append(f"the {name} failed: {error!r}")
        return
    status = f"{await peer.call.code()} {await peer.call.details()}"
    results.lost.append(f"the stream of the {name} ended: {status}")


if __name__ == "__main__":
    asyncio.run(serve(Address.parse(sys.argv[1]), *map(Path, sys.argv[2:])))
