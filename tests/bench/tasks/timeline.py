"""One task on an idle cluster, from its submission to its known end: where each millisecond goes.

    python -m tests.bench.tasks.timeline [offers|submit] [TASKS]

Runs tasks one by one, with daemons and client `traced`, and prints the way of the task with the
median time: milliseconds since its begin, the process and the point that it passed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tests.bench.tasks.machine import become_reaper, spent_on
from tests.bench.tasks.profile import awaited
from tests.bench.tasks.systems import croupier

FIRST = {"submit": "FrameworkCalls.submit >", "offers": "FrameworkCalls.demand >"}
SLOTS = 2
PAUSE_S = 0.05

Passed = tuple[float, str, str]


def main() -> None:
    way, tasks = [*sys.argv[1:], *("submit", "60")[len(sys.argv) - 1 :]]
    become_reaper()
    with tempfile.TemporaryDirectory() as directory:
        prefix = ("-m", "tests.bench.tasks.traced", directory)
        with croupier(SLOTS, way, prefix) as system:
            system.client.latencies(10, PAUSE_S)
            _, load = spent_on(lambda: system.client.latencies(int(tasks), PAUSE_S))
            passed: list[Passed] = []
            for role, pid in system.pids.items():
                os.kill(pid, signal.SIGUSR2)
                text = awaited(Path(directory, f"{pid}.json"))
                passed += [(at, role, point) for at, point in json.loads(text)]
    ways = [_way_of(each) for each in _tasks(sorted(passed), FIRST[way])][10:]
    ways.sort(key=lambda each: each[-1][0] - each[0][0])
    print(f"{len(ways)} tasks by {way}; others used {load.foreign_cpus} CPUs; the median:\n")
    median = ways[len(ways) // 2]
    for (before, _, _), (at, role, point) in zip([median[0], *median], median, strict=False):
        print(f"{(at - median[0][0]) * 1e3:8.2f} (+{(at - before) * 1e3:5.2f})  {role:7} {point}")


def _tasks(passed: list[Passed], first: str) -> list[list[Passed]]:
    """Divide what was passed by the begins of tasks."""
    begins = [number for number, (_, _, point) in enumerate(passed) if point == first]
    return [passed[begin:end] for begin, end in pairwise([*begins, len(passed)])]


def _way_of(passed: list[Passed]) -> list[Passed]:
    """Return what was passed until the last update was handled."""
    ends = [number for number, each in enumerate(passed) if each[2].endswith("_serve_update <")]
    return passed[: ends[-1] + 1] if ends else passed


if __name__ == "__main__":
    main()
