"""Lines of the bench: one JSON object each, on standard output."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from tests.bench.tasks.machine import QUIET_CPUS, Spent


def print_line(scenario: str, system: str, loads: Sequence[float], **figures: object) -> None:
    """Print a line; `loads` are the CPUs that others used during each round."""
    worst = max(loads, default=0.0)
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
    }
    line = {"scenario": scenario, "system": system, **rounded, "foreign_cpus": worst}
    if worst > QUIET_CPUS:
        line["loaded"] = True
    print(json.dumps(line), flush=True)


def refuse(scenario: str, system: str, slots: int, foreign_cpus: float) -> None:
    """Print that there are no figures, because the machine was never quiet."""
    why = f"others used {foreign_cpus} CPUs in the quietest round; LOADED=1 prints figures anyway"
    line = {"scenario": scenario, "system": system, "slots": slots, "refused": why}
    print(json.dumps({**line, "foreign_cpus": foreign_cpus}), flush=True)


def quietest(rounds: Sequence[Spent], wanted: int) -> list[Spent]:
    """Return the rounds in which others used least."""
    return sorted(rounds, key=lambda each: each.foreign_cpus)[:wanted]


def rate(rounds: Sequence[Spent], tasks: int) -> float:
    """Return the median of tasks per second."""
    return tasks / statistics.median(each.seconds for each in rounds)


def cpu_ms(rounds: Sequence[Spent], tasks: int) -> float:
    """Return the median of milliseconds of CPU per task."""
    return statistics.median(each.cpu_s for each in rounds) / tasks * 1e3


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile by the nearest rank."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]
