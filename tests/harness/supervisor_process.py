"""An agent's part of a task in a process of its own, to be killed.

    python -m tests.harness.supervisor_process WORK_DIR COUNT SHELL_LINE

Starts COUNT tasks t0, t1... of the line, prints `ready` once all have started, and waits.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from croupier.agent.shim.build import prepare_shim
from tests.harness.supervisor_fixture import TaskRunner


async def main() -> None:
    work, count, line = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    runner = TaskRunner(work, prepare_shim(work))
    for number in range(count):
        runner.shell(f"t{number}", line)
    for number in range(count):
        await runner.started(f"t{number}")
    print("ready", flush=True)
    await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(main())
