"""Answered SUBMITs survive a SIGKILL of the master right after its last answer.

    python -m tests.bench.submissions_killed [--tasks N]

One master on SQLite and one agent. A framework submits N short tasks. After the last answer the
master is killed with SIGKILL and restarted; the framework has no code for that. Each task appends
its start to a ledger. At the end, the answers and updates are compared with the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from croupier.sdk import Framework, Resources, Task, TaskStatus
from tests.chaos.real.checker import Violation, check_tasks, unsettled
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.journal import Answered, Asked, Begun, Entry
from tests.chaos.real.ledger import read_ledger
from tests.chaos.real.work import Work
from tests.chaos.real.workload import entry_of
from tests.harness.eventually import eventually

UNIT = Resources.parse("cpus:1;mem:1MB;disk:32MB")
SLOTS = 16
PATIENCE_S = 150.0


def work_of(task_id: str) -> Work:
    """Return the work of a task that ends at once."""
    return Work(task_id, 0.0, 0)


class Submitter(Framework):
    """Submits tasks; `entries` is for the checker."""

    def __init__(self, master: str, ledger: Path) -> None:
        super().__init__(name="submitter", master=master)
        self.ledger = ledger
        self.entries: list[Entry] = [Begun(0)]
        self.up = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.up.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.entries.append(entry_of(status, handled=True))

    async def hand_over(self, number: int) -> None:
        """Submit `number` tasks, and note the answers."""
        works = [work_of(f"t-{n}") for n in range(number)]
        self.entries.append(Asked(tuple(work.task_id for work in works)))
        tasks = [
            Task(work.command(str(self.ledger)), resources=UNIT, task_id=work.task_id)
            for work in works
        ]
        for verdict in await self.submit(tasks):
            error = "" if verdict.error is None else str(verdict.error)
            self.entries.append(Answered(verdict.task_id, error, time.time()))


@dataclass(slots=True)
class Outcome:
    """Measurements; times in seconds.

    Attributes:
        before: tasks that had started when the master was killed.
        ended: from the restart of the master until the last task had ended.
        ran: tasks that started.
        twice: tasks that started more than once.
    """

    before: int = 0
    ended: float = 0.0
    ran: int = 0
    twice: int = 0
    violations: list[Violation] = field(default_factory=list)


async def measure(folder: Path, tasks: int) -> Outcome:
    """Run the benchmark once."""
    cluster = Cluster(
        folder, Layout(agents=1, frameworks=0, has=f"cpus:{SLOTS};mem:64GB;disk:64GB"), seed=0
    )
    outcome, ledger = Outcome(), folder / "ran"
    running: asyncio.Task[None] | None = None
    try:
        await cluster.start()
        submitter = Submitter(cluster.fronts(), ledger)
        running = asyncio.create_task(submitter.run())
        await asyncio.wait_for(submitter.up.wait(), PATIENCE_S)
        await submitter.hand_over(tasks)
        (master,) = cluster.masters.values()
        master.kill()
        outcome.before = len(read_ledger(ledger).starts) if ledger.exists() else 0
        master.start()
        started = time.monotonic()
        await eventually(lambda: not unsettled(submitter.entries), PATIENCE_S, "all have ended")
        outcome.ended = time.monotonic() - started
        ran = read_ledger(ledger)
        outcome.ran = len(ran.starts)
        outcome.twice = sum(len(pids) > 1 for pids in ran.starts.values())
        outcome.violations = check_tasks(work_of, {"submitter": submitter.entries}, ran)
        await submitter.stop(teardown=True)
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await cluster.stop()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.submissions_killed")
    parser.add_argument("--tasks", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(measure(Path(folder) / "c", options.tasks))
    print(
        f"{options.tasks} tasks submitted; {outcome.before} had started when the master was killed;"
        f" the last ended {outcome.ended:.2f} s after the start of the next master;"
        f" {outcome.ran} tasks ran, {outcome.twice} of them twice;"
        f" {len(outcome.violations)} violations"
    )
    for violation in outcome.violations:
        print(f"    {violation}")
    return 1 if outcome.violations or outcome.twice or outcome.ran != options.tasks else 0


if __name__ == "__main__":
    sys.exit(main())
