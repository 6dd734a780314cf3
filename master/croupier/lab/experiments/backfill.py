"""Backfill: the same days with and without declared times, beside gangs and a reservation.

The days and the gangs are those of `experiments.gangs`. Web reserves a third of the agents from 12
to 14 h of the first day, with a notice of 4 hours. Undeclared, no task of others may start on these
agents in that time, since nobody knows when it ends. Declared times are a fifth longer than the
tasks; then tasks that end in time may start there, and in the first half of a gathering.

Lost is what nobody uses: what is free and reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, log2
from typing import Final

from croupier.lab.cluster import SimulatedCluster
from croupier.lab.experiments.gangs import (
    OPENB_DAYS,
    SWIM_DAY,
    Gathering,
    groups,
    parts_of,
    parts_table,
)
from croupier.lab.weeks import Counted, Outcome, TeamJob, both_traces, report, run_weeks
from croupier.master.core.events import AccountingDue
from croupier.master.core.reservation_commands import CreateReservation
from croupier.master.core.reservations import NewReservation, Times
from croupier.model.ids import Role
from croupier.sim.experiment import Check, Options, Progress, Result
from croupier.sim.framework import SimulatedFramework

EXPECTED = (
    "Days of the SWIM and openb traces, with gangs, and with a reservation of a third of the\n"
    "agents. Expected: if tasks declare how long they run, more of the cluster is in use, and\n"
    "tasks outside of gangs wait less."
)

HOUR_MS: Final = 3_600_000
RESERVED: Final = Times(12 * HOUR_MS, 14 * HOUR_MS)
NOTICE_MS: Final = 4 * HOUR_MS
PART_OF_AGENTS: Final = 3


class Undeclared(Gathering):
    """No task says how long it runs."""

    name = "undeclared"

    def watch(self, cluster: SimulatedCluster, teams: Mapping[str, SimulatedFramework], /) -> None:
        """Make the reservation, and sample what is lost."""
        super().watch(cluster, teams)
        agents = max(1, len(cluster.agents) // PART_OF_AGENTS)
        wanted = NewReservation(Role("web"), agents, RESERVED, notice_ms=NOTICE_MS)
        cluster.kernel.step(AccountingDue(0))
        cluster.kernel.step(CreateReservation(1, wanted, 0))
        assert cluster.kernel.state.reservations


class Declared(Undeclared):
    """All tasks say so."""

    name = "declared"

    def prepare(self, jobs: Sequence[TeamJob], /) -> None:
        """Declare the times as well."""
        super().prepare(jobs)
        for each in jobs:
            for work in each.works:
                work.declared_s = 60.0 * 2 ** max(0, ceil(log2(work.seconds / 60)))


def run(options: Options, progress: Progress) -> Result:
    """Run the days with and without declared times; raises InvalidRequest without valid traces."""
    days = both_traces(options, OPENB_DAYS, SWIM_DAY, by_gpu=True)
    return compare(run_weeks(days, (Undeclared, Declared), options, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits by size of the gang, and what was lost."""
    by_size = groups()
    checks = _checks(outcomes, by_size["no gang"])
    table = parts_table("backfill", outcomes)
    return report("backfill", " by size of the gang", outcomes, by_size, checks, [table])


def _checks(outcomes: Sequence[Outcome], of_no_gang: Counted) -> Iterator[Check]:
    for without, declared in zip(outcomes[::2], outcomes[1::2], strict=True):
        used = parts_of(without)[0], parts_of(declared)[0]
        waits = without.mean_wait(of_no_gang), declared.mean_wait(of_no_gang)
        yield Check(
            f"{without.trace}: part of the cluster that is in use if times are declared",
            "more than if not",
            f"{used[1]:.2f} %, and {used[0]:.2f} % if not",
            used[1] > used[0],
        )
        yield Check(
            f"{without.trace}: mean wait of tasks outside of gangs if times are declared",
            "less than if not",
            f"{waits[1]:.1f} min, and {waits[0]:.1f} min if not",
            waits[1] < waits[0],
        )
