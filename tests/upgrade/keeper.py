"""A framework that runs during the upgrade of its cluster, on the SDK of either build.

    python -m tests.upgrade.keeper FOLDER MASTER SHORT TASKS [FRAMEWORK_ID]

It launches TASKS tasks; the first SHORT of them end by themselves. It launches `LATE` more once
FOLDER/more exists. FOLDER/journal records its calls and the updates that it receives. While
FOLDER/hold exists, it handles no terminal update, and so acknowledges none. It imports only the
SDK and modules of the tests that do not import Croupier.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from croupier.sdk import Framework, Offer, Resources, Task, TaskStatus
from tests.chaos.real.journal import (
    Answered,
    Asked,
    Begun,
    Journal,
    Subscribed,
    Update,
    read_entries,
)
from tests.chaos.real.work import Work
from tests.harness.eventually import eventually

LATE = 3
REFUSE_S = 0.3
UNIT = Resources.parse("cpus:1;mem:16MB")
HOLD_S = 120.0
# A long task ends when it receives SIGUSR1.
SHORT_SCRIPT = 'echo "start $1 $$" >>"$2"; echo "end $1" >>"$2"; exit "$3"'
LONG_SCRIPT = (
    'trap \'echo "end $1" >>"$2"; exit "$3"\' USR1; echo "start $1 $$" >>"$2";'
    " sleep 86413 & while :; do wait; done"
)


def work_of(task_id: str) -> Work:
    """Task n exits with n, modulo 101."""
    return Work(task_id, 0.0, int(task_id.removeprefix("t-")) % 101)


class Keeper(Framework):
    """Launches each task once, and records every update."""

    def __init__(
        self, folder: Path, master: str, short: int, tasks: int, framework_id: str | None
    ) -> None:
        """Resume after the last entry of the journal."""
        super().__init__(name="keeper", master=master, framework_id=framework_id, demand=UNIT)
        self._folder, self._long = folder, range(short, tasks)
        entries = read_entries(folder / "journal")
        asked = [task for entry in entries if isinstance(entry, Asked) for task in entry.task_ids]
        self._left = [f"t-{n}" for n in range(tasks + LATE) if f"t-{n}" not in asked]
        self._handled = {(e.task_id, e.sequence) for e in entries if isinstance(e, Update)}
        self._journal = Journal(folder / "journal")
        self._journal.write(Begun(os.getpid()))

    async def on_subscribed(self, framework_id: str) -> None:
        self._journal.write(Subscribed(framework_id))

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            wanted = len(self._left) - (0 if (self._folder / "more").exists() else LATE)
            number = min(offer.resources["cpus"] // 1000, wanted)
            if number <= 0:
                await self.decline(offer, REFUSE_S)
                continue
            chosen, self._left = self._left[:number], self._left[number:]
            self._journal.write(Asked(tuple(chosen)))
            tasks = [
                Task(self._command(task_id), resources=UNIT, task_id=task_id) for task_id in chosen
            ]
            for verdict in await self.accept(offer, tasks, REFUSE_S):
                error = "" if verdict.error is None else str(verdict.error)
                self._journal.write(Answered(verdict.task_id, error, time.time()))

    def _command(self, task_id: str) -> list[str]:
        """Return the command of a task; it appends its start and its end to the ledger."""
        is_long = int(task_id.removeprefix("t-")) in self._long
        script, code = LONG_SCRIPT if is_long else SHORT_SCRIPT, work_of(task_id).code
        return ["sh", "-c", script, "task", task_id, str(self._folder / "ran"), str(code)]

    async def on_update(self, status: TaskStatus) -> None:
        if status.state.is_terminal:
            await eventually(lambda: not (self._folder / "hold").exists(), HOLD_S)
        key = status.task_id, status.sequence
        handled = status.sequence == 0 or key not in self._handled
        self._handled.add(key)
        update = Update(
            status.task_id, status.agent_id, status.state.name, status.sequence,
            status.reason.name, status.exit_code, status.signal, status.pid, status.message,
            handled,
        )  # fmt: skip
        self._journal.write(update)


def main(argv: list[str]) -> int:
    folder, master, short, tasks, *known = argv
    framework_id = known[0] if known else None
    asyncio.run(Keeper(Path(folder), master, int(short), int(tasks), framework_id).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
