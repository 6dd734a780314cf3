"""A pool of workers: one executor on each agent runs many small jobs, without a process for each.

    worker_pool.py [JOBS]        add up the squares of the first JOBS numbers, 100 by default

The framework accepts offers, launches an executor on each agent, and jobs in it. A job is a task
with a number in its `data`; the executor answers with the square in the `data` of its last update.
It tells of its progress by messages, which may be lost. If three workers end before any job does,
the framework gives up. CROUPIER_MASTER names the master.
"""

from __future__ import annotations

import sys

from croupier.sdk import (
    ExecutorSpec,
    Framework,
    Message,
    Offer,
    Resources,
    Task,
    TaskState,
    TaskStatus,
)
from croupier.sdk.executor import Executor, LaunchedTask

WORKER = Resources.parse("cpus:0.1;mem:64MB")
JOB = Resources.parse("cpus:0.1;mem:32MB")
MOST_FAILURES = 3


class Worker(Executor):
    """The executor: it squares numbers."""

    done = 0

    async def on_launch(self, task: LaunchedTask) -> None:
        """Do one job."""
        await self.update(task.task_id, TaskState.RUNNING)
        square = int(task.data) ** 2
        await self.update(task.task_id, TaskState.FINISHED, data=str(square).encode())
        self.done += 1
        await self.send(f"{self.done} jobs done".encode())


class Pool(Framework):
    """The framework: it hands numbers to workers, and adds up what they return."""

    def __init__(self, jobs: int) -> None:
        """Square the numbers from 1 to `jobs`."""
        super().__init__(name="worker-pool", demand=WORKER + JOB)
        self.waiting = {f"job-{number}": number for number in range(1, jobs + 1)}
        self.running: dict[str, int] = {}
        self.workers: dict[str, str] = {}
        self.total = self.failures = self.retries = 0
        self.failed: str | None = None

    async def on_offers(self, offers: list[Offer]) -> None:
        """Launch a worker on each new agent, and as many jobs as fit."""
        for offer in offers:
            tasks: list[Task] = []
            room = offer.resources
            worker = self.workers.get(offer.agent_id)
            if worker is None:
                command = [sys.executable, __file__, "--worker"]
                started = Task(command, resources=WORKER, executor=ExecutorSpec(), name="worker")
                worker = self.workers[offer.agent_id] = started.task_id
                tasks.append(started)
                room = room - WORKER
            for job in list(self.waiting):
                if not room >= JOB:
                    break
                room = room - JOB
                number = self.running[job] = self.waiting.pop(job)
                data = str(number).encode()
                task = Task(task_id=job, executor_id=worker, data=data, resources=JOB)
                tasks.append(task)
            for verdict in await self.accept(offer, tasks):
                if verdict.error is not None:
                    self._ended(verdict.task_id)
        if not self.waiting:
            await self.suppress()

    async def on_update(self, status: TaskStatus) -> None:
        """Add up a result; do a job again that was lost."""
        if not status.state.is_terminal:
            return
        if status.state is not TaskState.FINISHED:
            self.failures += status.task_id in self.workers.values()
            self._ended(status.task_id)
            if self.failures >= MOST_FAILURES:
                why = status.message or status.state.name
                self.failed = f"{MOST_FAILURES} workers in a row ended before a job: {why}"
                await self.stop(teardown=True)
                return
            await self.revive()
        elif self.running.pop(status.task_id, None) is not None:
            self.total += int(status.data)
            self.failures = 0
        if not self.waiting and not self.running:
            print(f"the sum of the squares is {self.total}", flush=True)
            await self.stop(teardown=True)

    async def on_message(self, message: Message) -> None:
        """Show the progress of a worker."""
        print(f"{message.executor_id}: {message.data.decode()}", file=sys.stderr)

    def _ended(self, task_id: str) -> None:
        """Forget a worker, or put a job back."""
        self.workers = {agent: each for agent, each in self.workers.items() if each != task_id}
        number = self.running.pop(task_id, None)
        if number is not None:
            # An id is never used again.
            self.retries += 1
            self.waiting[f"job-{number}-retry-{self.retries}"] = number


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        Worker().run_forever()
    else:
        pool = Pool(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
        pool.run_forever(teardown=True)
        if pool.failed is not None:
            sys.exit(f"worker pool: {pool.failed}")
