"""Inject faults into real processes, and check the cluster after each round.

    python -m tests.chaos.real [--seed N] [--rounds N] [--seconds S] [--masters 1|3|both]
        [--only KIND] [--keep FOLDER] [--tls]
    python -m tests.chaos.real --partitions [--seed N] [--rounds N] [--seconds S] [--only KIND]
    python -m tests.chaos.real --mutants

The first prints a line for each round and a summary. Half of the rounds run one master on SQLite,
half run three masters on three etcd members. With --tls all connections use mutual TLS, and faults
renew the certificates of all daemons and replace their authority. The second gives each daemon a
network namespace, runs three masters on three etcd members, and cuts, delays and loses packets. The
third injects known bugs and prints the violations that reveal them. The exit code is 1 after any
violation, or if a bug was not found.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import croupier.net  # noqa: F401 - before gRPC, which it makes silent
from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.fault_catalogue import catalogue_of
from tests.chaos.real.host_network import enter, why_not
from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.mutation_run import kinds_found
from tests.chaos.real.partitions import partition_catalogue
from tests.chaos.real.rounds import Report, Rounds
from tests.harness.debian import NoProgram, downloaded, found

ALONE = Layout()
SEVERAL = Layout(masters=3, etcd=3)
HOSTS = Layout(masters=3, etcd=3, has_hosts=True)


@dataclass(slots=True)
class Chaos:
    """All rounds of one command.

    Attributes:
        only: part of the names of the kinds of faults to inject; empty for all.
        skipped: kinds of faults that this machine cannot inject, and why.
    """

    folder: Path
    seed: int
    seconds: float
    only: str = ""
    reports: list[Report] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        """Return the number of violations so far."""
        return sum(len(report.violations) for report in self.reports)

    async def run(self, layout: Layout, rounds: int) -> None:
        """Run the rounds, with a new cluster after each round that found a violation."""
        until = len(self.reports) + rounds
        while len(self.reports) < until:
            cluster = Cluster(self.folder / f"from-{len(self.reports) + 1}", layout, self.seed)
            try:
                await self._series(cluster, until)
            finally:
                await cluster.stop()

    async def _series(self, cluster: Cluster, until: int) -> None:
        """Run rounds on one cluster until there are enough, or one finds a violation."""
        try:
            await cluster.start()
        except AssertionError as error:
            self._tell(Report(violations=[Violation("stuck", "start", str(error))]))
            return
        of = catalogue_of if cluster.network is None else partition_catalogue
        catalogue = of(cluster)
        self.skipped.update(catalogue.skipped)
        series = Rounds(cluster, catalogue.only(self.only), self.seed, self.seconds)
        report = Report()
        while len(self.reports) < until and not report.violations:
            report = await series.round(len(self.reports))
            self._tell(report)
        self.tasks += report.tasks
        self.others += report.others
        self.lines += report.lines

    def _tell(self, report: Report) -> None:
        """Print one line for a round, and one for each violation."""
        self.reports.append(report)
        judged = f"{len(report.violations)} VIOLATIONS" if report.violations else "clean"
        faults = "; ".join(map(str, report.faults))
        print(
            f"round {len(self.reports):>3}: {judged} in {report.seconds:4.1f} s, "
            f"{report.tasks.total()} tasks so far: {faults}",
            flush=True,
        )
        for violation in report.violations:
            print(f"    {violation}", flush=True)

    def sum_up(self) -> None:
        """Print the summary line."""
        kinds = Counter(fault.kind for report in self.reports for fault in report.faults)
        left_out = "".join(f"; no {name}: {why}" for name, why in self.skipped.items())
        print(
            f"real chaos: seed {self.seed}, {len(self.reports)} rounds, {kinds.total()} faults "
            f"({_listed(kinds)}), {self.tasks.total()} tasks ({_listed(self.tasks)}), "
            f"{_listed(self.others)}, lined-up tasks (at least): {_listed(self.lines) or 'none'}, "
            f"{self.violations} violations{left_out}",
            flush=True,
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


async def chaos(folder: Path, options: argparse.Namespace) -> int:
    """Run what the flags ask for; return the number of violations."""
    all_of_it = Chaos(folder, options.seed, options.seconds, options.only)
    alone_layout, several_layout = (
        replace(layout, is_secured=options.tls) for layout in (ALONE, SEVERAL)
    )
    if options.partitions:
        if why := why_not() or no_etcd():
            print(f"partitions: skipped: {why}")
            return 0
        enter()
        await all_of_it.run(HOSTS, options.rounds)
        all_of_it.sum_up()
        return all_of_it.violations
    several = {"1": 0, "3": options.rounds, "both": options.rounds // 2}[options.masters]
    if several and (why := no_etcd()):
        all_of_it.skipped["several masters"] = why
        several = 0
    alone = options.rounds - several
    if alone:
        await all_of_it.run(alone_layout, alone)
    if several:
        await all_of_it.run(several_layout, several)
    all_of_it.sum_up()
    return all_of_it.violations


def no_etcd() -> str:
    """Return why etcd is not available; empty if it is."""
    try:
        found("etcd") or downloaded("etcd", "etcd-server")
    except NoProgram as reason:
        return str(reason)
    return ""


async def hunt(folder: Path) -> int:
    """Inject each bug and print the violations that reveal it; return the number not found."""
    missed = 0
    for name, mutant in MUTANTS.items():
        kinds = await kinds_found(folder / name, name, mutant)
        is_found = bool(kinds & set(mutant.seen_as))
        missed += not is_found
        told = f"found as {', '.join(sorted(kinds))}" if is_found else f"MISSED ({kinds})"
        print(f"{mutant.what}: {told}", flush=True)
    print(f"{len(MUTANTS)} bugs, {missed} missed")
    return missed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.real")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="of faults in each round")
    parser.add_argument("--masters", choices=("1", "3", "both"), default="both")
    parser.add_argument("--only", default="", help="part of the names of faults: no others")
    parser.add_argument("--keep", type=Path, help="an empty folder for logs and journals")
    parser.add_argument("--tls", action="store_true", help="mutual TLS, and renewed certificates")
    parser.add_argument("--partitions", action="store_true", help="cut hosts off from each other")
    parser.add_argument("--mutants", action="store_true", help="put bugs in, and find them")
    options = parser.parse_args(argv)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        work = hunt(folder) if options.mutants else chaos(folder, options)
        return 1 if asyncio.run(work) else 0
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
