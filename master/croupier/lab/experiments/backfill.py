"""Backfill: the same days with and without declared times, beside gangs and a reservation.

The days and the gangs are those of `experiments.gangs`. Web reserves a third of the agents from 12
to 14 h of the first day, with a notice of 4 hours. Undeclared, no task of others may start on these
agents in that time, since its end is unknown. Declared times are a fifth longer than the
tasks; then tasks that end in time may start there, and in the first half of a gathering.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, log2
from typing import Final

from croupier.lab.cluster import SimulatedCluster
from croupier.lab.experiments.gangs import NO_GANG, SIZES, Gathering, days
from croupier.lab.week_runs import Outcome, checks_of_waits, judged, report, run_weeks
from croupier.lab.weeks import TeamJob
from croupier.master.core.events import AccountingDue
from croupier.master.core.reservation_commands import CreateReservation
from croupier.master.core.reservations import NewReservation, Times
from croupier.model.budget import HOUR_MS
from croupier.model.ids import Role
from croupier.sim.experiment import Check, Options, Progress, Result
from croupier.sim.framework import SimulatedFramework

EXPECTED = (
    "Days of the SWIM and openb traces, with gangs, and with a reservation of a third of the\n"
    "agents. Expected of SWIM: if tasks declare how long they run, less of the cluster is\n"
    "lost to what is reserved, and single tasks wait less."
)

RESERVED: Final = Times(12 * HOUR_MS, 14 * HOUR_MS)
NOTICE_MS: Final = 4 * HOUR_MS
PART_OF_AGENTS: Final = 3


class Undeclared(Gathering):
    """No task says how long it runs."""

    name = "undeclared"

    def watch(self, cluster: SimulatedCluster, _: Mapping[str, SimulatedFramework], /) -> None:
        """Make the reservation."""
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
    rules = (Undeclared, Declared)
    return compare(run_weeks(days(options), rules, options.seed, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits by size of the gang, and what was lost."""
    return report("backfill", outcomes, (NO_GANG, *SIZES), _checks(judged(outcomes)))


def _checks(outcomes: Sequence[Outcome]) -> Iterator[Check]:
    yield from checks_of_waits(outcomes, "single tasks", (NO_GANG,), than=Undeclared.name)
    for without, declared in zip(outcomes[::2], outcomes[1::2], strict=True):
        before, after = without.part("lost"), declared.part("lost")
        yield Check(
            f"{without.trace}: part of the cluster that is lost if times are declared",
            "less than if not",
            f"{after:.2f} %, and {before:.2f} % if not",
            after < before,
        )
