"""A framework with `pymesos` whose tasks run in an executor: ADDRESS TOTAL JOURNAL."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from pymesos import MesosSchedulerDriver, Scheduler, decode_data, encode_data

from tests.harness.mesos_clients.work import LOST, PATIENCE_S, Work

EXECUTOR = {"value": "backwards"}


class ExecutorScheduler(Scheduler):  # type: ignore[misc]
    """Launches one task at a time in the executor of an agent."""

    def __init__(self, total: int, work: Work) -> None:
        self.total, self.work = total, work
        self.framework_id: Any = None
        self.launched = 0
        self.finished: set[str] = set()
        self.out: tuple[str, float] | None = None
        self.answered = False

    def registered(self, _driver: Any, framework_id: Any, _master: Any) -> None:
        self.framework_id = framework_id
        self.work.note("subscribed", framework=framework_id["value"])

    def reregistered(self, driver: Any, _master: Any) -> None:
        self.work.note("subscribed", framework=driver.framework_id)
        driver.reconcileTasks([])

    @property
    def is_done(self) -> bool:
        """Whether all tasks have finished, and a message was answered."""
        return len(self.finished) >= self.total and self.answered

    def resourceOffers(self, driver: Any, offers: list[Any]) -> None:  # noqa: N802
        for offer in offers:
            is_free = self.out is None or time.monotonic() - self.out[1] > PATIENCE_S
            if is_free and not self.is_done:
                self.launched += 1
                task_id = f"in-executor-{self.launched}"
                self.out = (task_id, time.monotonic())
                driver.launchTasks(
                    offer["id"], [self.task(task_id, offer)], {"refuse_seconds": 0.1}
                )
            else:
                driver.declineOffer(offer["id"], {"refuse_seconds": 0.5})
        if self.is_done:
            self.work.note("done")
            driver.stop()

    def task(self, task_id: str, offer: Any) -> dict[str, Any]:
        """Return a task in the executor."""
        variables = [{"name": "PYTHONPATH", "value": os.environ["PYTHONPATH"]}]
        module = "tests.harness.mesos_clients.pymesos_executor"
        return {
            "task_id": {"value": task_id},
            "name": task_id,
            "agent_id": offer["agent_id"],
            "data": encode_data(task_id.encode()),
            "resources": [
                {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
                {"name": "mem", "type": "SCALAR", "scalar": {"value": 32}},
            ],
            "executor": {
                "executor_id": EXECUTOR,
                "framework_id": self.framework_id,
                "command": {
                    "value": f"{sys.executable} -W ignore -m {module}",
                    "environment": {"variables": variables},
                },
                "resources": [
                    {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
                    {"name": "mem", "type": "SCALAR", "scalar": {"value": 64}},
                ],
            },
        }

    def statusUpdate(self, driver: Any, status: Any) -> None:  # noqa: N802
        task_id, state = status["task_id"]["value"], status["state"]
        self.work.note("update", task=task_id, state=state, message=status.get("message", ""))
        if state == "TASK_RUNNING":
            data = encode_data(task_id.encode())
            driver.sendFrameworkMessage(EXECUTOR, status["agent_id"], data)
        if state == "TASK_FINISHED":
            if "data" in status:
                assert decode_data(status["data"]) == task_id[::-1].encode()
            self.finished.add(task_id)
        if state in (*LOST, "TASK_FINISHED") and self.out and self.out[0] == task_id:
            self.out = None

    def frameworkMessage(  # noqa: N802
        self, _driver: Any, executor_id: Any, _agent_id: Any, message: Any
    ) -> None:
        assert executor_id == EXECUTOR
        text = decode_data(message).decode()
        self.work.note("message", text=text)
        self.answered |= text.startswith("pong in-executor-")

    def executorLost(  # noqa: N802
        self, _driver: Any, executor_id: Any, _agent_id: Any, status: int
    ) -> None:
        self.work.note("executor_lost", executor=executor_id["value"], status=status)

    def error(self, _driver: Any, message: str) -> None:
        self.work.note("error", message=message)


def main() -> None:
    address, total, journal = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG)
    framework = {
        "user": "nobody",
        "name": "executors",
        "hostname": "here",
        "failover_timeout": 120,
        "checkpoint": True,
    }
    scheduler = ExecutorScheduler(int(total), Work(0, Path(journal)))
    MesosSchedulerDriver(scheduler, framework, address).run()


if __name__ == "__main__":
    main()
