"""Time from the end of a task to the offer of its resources: p50 and p99 in milliseconds.

    python tests/bench/reoffer.py [ROUNDS]

A real master, agent and framework run on loopback, each in its own process. The framework launches
a task that exits at once, and notes when its resources are offered again. The end is the time at
which the agent saw the process end, to the millisecond, by the clock that they share. The floor,
printed beside it, is the time of one bare unary call.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

import grpc

from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from croupier.v1 import operator_pb2
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

UNIT = Resources.parse("cpus:1;mem:64MB")


class Timer(Framework):
    """Launches one task at a time on the whole agent and records the times between."""

    def __init__(self, master: str, rounds: int) -> None:
        super().__init__(name="timer", master=master)
        self.rounds = rounds
        self.ended_ms = 0
        self.waits: list[float] = []

    async def on_offers(self, offers: list[Offer]) -> None:
        whole = [offer for offer in offers if offer.resources >= UNIT]
        if self.ended_ms:
            self.waits.append(time.time() - self.ended_ms / 1000)
            self.ended_ms = 0
        if len(self.waits) >= self.rounds:
            await self.stop(teardown=True)
            return
        task = Task(command=["/bin/true"], resources=whole[0].resources)
        await self.accept(whole, [task], refuse_s=0)

    async def on_update(self, status: TaskStatus) -> None:
        if status.state is TaskState.FINISHED:
            self.ended_ms = status.time_ms


async def floor(master: str, rounds: int) -> list[float]:
    """Return the times of unary calls."""
    channel = make_channel(Address.parse(master))
    stub = OperatorServiceStub(channel)
    waits = []
    for _ in range(rounds):
        began = time.perf_counter()
        await stub.ListOffers(operator_pb2.ListOffersRequest())
        waits.append(time.perf_counter() - began)
    await channel.close()
    return waits


def summary(name: str, waits: list[float]) -> str:
    ordered = sorted(wait * 1e3 for wait in waits)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"{name:<28} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   max {ordered[-1]:6.2f} ms"


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with ExitStack() as stack:
        work_dir = stack.enter_context(tempfile.TemporaryDirectory())
        listen, http = map(str, free_addresses(2))
        for command in (
            ["croupier.master", "--listen", listen, "--http", http, "--store",
             "memory", "--log-level", "warning"],
            ["croupier.agent", "--master", listen, "--http", "127.0.0.1:0", "--work-dir", work_dir,
             "--resources", "cpus:1;mem:64MB;disk:1GB", "--log-level", "warning"],
        ):  # fmt: skip
            process = subprocess.Popen([sys.executable, "-m", *command])
            stack.callback(process.wait)
            stack.callback(process.terminate)
        grpc.channel_ready_future(grpc.insecure_channel(listen)).result(timeout=20)
        timer = Timer(listen, rounds)
        asyncio.run(timer.run())
        print(summary("task end to its new offer", timer.waits))
        print(summary("floor: one unary call", asyncio.run(floor(listen, rounds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
