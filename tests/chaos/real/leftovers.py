"""What an agent still keeps after all its tasks have ended and are acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.chaos.real.checker import Violation

# The agent's metrics that count unfinished work.
UNSETTLED = ("croupier_agent_tasks", "croupier_agent_unacknowledged_updates")


def check_agent(name: str, work_dir: Path, metrics: str) -> list[Violation]:
    """Return what is left of tasks in an agent's metrics and work directory."""
    return [*_unsettled(name, metrics), *_kept(name, work_dir / "runs"), *_volumes(name, work_dir)]


def _unsettled(name: str, metrics: str) -> Iterator[Violation]:
    for unknown in (wanted for wanted in UNSETTLED if f"\n{wanted}" not in metrics):
        yield Violation("kept", name, f"it does not tell {unknown}")
    for line in metrics.splitlines():
        metric, _, value = line.rpartition(" ")
        if metric.partition("{")[0] in UNSETTLED and float(value):
            yield Violation("kept", name, line)


def _volumes(name: str, work_dir: Path) -> Iterator[Violation]:
    for path in sorted(work_dir.glob("volumes/*/*/*")):
        yield Violation("kept", name, str(path.relative_to(work_dir)))


def _kept(name: str, runs: Path) -> Iterator[Violation]:
    if runs.is_dir():
        # A spare file is of no run.
        for path in sorted(set(runs.iterdir()) - set(runs.glob(".spare-*"))):
            yield Violation("kept", name, f"runs/{path.name}")
