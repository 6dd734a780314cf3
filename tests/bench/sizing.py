"""What a master needs for a cluster of some size: memory, processor time, disk.

    python -m tests.bench.sizing [--agents N ...] [--tasks N]

Agents are connections from two other processes that run no tasks (`tests.harness.light_agents`); a
framework launches the tasks, which then run. The store is SQLite. Prints a row of the table in
docs/operations.md for each number of agents.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.reregister import Bench, _cpu_s, _rss_mb

IDLE_S = 20.0


class Sizing(Bench):
    """A cluster that is filled, and then idle."""

    def __init__(self, folder: Path, agents: int, tasks: int) -> None:
        super().__init__(folder, agents, tasks)
        self._folder = folder

    async def _restarted(self, running: asyncio.Task[None] | None) -> None:
        filled_s = _cpu_s(self.master.pid)
        began = time.monotonic()
        await asyncio.sleep(IDLE_S)
        idle = (_cpu_s(self.master.pid) - filled_s) / (time.monotonic() - began)
        store = sum(path.stat().st_size for path in self._folder.glob("master.db*"))
        count = self.agents * self.tasks
        print(
            f"| {self.agents:,} | {count:,} | {_rss_mb(self.master.pid)} MB | {100 * idle:.1f} %"
            f" | {filled_s:.1f} s | {store // 2**20} MB |"
        )


async def bench(folder: Path, agents: int, tasks: int) -> None:
    await Sizing(folder, agents, tasks).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sizing")
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--tasks", type=int, default=10, help="on each agent")
    options = parser.parse_args()
    for agents in options.agents:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(bench(Path(folder), agents, options.tasks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
