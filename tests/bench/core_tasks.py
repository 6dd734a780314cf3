"""CPU time of the master's core for each task, by offers and submitted, with and without misfits.

    python -m tests.bench.core_tasks [AGENTS [WAITING [BATCH]]]

The core alone: no messages are written or read, and nothing is stored. Each task is offered and
accepted, or submitted; then it runs, ends, and is acknowledged. As under load, an allocation pass
follows each batch of events. `waiting` frameworks are connected whose demand fits no agent. One
JSON object a line: microseconds for each task, medians of five, and their ratio.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import islice

from croupier.master.core import calls
from croupier.master.core.effects import Effect, Send, SessionId
from croupier.master.core.events import AgentReported, AllocationDue, FrameworkCalled
from croupier.master.core.messages import Offered
from croupier.master.core.step import Event, step
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import AgentId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.world import World

UNIT = Resources.parse("cpus:1;mem:64MB")
ROUNDS = 5
TASKS = 3_000


class Core(World):
    """A core without checks; launched tasks end at once, in batches."""

    def __init__(self, agents: int, waiting: int) -> None:
        super().__init__()
        self.offered: list[Offered] = []
        self.running: list[tuple[AgentId, LaunchTask]] = []
        self.hosts: dict[SessionId, AgentId] = {}
        for _ in range(agents):
            session = self.agent("cpus:2;mem:64GB;disk:100GB", allocate=False)
            self.hosts[session] = self.agent_id(session)
        self.agent_sessions = {agent_id: session for session, agent_id in self.hosts.items()}
        for _ in range(waiting):
            self.framework(demand="cpus:64", count=1, allocate=False)
        self.number = self.seq = self.ended = 0

    def _step(self, event: Event) -> list[Effect]:
        effects = step(self.state, event, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                if isinstance(message, Offered):
                    self.offered.append(message)
                elif isinstance(message, LaunchTask):
                    self.running.append((self.hosts[effect.session], message))
        return effects

    def ask(self, call: calls.Call) -> None:
        self.seq += 1
        self._step(FrameworkCalled(self.session, self.seq, call))

    def tasks(self, number: int) -> tuple[TaskInfo, ...]:
        self.number += number
        names = range(self.number - number, self.number)
        return tuple(TaskInfo(TaskId(f"t{n}"), Command(shell="true"), UNIT) for n in names)

    def end_tasks(self, batch: int) -> None:
        """End some running tasks, and acknowledge them."""
        ending, self.running = self.running[:batch], self.running[batch:]
        for agent_id, launch in ending:
            self.now += 0.001
            place = (launch.framework_id, launch.task.task_id, agent_id)
            statuses = [
                TaskStatus(*place, state, Source.EXECUTOR, Reason.NONE, sequence=sequence)
                for sequence, state in ((1, TaskState.RUNNING), (2, TaskState.FINISHED))
            ]
            self._step(AgentReported(self.agent_sessions[agent_id], tuple(statuses)))
            self.ask(calls.Acknowledge(((agent_id, launch.task.task_id, 2),)))
        self.ended += len(ending)

    def run_by_offers(self, batch: int) -> None:
        self.session = self.framework(demand="cpus:1;mem:64MB", allocate=False)
        while self.ended < TASKS:
            while self.state.allocator.has_dirty_agents:
                self._step(AllocationDue())
            for offered in islice(self.offered, batch):
                number = int(offered.resources["cpus"] // 1000)
                self.ask(calls.Accept((offered.offer_id,), self.tasks(number)))
            del self.offered[:batch]
            self.end_tasks(batch)

    def run_submitted(self, batch: int) -> None:
        self.session = self.framework(suppressed=True, allocate=False)
        self.ask(calls.Submit(self.tasks(1_000)))
        while self.ended < TASKS:
            while self.state.allocator.has_dirty_agents:
                self._step(AllocationDue())
            if self.number - self.ended < 1_000:
                self.ask(calls.Submit(self.tasks(100)))
            self.end_tasks(batch)


def main() -> int:
    agents, waiting, batch = [*map(int, sys.argv[1:]), 1_000, 1_000, 20][:3]
    for case in (Core.run_by_offers, Core.run_submitted):
        times: dict[int, list[float]] = {waiting: [], 0: []}
        for _ in range(ROUNDS):
            for number, found in times.items():
                found.append(measured(case, agents, number, batch))
        with_them, alone = (statistics.median(times[number]) for number in (waiting, 0))
        line = {
            "case": case.__name__.removeprefix("run_"),
            "agents": agents,
            "frameworks": waiting,
            "waiting_us": round(with_them, 1),
            "alone_us": round(alone, 1),
            "ratio": round(with_them / alone, 3),
        }
        print(json.dumps(line), flush=True)
    return 0


def measured(case: Callable[[Core, int], None], agents: int, waiting: int, batch: int) -> float:
    core = Core(agents, waiting)
    while core.state.allocator.has_dirty_agents:
        core.state.allocator.run(0.0)
    gc.collect()
    began = time.process_time()
    case(core, batch)
    return (time.process_time() - began) / core.ended * 1e6


if __name__ == "__main__":
    sys.exit(main())
