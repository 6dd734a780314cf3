"""Where the time of a short task goes, by process: tables on standard output.

    python -m tests.bench.tasks.profile [offers|submit] [SLOTS] [TASKS]

For each of master, agent and client: CPU and context switches, first without a profiler. Then CPU
by group of functions, in a second run under `sampled`, which costs some more. Then what the daemons
count in their metrics: commits, batches, messages. All per task.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from tests.bench.tasks.machine import become_reaper, cpu_of, spent, switches
from tests.bench.tasks.systems import System, croupier

TOP = 12
COUNTED = (
    "registry_write_seconds_count", "batch_seconds_count", "loop_events_total",
    "allocations_total", "offers_total", "calls_total", "status_updates_total",
    "status_acks_total", "agent_checkpoint_commit_seconds_count", "agent_turn_seconds_count",
    "agent_status_updates_total",
)  # fmt: skip
WAIT_S = 10.0

Totals = dict[str, float]


def main() -> None:
    way, slots, tasks = [*sys.argv[1:], *("offers", "2", "1000")[len(sys.argv) - 1 :]]
    become_reaper()
    with croupier(int(slots), way) as system:
        _print_whole(system, int(slots), int(tasks))
    with tempfile.TemporaryDirectory() as directory:
        sampled = ("-m", "tests.bench.tasks.sampled", directory)
        with croupier(int(slots), way, sampled) as system:
            _print_groups(system, Path(directory), int(slots), int(tasks))


def _print_whole(system: System, slots: int, tasks: int) -> None:
    """Run tasks without a profiler; print what each process used and counted."""
    system.client.run(4 * slots)
    cpu = {role: cpu_of(pid) for role, pid in system.pids.items()}
    switched = {role: switches(pid) for role, pid in system.pids.items()}
    counted = _counted(system)
    whole = spent(lambda: system.client.run(tasks))
    rate, each = tasks / whole.seconds, whole.cpu_s / tasks * 1e3
    print(f"{tasks} tasks, {slots} slots: {rate:.0f}/s, {each:.2f} ms of CPU per task with shims")
    print(f"and tasks; others used {whole.foreign_cpus} CPUs\n")
    print("| process | CPU ms | voluntary switches | others |\n|---|---|---|---|")
    for role, pid in system.pids.items():
        used = (cpu_of(pid) - cpu[role]) / tasks * 1e3
        own, forced = (
            (now - before) / tasks
            for now, before in zip(switches(pid), switched[role], strict=True)
        )
        print(f"| {role} | {used:.2f} | {own:.1f} | {forced:.1f} |")
    print("\n| counted | per task |\n|---|---|")
    for name, value in _counted(system).items():
        print(f"| {name} | {(value - counted.get(name, 0.0)) / tasks:.2f} |")


def _print_groups(system: System, directory: Path, slots: int, tasks: int) -> None:
    """Run tasks under the profiler; print CPU by group and the costliest functions."""
    system.client.run(4 * slots)
    for pid in system.pids.values():
        os.kill(pid, signal.SIGUSR2)
    system.client.run(tasks)
    for role, pid in system.pids.items():
        os.kill(pid, signal.SIGUSR2)
        found = json.loads(awaited(directory / f"{pid}.json"))
        whole = sum(found["groups"].values())
        print(f"\n{role}, under the profiler: {whole / tasks * 1e3:.2f} ms of CPU per task\n")
        print("| group | us per task | % |\n|---|---|---|")
        for name, used in Counter(found["groups"]).most_common():
            if used >= whole / 100:
                print(f"| {name} | {used / tasks * 1e6:.0f} | {used / whole:.0%} |")
        print()
        for name, used in Counter(found["functions"]).most_common(TOP):
            print(f"    {used / tasks * 1e6:6.0f} us  {name}")


def _counted(system: System) -> Totals:
    """Return the daemons' counters, by metric and label."""
    found: Totals = {}
    for role, address in system.http.items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
            text = answer.read().decode()
        lines = re.findall(r"^croupier_(\w+)(\{.*\})? (\S+)$", text, re.MULTILINE)
        for name, labels, value in lines:
            if name in COUNTED and float(value):
                found[f"{role}: {name}{labels}"] = float(value)
    return found


def awaited(path: Path) -> str:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is not written"
        time.sleep(0.01)
    return path.read_text()


if __name__ == "__main__":
    main()
