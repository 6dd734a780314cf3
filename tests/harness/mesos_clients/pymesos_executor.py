"""An executor with `pymesos`: it answers each task with its data backwards, and each message."""

from __future__ import annotations

import sys
import time
from threading import Thread
from typing import Any

from pymesos import Executor, MesosExecutorDriver, decode_data, encode_data


class Backwards(Executor):  # type: ignore[misc]
    """Runs tasks in threads."""

    def launchTask(self, driver: Any, task: Any) -> None:  # noqa: N802
        Thread(target=self.run_task, args=(driver, task)).start()

    def run_task(self, driver: Any, task: Any) -> None:
        """Report the task as running, and then as finished."""
        data = decode_data(task["data"])
        self.report(driver, task, "TASK_RUNNING", b"")
        time.sleep(0.2)
        self.report(driver, task, "TASK_FINISHED", data[::-1])

    def report(self, driver: Any, task: Any, state: str, data: bytes) -> None:
        """Send an update, again and again until the agent takes it."""
        update = {"task_id": task["task_id"], "timestamp": time.time(), "state": state}
        if data:
            update["data"] = encode_data(data)
        for _ in range(100):
            try:
                driver.sendStatusUpdate(update)
                return
            except Exception as error:
                print(f"update failed: {error}", file=sys.stderr, flush=True)
                time.sleep(0.2)

    def frameworkMessage(self, driver: Any, message: Any) -> None:  # noqa: N802
        driver.sendFrameworkMessage(encode_data(b"pong " + decode_data(message)))


if __name__ == "__main__":
    MesosExecutorDriver(Backwards()).run()
