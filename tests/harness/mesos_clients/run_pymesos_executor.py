"""An executor with `pymesos`, unmodified: it does what the data of each task say."""

from __future__ import annotations

import sys
import time
from base64 import b64decode, b64encode
from pathlib import Path
from threading import Event, Thread
from typing import Any

from pymesos import Executor, MesosExecutorDriver


class DataExecutor(Executor):  # type: ignore[misc]
    """Tasks are `echo TEXT`, `wait PATH` or `sleep`."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.killed: dict[str, Event] = {}

    def note(self, text: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{text}\n")

    def registered(self, _driver: Any, executor_info: Any, _framework: Any, _agent: Any) -> None:
        self.note(f"registered {executor_info['executor_id']['value']}")

    def reregistered(self, _driver: Any, _agent: Any) -> None:
        self.note("reregistered")

    def launchTask(self, driver: Any, task: Any) -> None:  # noqa: N802
        self.note(f"launched {task['task_id']['value']}")
        Thread(target=self.work, args=(driver, task), daemon=True).start()

    def killTask(self, _driver: Any, task_id: Any) -> None:  # noqa: N802
        self.note(f"killed {task_id['value']}")
        self.killed[task_id["value"]].set()

    def frameworkMessage(self, driver: Any, message: str) -> None:  # noqa: N802
        driver.sendFrameworkMessage(b64encode(b"re: " + b64decode(message)).decode())

    def shutdown(self, _driver: Any) -> None:
        self.note("shutdown")

    def work(self, driver: Any, task: Any) -> None:
        task_id = task["task_id"]["value"]
        killed = self.killed[task_id] = Event()
        self.tell(driver, task_id, "TASK_RUNNING")
        kind, _, rest = b64decode(task["data"]).decode().partition(" ")
        if kind == "echo":
            self.tell(driver, task_id, "TASK_FINISHED", rest)
            return
        while not killed.is_set() and not (kind == "wait" and Path(rest).exists()):
            time.sleep(0.05)
        self.tell(driver, task_id, "TASK_KILLED" if killed.is_set() else "TASK_FINISHED")

    def tell(self, driver: Any, task_id: str, state: str, data: str = "") -> None:
        status: dict[str, Any] = {"task_id": {"value": task_id}, "state": state}
        if data:
            status["data"] = b64encode(data.encode()).decode()
        while True:
            try:
                driver.sendStatusUpdate(status)
            except Exception as error:
                # The agent is away: the driver does not try again.
                self.note(f"failed: {type(error).__name__}")
                time.sleep(0.5)
            else:
                return


if __name__ == "__main__":
    MesosExecutorDriver(DataExecutor(Path(sys.argv[1]))).run()
