"""Tasks a second that one master carries, with agents and a framework that cost little.

    python -m tests.bench.raw_agents [--agents N] [--tasks N] [--waiting N]

The agents are connections from one other process (`tests.harness.light_agents`) that report each
task as RUNNING and FINISHED at once. The framework is a bare stream: it keeps `--waiting` tasks
submitted, in calls of 100, and acknowledges each end. The store is SQLite. All of them share the
machine, so the tasks for each second of the master's CPU say more than the rate: it is what a
master carries that has a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from croupier.net.outbox import Outbox
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import resources_pb2, task_pb2
from croupier.v1.framework_pb2_grpc import FrameworkServiceStub
from tests.bench.reregister import Bench, _cpu_s

SUBMIT = 100
UNIT = resources_pb2.Resources(cpus_milli=1000, mem_milli=1_000_000)


class Submitter:
    """A framework that submits tasks and acknowledges their ends.

    Attributes:
        ended: tasks that have finished.
        done: set when all have.
    """

    def __init__(self, tasks: int, waiting: int) -> None:
        self.ended, self.done = 0, asyncio.Event()
        self._tasks, self._waiting = tasks, waiting
        self._submitted = self._seq = 0
        self._outbox: Outbox[pb.Call] = Outbox(100_000)

    async def run(self, stub: FrameworkServiceStub) -> None:
        info = pb.FrameworkInfo(name="raw", roles=["raw"], failover_timeout_ms=600_000)
        subscribe = pb.Subscribe(framework=info, client_id="raw", suppressed=True)
        self._outbox.put(pb.Call(subscribe=subscribe))
        self._submit()
        async for message in stub.Connect(self._requests()):
            ends = [
                status
                for event in message.events
                for status in event.update.statuses
                if status.state == task_pb2.TASK_FINISHED
            ]
            if ends:
                self._acknowledge(ends)

    def _acknowledge(self, ends: list[task_pb2.TaskStatus]) -> None:
        self.ended += len(ends)
        updates = [
            pb.Acknowledge.Update(agent_id=end.agent_id, task_id=end.task_id, sequence=end.sequence)
            for end in ends
        ]
        self._call(pb.Call(acknowledge=pb.Acknowledge(updates=updates)))
        self._submit()
        if self.ended >= self._tasks:
            self.done.set()

    def _submit(self) -> None:
        while self._submitted - self.ended <= self._waiting - SUBMIT:
            names = range(self._submitted, self._submitted + SUBMIT)
            tasks = [
                task_pb2.TaskInfo(
                    task_id=f"t{name}", command=task_pb2.Command(argv=["true"]), resources=UNIT
                )
                for name in names
            ]
            self._submitted += SUBMIT
            self._call(pb.Call(submit=pb.Submit(tasks=tasks)))

    def _call(self, call: pb.Call) -> None:
        self._seq += 1
        call.seq = self._seq
        self._outbox.put(call)

    async def _requests(self) -> AsyncIterator[pb.FrameworkServiceConnectRequest]:
        while batch := await self._outbox.take():
            yield pb.FrameworkServiceConnectRequest(
                calls=batch, verdicts_seen=max(self._seq - 1000, 0)
            )


class RawAgents(Bench):
    """A cluster whose tasks end at once."""

    ends = ("--ends",)

    def __init__(self, folder: Path, agents: int, tasks: int, waiting: int) -> None:
        super().__init__(folder, agents, 0)
        self._wanted, self._waiting = tasks, waiting

    async def _restarted(self, running: asyncio.Task[None] | None) -> None:
        submitter = Submitter(self._wanted, self._waiting)
        before_s, others_s = _cpu_s(self.master.pid), self._cpu_of_others_s()
        began = time.monotonic()
        running = asyncio.create_task(submitter.run(FrameworkServiceStub(self._channel)))
        done = asyncio.create_task(submitter.done.wait())
        await asyncio.wait((running, done), return_when=asyncio.FIRST_COMPLETED)
        assert submitter.done.is_set(), running.result()
        seconds, ended = time.monotonic() - began, submitter.ended
        used_s, others_s = _cpu_s(self.master.pid) - before_s, self._cpu_of_others_s() - others_s
        running.cancel()
        print(
            f"{ended} tasks on {self.agents} agents: {ended / seconds:.0f} tasks/s; the master used"
            f" {used_s / ended * 1e3:.3f} ms of CPU for each, so {ended / used_s:.0f} tasks for"
            f" each second of CPU; agents and framework {others_s / ended * 1e3:.3f} ms"
        )
        print(f"late turns of its loop, by at most (s): {self._lags()}")


async def bench(folder: Path, agents: int, tasks: int, waiting: int) -> None:
    await RawAgents(folder, agents, tasks, waiting).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.raw_agents")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(bench(Path(folder), options.agents, options.tasks, options.waiting))
    return 0


if __name__ == "__main__":
    sys.exit(main())
