"""An agent's part of a task with a command beside it, in a process of its own, to be killed.

    python -m tests.harness.exec_process WORK_DIR LEVEL COMMAND_LINE

Starts a task at the level, and the command beside it. Prints the pid of the shim of the command
once the command has printed something, and waits.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from croupier.agent.shim.build import prepare_shim
from croupier.agent.unix_user import UnixUser
from tests.harness.exec_levels import ExecLevel

OWN = UnixUser("task", 1_999_992, 1_999_992, (), is_own=True)


async def main() -> None:
    work, name, line = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    level = ExecLevel(name, work, prepare_shim(work.parent))
    await level.start(OWN if os.geteuid() == 0 else None)
    one = await level.execs.start(level.task, "/bin/sh", "-c", line)
    await anext(one.output())
    print(one._shim.shim, flush=True)
    await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(main())
