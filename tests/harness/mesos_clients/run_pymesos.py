"""A framework with `pymesos`, of command tasks: ADDRESS TOTAL JOURNAL [SECRET]."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from pymesos import MesosSchedulerDriver, Scheduler

from tests.harness.mesos_clients.work import Work


class CommandScheduler(Scheduler):  # type: ignore[misc]
    """Launches the tasks of `work`."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def registered(self, _driver: Any, framework_id: Any, _master: Any) -> None:
        self.work.note("subscribed", framework=framework_id["value"])

    def reregistered(self, driver: Any, _master: Any) -> None:
        self.work.note("subscribed", framework=driver.framework_id)
        driver.reconcileTasks([])

    def resourceOffers(self, driver: Any, offers: list[Any]) -> None:  # noqa: N802
        self.work.note("offers", number=len(offers))
        for offer in offers:
            tasks = [] if self.work.is_done else self.work.next_tasks(offer["agent_id"])
            if tasks:
                driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0.1})
            else:
                driver.declineOffer(offer["id"], {"refuse_seconds": 0.5})
        if self.work.is_done:
            self.work.note("done")
            driver.stop()

    def statusUpdate(self, driver: Any, status: Any) -> None:  # noqa: N802
        task_id = status["task_id"]
        if self.work.update(task_id["value"], status["state"], status.get("message", "")):
            driver.killTask(task_id)

    def error(self, _driver: Any, message: str) -> None:
        self.work.note("error", message=message)


def main() -> None:
    address, total, journal, *rest = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG)
    framework = {"user": "nobody", "name": "pymesos", "hostname": "here", "failover_timeout": 120}
    principal, secret = ("alice", rest[0]) if rest else (None, None)
    driver = MesosSchedulerDriver(
        CommandScheduler(Work(int(total), Path(journal))),
        framework,
        address,
        principal=principal,
        secret=secret,
    )
    driver.run()


if __name__ == "__main__":
    main()
