"""Answered ACCEPTs survive a SIGKILL of the master right after its last answer.

    python -m tests.bench.master_killed [--tasks N] [--accepts N]

One master on SQLite and one agent. A framework runs N tasks, then sends ACCEPTs of one task each
as fast as they are answered. After the last answer the master is killed with SIGKILL and
restarted; the framework has no code for that. Each task appends its start to a ledger. At the end
all tasks are killed, and the answers are compared with the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus
from tests.chaos.real.checker import Violation, check_tasks, unsettled
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.journal import Answered, Asked, Begun, Entry, KillAnswered, KillAsked
from tests.chaos.real.ledger import read_ledger
from tests.chaos.real.work import ENDLESS_S, Work
from tests.chaos.real.workload import entry_of
from tests.harness.eventually import eventually

UNIT = Resources.parse("cpus:1;mem:1MB")
# Tasks of one ACCEPT while the cluster is filled.
AT_ONCE = 25
PATIENCE_S = 120.0


def work_of(task_id: str) -> Work:
    """Return the work of a task that runs until it is killed."""
    return Work(task_id, ENDLESS_S, 0, 0.0)


class Loader(Framework):
    """Launches `tasks` in large calls, then `accepts` in calls of one task each.

    It has no code for failures of the master. `entries` is for the checker.
    """

    def __init__(self, master: str, ledger: Path, tasks: int, accepts: int) -> None:
        super().__init__(name="loader", master=master, demand=UNIT)
        self.ledger, self.tasks, self.accepts = ledger, tasks, accepts
        self.entries: list[Entry] = [Begun(0)]
        self.answered: list[float] = []
        self.offered: list[float] = []
        self.running: set[str] = set()
        self.asked = 0
        self.go_on = False
        self.last_answered = asyncio.Event()

    async def on_offers(self, offers: list[Offer]) -> None:
        self.offered.append(time.monotonic())
        for offer in offers:
            left = self.tasks - self.asked
            if left > 0:
                await self._launch(offer, min(left, AT_ONCE, offer.resources["cpus"] // 1000))
            elif self.go_on and self.asked < self.tasks + self.accepts:
                await self._launch(offer, 1)
                if self.asked == self.tasks + self.accepts:
                    self.last_answered.set()
            else:
                await self.decline(offer, 0.2)

    async def on_update(self, status: TaskStatus) -> None:
        self.entries.append(entry_of(status, handled=True))
        if status.state.name == "RUNNING":
            self.running.add(status.task_id)

    async def _launch(self, offer: Offer, number: int) -> None:
        works = [work_of(f"t-{self.asked + index}") for index in range(number)]
        self.asked += number
        self.entries.append(Asked(tuple(work.task_id for work in works)))
        tasks = [
            Task(work.command(str(self.ledger)), resources=UNIT, task_id=work.task_id)
            for work in works
        ]
        for verdict in await self.accept(offer, tasks, refuse_s=0):
            error = "" if verdict.error is None else str(verdict.error)
            self.entries.append(Answered(verdict.task_id, error, time.time()))
        self.answered.append(time.monotonic())

    async def end_all(self) -> None:
        """Kill every task that has not ended."""
        for task_id in unsettled(self.entries):
            self.entries.append(KillAsked(task_id))
            await self.kill(task_id, grace_s=1)
            self.entries.append(KillAnswered(task_id, ""))


@dataclass(slots=True)
class Outcome:
    """Measurements; times in seconds.

    Attributes:
        in_flight: tasks that ran when the ACCEPTs began.
        last_second: ACCEPTs answered in the second before the kill.
        offering: time from the master's restart to the first offer.
        ran: tasks that started.
        twice: tasks that started more than once.
    """

    in_flight: int = 0
    accepts: int = 0
    accepts_took: float = 0.0
    last_second: int = 0
    offering: float = 0.0
    ran: int = 0
    twice: int = 0
    violations: list[Violation] = field(default_factory=list)


async def measure(folder: Path, tasks: int, accepts: int) -> Outcome:
    """Run the benchmark once."""
    has = f"cpus:{tasks + accepts + 10};mem:64GB;disk:1GB"
    cluster = Cluster(folder, Layout(agents=1, frameworks=0, has=has, is_preloaded=False), seed=0)
    outcome = Outcome()
    running: asyncio.Task[None] | None = None
    try:
        await cluster.start()
        loader = Loader(cluster.fronts(), folder / "ran", tasks, accepts)
        running = asyncio.create_task(loader.run())
        await eventually(lambda: len(loader.running) == tasks, PATIENCE_S, "all tasks run")
        outcome.in_flight = len(loader.running)
        await _kill_and_start(cluster, loader, outcome)
        total = tasks + accepts
        await eventually(lambda: len(loader.running) == total, PATIENCE_S, "all are running")
        await loader.end_all()
        await eventually(lambda: not unsettled(loader.entries), PATIENCE_S, "all have ended")
        ran = read_ledger(folder / "ran")
        outcome.ran = len(ran.starts)
        outcome.twice = sum(len(pids) > 1 for pids in ran.starts.values())
        outcome.violations = check_tasks(work_of, {"loader": loader.entries}, ran)
        await loader.stop(teardown=True)
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await cluster.stop()
    return outcome


async def _kill_and_start(cluster: Cluster, loader: Loader, outcome: Outcome) -> None:
    """Kill the master after the last answer, restart it and wait for offers."""
    begun = time.monotonic()
    loader.go_on = True
    await asyncio.wait_for(loader.last_answered.wait(), PATIENCE_S)
    (master,) = cluster.masters.values()
    master.kill()
    killed = time.monotonic()
    outcome.accepts = loader.accepts
    outcome.accepts_took = loader.answered[-1] - begun
    outcome.last_second = sum(killed - 1 <= at <= killed for at in loader.answered)
    master.start()
    started = time.monotonic()
    await eventually(lambda: loader.offered[-1] > started, PATIENCE_S, "an offer")
    outcome.offering = loader.offered[-1] - started


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.master_killed")
    parser.add_argument("--tasks", type=int, default=1000, help="under way when it begins")
    parser.add_argument("--accepts", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(measure(Path(folder) / "c", options.tasks, options.accepts))
    print(
        f"{outcome.in_flight} tasks under way; {outcome.accepts} ACCEPTs answered in "
        f"{outcome.accepts_took:.2f} s, {outcome.last_second} of them in the last second; "
        f"first offer {outcome.offering:.2f} s after the start of the next master; "
        f"{outcome.ran} tasks ran, {outcome.twice} of them twice; "
        f"{len(outcome.violations)} violations"
    )
    for violation in outcome.violations:
        print(f"    {violation}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
