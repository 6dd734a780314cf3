"""What isolation costs, and what a task loses beside offenders.

    python -m tests.bench.isolation cost [ROUNDS]
    python -m tests.bench.isolation neighbours

The first runs tasks at each level in turn. `tasks/s` is the rate of `/bin/true`, 32 at a time, with
its ratio to none and what a task takes longer. `start` and `whole` are the times from an order to
the start and to the end of a task that runs alone. `own cpu` is the processor time of the
supervisor's process for a task, and `all cpu` that of all processes.

The second needs root. It runs offenders one after the other beside an honest task, on an agent with
default isolation, and prints the honest task's rate as a part of its rate alone, and how each
offender ended.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.bench.isolation_cost import cost
from tests.harness.neighbours import OFFENDERS, neighbourhood

ROUNDS = 6


async def neighbours() -> None:
    """Run all offenders, and print a line for each."""
    async with neighbourhood() as beside:
        for offender in OFFENDERS:
            seen = await beside.beside(offender)
            print(f"{seen.name:<24} {seen.rate:5.2f}  {seen.message}")


def main(argv: list[str]) -> int:
    """Run what the words ask for; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        if argv[:1] == ["cost"]:
            asyncio.run(cost(Path(folder), int(argv[1]) if argv[1:] else ROUNDS))
            return 0
        if argv == ["neighbours"]:
            asyncio.run(neighbours())
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
