"""Faults against real processes, and a checker after each round.

    python -m tests.chaos.real [--seed N] [--rounds N] [--seconds S] [--masters 1|3] [--only KIND]
        [--keep FOLDER]

One line for each round and one for the sum; the exit code is 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.menu import menu_of
from tests.chaos.real.rounds import Report, Rounds


async def chaos(
    folder: Path, layout: Layout, seed: int, rounds: int, seconds: float, only: str = ""
) -> int:
    """Do so many rounds, with a fresh cluster after each that found something.

    Args:
        folder: for logs, journals and all that daemons keep; empty or absent.
        layout: what the cluster consists of.
        seed: decides the tasks and the faults.
        rounds: how many.
        seconds: of faults in each.
        only: part of the names of the only kinds of faults to have; empty: all.

    Returns:
        How many violations were found.
    """
    reports: list[Report] = []
    skipped: dict[str, str] = {}
    tasks: Counter[str] = Counter()
    while len(reports) < rounds:
        cluster = Cluster(folder / f"from-{len(reports) + 1}", layout, seed)
        try:
            await cluster.start()
            menu = menu_of(cluster).only(only)
            skipped.update(menu.skipped)
            series = Rounds(cluster, menu, seed, seconds)
            while len(reports) < rounds:
                report = await series.round(len(reports))
                reports.append(report)
                tell(len(reports), report)
                if report.violations:
                    break
            tasks += reports[-1].tasks
        finally:
            await cluster.stop()
    sum_up(seed, layout, reports, tasks, skipped)
    return sum(len(report.violations) for report in reports)


def tell(number: int, report: Report) -> None:
    """One line for a round, and one for each violation."""
    judged = f"{len(report.violations)} VIOLATIONS" if report.violations else "clean"
    tasks, faults = report.tasks.total(), "; ".join(map(str, report.faults))
    print(
        f"round {number:>3}: {judged} in {report.seconds:4.1f} s, {tasks} tasks so far: {faults}",
        flush=True,
    )
    for violation in report.violations:
        print(f"    {violation}", flush=True)


def sum_up(
    seed: int, layout: Layout, reports: list[Report], tasks: Counter[str], skipped: dict[str, str]
) -> None:
    """The last line."""
    kinds = Counter(fault.kind for report in reports for fault in report.faults)
    left_out = "".join(f"; no {name}: {why}" for name, why in skipped.items())
    print(
        f"real chaos: seed {seed}, {layout.masters} master(s), {len(reports)} rounds, "
        f"{kinds.total()} faults ({_listed(kinds)}), {tasks.total()} tasks ({_listed(tasks)}), "
        f"{sum(len(report.violations) for report in reports)} violations{left_out}",
        flush=True,
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.real")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of faults in each round")
    parser.add_argument("--masters", type=int, choices=(1, 3), default=1)
    parser.add_argument("--only", default="", help="part of the names of faults: no others")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and journals")
    options = parser.parse_args(argv)
    layout = Layout(masters=options.masters, etcd=3 if options.masters > 1 else 0)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        found = asyncio.run(
            chaos(folder, layout, options.seed, options.rounds, options.seconds, options.only)
        )
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
