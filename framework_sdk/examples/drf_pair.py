"""A framework with unlimited demand: run two with different units to see them share.

    python drf_pair.py --name A --unit "cpus:1;mem:4GB" &
    python drf_pair.py --name B --unit "cpus:3;mem:1GB" &

On a cluster of 9 cpus and 18 GB, dominant resource fairness gives A three tasks and B two.
"""

from __future__ import annotations

import argparse
import time

from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus

REPORT_EVERY_S = 5.0


class Sleepers(Framework):
    """Keeps launching tasks that sleep."""

    def __init__(
        self, name: str, role: str, master: str | None, unit: Resources, task_seconds: float
    ) -> None:
        """Demand `unit`, without a count."""
        super().__init__(name=name, role=role, master=master, demand=unit, failover_timeout_s=30.0)
        self._unit, self._task_seconds = unit, task_seconds
        self._live: set[str] = set()
        self._ended = 0
        self._reported_at = 0.0

    async def on_offers(self, offers: list[Offer]) -> None:
        """Fill every offer with as many units as it holds."""
        for offer in offers:
            units = self._unit.units_within(offer.resources, 1000)
            tasks = [self._task(offer, index) for index in range(units)]
            self._live |= {task.task_id for task in tasks}
            for verdict in await self.accept(offer, tasks, refuse_s=1.0):
                if not verdict.ok:
                    self._live.discard(verdict.task_id)
        self._report()

    async def on_update(self, status: TaskStatus) -> None:
        """Count the tasks that ended."""
        if status.state.is_terminal and status.task_id in self._live:
            self._live.discard(status.task_id)
            self._ended += 1
            if status.state is not TaskState.FINISHED:
                print(
                    f"{self.name}: {status.task_id} {status.state.name} {status.message}",
                    flush=True,
                )
        self._report()

    def _task(self, offer: Offer, index: int) -> Task:
        """Return a task with the resources of one unit, such as two ports for `ports:2`."""
        room = offer.resources
        if index:
            room -= self._unit.carve(room, index)
        taken = self._unit.carve(room, 1)
        return Task(["sleep", f"{self._task_seconds:g}"], resources=taken, name=self.name)

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            print(f"{self.name}: {len(self._live)} running, {self._ended} ended", flush=True)


def main() -> None:
    """Run until a signal, which also ends the tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="A")
    parser.add_argument("--unit", type=Resources.parse, default=Resources.parse("cpus:1;mem:4GB"))
    parser.add_argument("--task-seconds", type=float, default=10.0)
    parser.add_argument("--role", default="*")
    parser.add_argument("--master", help="HOST:PORT (default: CROUPIER_MASTER, or 127.0.0.1:5050)")
    args = parser.parse_args()
    framework = Sleepers(args.name, args.role, args.master, args.unit, args.task_seconds)
    framework.run_forever(teardown=True)


if __name__ == "__main__":
    main()
