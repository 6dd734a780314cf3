"""An agent's part of a task in a process of its own, to be killed.

    python -m tests.harness.supervisor_process WORK_DIR c|python COUNT SHELL_LINE

Starts COUNT tasks t0, t1... of the line, prints `ready` once all have started, and waits.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from croupier.agent.shim.build import interpreted_shim, prepare_shim
from tests.harness.supervisor_fixture import TaskRunner


async def main() -> None:
    work, kind, count, line = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    shim = prepare_shim(work) if kind == "c" else interpreted_shim()
    runner = TaskRunner(work, shim)
    for number in range(count):
        runner.shell(f"t{number}", line)
    for number in range(count):
        await runner.started(f"t{number}")
    print("ready", flush=True)
    await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(main())
