"""An executor for tests: it does what the data of each task say, and notes its launches in a file.

    executor_program.py NOTES [hang|silent|greet]

`hang` ignores kills, `silent` never registers, and `greet` sends a message when it has registered.

The data of a task are `sleep` (until it is killed), `echo TEXT`, `wait PATH` (until the file is
there), `fail`, `exit CODE` (of the executor), `flood N` (updates), `chatter N` (messages) or
`hog BYTES` (of memory).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from croupier.sdk import TaskState
from croupier.sdk.executor import Executor, LaunchedTask


class Program(Executor):
    """The executor."""

    def __init__(self, notes: Path, way: str) -> None:
        super().__init__()
        self.notes, self.way = notes, way
        self.works: dict[str, asyncio.Task[None]] = {}
        self.memory: list[bytes] = []

    def note(self, text: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{text}\n")

    async def on_registered(self, framework_id: str, agent_id: str, data: bytes) -> None:
        self.note(f"registered {data.decode()}")
        if self.way == "greet":
            await self.send(b"hello")

    async def on_launch(self, task: LaunchedTask) -> None:
        self.note(f"launched {task.task_id}")
        self.works[task.task_id] = asyncio.create_task(self.work(task))

    async def on_kill(self, task_id: str, grace_s: float) -> None:
        self.note(f"killed {task_id}")
        if self.way == "hang":
            return
        work = self.works.pop(task_id, None)
        if work is not None and not work.done():
            work.cancel()
            await self.update(task_id, TaskState.KILLED)

    async def on_message(self, data: bytes) -> None:
        self.note(f"message {data.decode()}")
        await self.send(b"re: " + data)

    async def on_shutdown(self, grace_s: float) -> None:
        self.note("shutdown")
        if self.way != "hang":
            await super().on_shutdown(grace_s)

    async def work(self, task: LaunchedTask) -> None:
        kind, _, rest = task.data.decode().partition(" ")
        await self.update(task.task_id, TaskState.RUNNING, labels={"pid": str(os.getpid())})
        match kind:
            case "sleep":
                await asyncio.sleep(86411)
            case "wait":
                await asyncio.to_thread(wait_for, Path(rest))
                await self.update(task.task_id, TaskState.FINISHED, data=rest.encode())
            case "echo":
                await self.update(task.task_id, TaskState.FINISHED, "done", rest.encode())
            case "fail":
                await self.update(task.task_id, TaskState.FAILED, "as asked")
            case "hog":
                self.memory.append(b"x" * int(rest))
                await self.update(task.task_id, TaskState.FINISHED)
            case "exit":
                os._exit(int(rest))
            case "flood":
                for number in range(int(rest)):
                    await self.update(task.task_id, TaskState.RUNNING, f"at {number}")
                await self.update(task.task_id, TaskState.FINISHED)
            case "chatter":
                for number in range(int(rest)):
                    await self.send(b"%d" % number)
                await self.update(task.task_id, TaskState.FINISHED)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    notes, way = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    if way == "silent":
        time.sleep(86411)
    Program(notes, way).run_forever()
