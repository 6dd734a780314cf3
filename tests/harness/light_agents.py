"""A program for benchmarks: many agents in one process, which run no tasks.

    python -m tests.harness.light_agents MASTER FIRST COUNT [--ends]

Each has its own connection (`light_stream`), reports every launched task as running, and with
`--ends` as finished at once. It lists its tasks when it re-registers, and backs off as a real agent
does. Each registration is appended to the file `registered` of the working directory, with its
time. SIGTERM ends the program, which prints how many attempts to register ended, by reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from struct import Struct

from croupier.agent.link import TIMES
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from tests.harness.light_stream import LightStream, body, connect, opening

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
