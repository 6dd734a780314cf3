"""A program for benchmarks: many agents in one process, which run no tasks.

    python -m tests.harness.light_agents MASTER FIRST COUNT

Each has its own connection, reports every launched task as running, lists its tasks when it
re-registers, and backs off as a real agent does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator

import grpc.aio

from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.outbox import Outbox
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub

# How attempts to register ended.
ENDED: Counter[str] = Counter()
CPUS, MEM_MIB = 16, 65_536
# The timeouts of a real agent.
JOIN_S = 20.0
FIRST_S, CAP_S = 0.2, 10.0


class LightAgent:
    """An agent that runs no tasks."""

    def __init__(self, master: Address, number: int) -> None:
        self._master, self._name = master, f"light{number}"
        self._backoff = Backoff(FIRST_S, CAP_S, random.Random(number))
        self._tasks: dict[tuple[str, str], pb.AgentTask] = {}
        self._outbox: Outbox[pb.Report] = Outbox(10_000)
        self._agent_id = f"{self._name}-id"
        self._epoch = 0

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            channel = make_channel(self._master)
            self._outbox = Outbox(10_000)
            self._outbox.put(pb.Report(register=self._register()))
            call = AgentServiceStub(channel).Connect(_requests(self._outbox))
            beating: asyncio.Task[None] | None = None
            try:
                async with asyncio.timeout(JOIN_S) as limit:
                    async for message in call:
                        self._epoch = max(self._epoch, message.master_epoch)
                        for order in message.orders:
                            if order.HasField("registered"):
                                beat_s = order.registered.heartbeat_ms / 1000
                                self._agent_id = order.registered.agent_id
                                self._backoff.reset()
                                limit.reschedule(None)
                                beating = asyncio.create_task(self._beat(beat_s))
                            else:
                                self._obey(order)
            except TimeoutError:
                ENDED["TIMEOUT: not registered in time"] += 1
            except grpc.aio.AioRpcError as error:
                ENDED[f"{error.code().name}: {(error.details() or '')[:80]}"] += 1
            finally:
                if beating is not None:
                    beating.cancel()
                self._outbox.close()
                call.cancel()
                await channel.close()
            await asyncio.sleep(self._backoff.next_s())

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

    async def _beat(self, interval_s: float) -> None:
        while True:
            self._outbox.put(pb.Report(heartbeat=framework_pb2.Heartbeat()))
            await asyncio.sleep(interval_s)

    def _obey(self, order: pb.Order) -> None:
        match order.WhichOneof("order"):
            case "launch":
                self._launch(order.launch)
            case "acknowledge":
                ack = order.acknowledge
                task = self._tasks.get((ack.framework_id, ack.task_id))
                if task is not None:
                    task.ClearField("unacknowledged")

    def _launch(self, launch: pb.LaunchTask) -> None:
        key = launch.framework_id, launch.task.task_id
        if key in self._tasks:
            return
        status = task_pb2.TaskStatus(
            framework_id=launch.framework_id, task_id=launch.task.task_id, sequence=1,
            agent_id=self._agent_id, state=task_pb2.TASK_RUNNING, source=task_pb2.SOURCE_AGENT,
        )  # fmt: skip
        self._tasks[key] = pb.AgentTask(
            framework_id=launch.framework_id, task=launch.task, role=launch.role,
            latest=status, unacknowledged=[status], proof=launch.proof,
        )  # fmt: skip
        self._outbox.put(pb.Report(updates=pb.StatusUpdates(statuses=[status])))


async def _requests(outbox: Outbox[pb.Report]) -> AsyncIterator[pb.AgentServiceConnectRequest]:
    while batch := await outbox.take():
        yield pb.AgentServiceConnectRequest(reports=batch)


def _stop() -> None:
    """Print how attempts ended, and end."""
    print(json.dumps(ENDED), flush=True)
    os._exit(0)


async def main(master: str, first: int, count: int) -> None:
    agents = [LightAgent(Address.parse(master), first + number) for number in range(count)]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop)
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run())
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
