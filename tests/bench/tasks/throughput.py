"""Tasks per second and latency of a system, beside `xargs -P` in the same run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.bench.tasks.figures import cpu_ms, percentile, print_line, quietest, rate, refuse
from tests.bench.tasks.machine import QUIET_CPUS, Spent, cpu_of, spent, spent_on, wait_for_quiet
from tests.bench.tasks.systems import System

FLOOR_TASKS = 4000
PATIENCE_S = 8.0
# Rounds in which others used the CPUs are repeated, so many times at most.
EXTRA_ROUNDS = 3
_PAUSE_S = 0.02
_BLOCK = 20


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        tasks: of each round.
        rounds: whose median counts.
        accepts_load: whether figures of a loaded machine are printed.
    """

    tasks: int
    rounds: int
    accepts_load: bool

    @property
    def patience_s(self) -> float:
        """Time to wait for a quiet machine before each round."""
        return 0.0 if self.accepts_load else PATIENCE_S


Start = Callable[[], AbstractContextManager[System]]


def throughput(scenario: str, name: str, start: Start, slots: int, effort: Effort) -> None:
    """Run rounds of tasks that alternate with rounds of xargs; print a line."""
    tasks, wanted = effort.tasks, effort.rounds
    floors: list[Spent] = []
    runs: list[Spent] = []
    with start() as system:
        client = system.client
        client.run(max(20, 2 * slots))
        before = {role: cpu_of(pid) for role, pid in system.pids.items()}
        while len(runs) < wanted or (not effort.accepts_load and _is_noisy(floors, runs, wanted)):
            wait_for_quiet(effort.patience_s)
            floors.append(spent(lambda: xargs(slots, FLOOR_TASKS)))
            runs.append(spent(lambda: client.run(tasks)))
        own = {
            role: round((cpu_of(pid) - before[role]) / len(runs) / tasks * 1e3, 3)
            for role, pid in system.pids.items()
        }
    floors, runs = quietest(floors, wanted), quietest(runs, wanted)
    loads = [each.foreign_cpus for each in (*floors, *runs)]
    if min(loads) > QUIET_CPUS and not effort.accepts_load:
        refuse(scenario, name, slots, min(loads))
        return
    reached, floor = rate(runs, tasks), rate(floors, FLOOR_TASKS)
    print_line(
        scenario, name, loads,
        slots=slots, tasks=tasks, per_second=reached, cpu_ms_per_task=cpu_ms(runs, tasks),
        own_cpu_ms=own, xargs_per_second=floor, xargs_cpu_ms=cpu_ms(floors, FLOOR_TASKS),
        ratio=reached / floor, rates=[round(tasks / each.seconds) for each in runs],
    )  # fmt: skip


def latency(name: str, start: Start, slots: int, effort: Effort) -> None:
    """Run one task at a time on an idle system; print a line."""
    measured: list[tuple[float, list[float]]] = []
    with start() as system:
        client = system.client
        client.latencies(5, _PAUSE_S)
        while len(measured) < effort.rounds + EXTRA_ROUNDS:
            wait_for_quiet(effort.patience_s)
            block, passed = spent_on(lambda: client.latencies(_BLOCK, _PAUSE_S))
            measured.append((passed.foreign_cpus, block))
            if sum(_counts(load, effort) for load, _ in measured) >= effort.rounds:
                break
    measured = sorted(measured, key=lambda each: each[0])[: effort.rounds]
    loads = [load for load, _ in measured]
    if loads[-1] > QUIET_CPUS and not effort.accepts_load:
        refuse("latency", name, slots, loads[-1])
        return
    seconds = [each * 1e3 for _, block in measured for each in block]
    print_line(
        "latency", name, loads,
        slots=slots, tasks=len(seconds), p50_ms=percentile(seconds, 50),
        p99_ms=percentile(seconds, 99), min_ms=min(seconds),
    )  # fmt: skip


def xargs(slots: int, tasks: int) -> None:
    """Run the floor: as many processes, and nothing that schedules them."""
    words = ["xargs", "-P", str(slots), "-n", "1", "/bin/true"]
    subprocess.run(words, input=b"1\n" * tasks, check=True)


def _counts(load: float, effort: Effort) -> bool:
    return effort.accepts_load or load <= QUIET_CPUS


def _is_noisy(floors: list[Spent], runs: list[Spent], wanted: int) -> bool:
    """Return whether too few rounds were quiet, and there may be more."""
    quiet = [sum(each.foreign_cpus <= QUIET_CPUS for each in rounds) for rounds in (floors, runs)]
    return min(quiet) < wanted and len(runs) < wanted + EXTRA_ROUNDS
