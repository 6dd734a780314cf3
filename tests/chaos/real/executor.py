"""An executor on the SDK that writes down what it runs and hears: a program for the chaos suite.

    python -P tests/chaos/real/executor.py TASK_ID LEDGER SECONDS CODE

It runs the calls of `work`. After SECONDS it exits with CODE, or kills itself if that is negative.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import croupier.net  # noqa: F401 - before gRPC, which it makes silent
from croupier.sdk import TaskState
from croupier.sdk.executor import Executor, LaunchedTask


class CallRunner(Executor):
    """Runs each call as an asyncio task."""

    def __init__(self, task_id: str, ledger: Path, seconds: float, code: int) -> None:
        super().__init__()
        self._task_id, self._ledger = task_id, ledger
        self._seconds, self._code = seconds, code
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._note("start", task_id, os.getpid())

    async def run(self) -> None:
        """Serve the agent, at most for the seconds that were given."""
        ending = asyncio.get_running_loop().call_later(self._seconds, self._exit)
        try:
            await super().run()
        finally:
            ending.cancel()

    async def on_launch(self, task: LaunchedTask) -> None:
        self._note("start", task.task_id, os.getpid())
        self._calls[task.task_id] = asyncio.create_task(self._call(task))

    async def on_kill(self, task_id: str, grace_s: float) -> None:
        call = self._calls.get(task_id)
        if call is not None and not call.done():
            call.cancel()
            await self.update(task_id, TaskState.KILLED)

    async def on_message(self, data: bytes) -> None:
        self._note("heard", self._task_id, int(data))
        await self.send(data)

    async def _call(self, task: LaunchedTask) -> None:
        seconds, code = task.data.decode().split()
        await self.update(task.task_id, TaskState.RUNNING)
        await asyncio.sleep(float(seconds))
        self._note("end", task.task_id)
        end = TaskState.FAILED if int(code) else TaskState.FINISHED
        await self.update(task.task_id, end, code)

    def _exit(self) -> None:
        self._note("end", self._task_id)
        if self._code < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(self._code)

    def _note(self, *words: object) -> None:
        """Append a line to the ledger, in one piece."""
        with self._ledger.open("ab", buffering=0) as ledger:
            ledger.write((" ".join(map(str, words)) + "\n").encode())


def main(argv: list[str]) -> None:
    task_id, ledger, seconds, code = argv
    CallRunner(task_id, Path(ledger), float(seconds), int(code)).run_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
