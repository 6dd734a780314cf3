"""Fair over time: a week of two traces, in which one team uses much and another comes rarely.

The weeks are those of `lab.weeks`; the half-life is a day. Each rule of `lab.fair_over_time` gets
the same jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from croupier.lab.fair_over_time import RULES
from croupier.lab.week_runs import Outcome, checks_of_waits, report, run_weeks
from croupier.lab.weeks import DAY_S, TEAMS, Plan, openb_week, swim_week
from croupier.sim.experiment import Options, Progress, Result

EXPECTED = (
    "A week of the SWIM and openb traces: crawl uses most of the cluster, ads comes on two\n"
    "days. Expected: with a half-life, Slurm's fair tree and Karma, ads waits less on these\n"
    "days than with DRF, which does not remember what crawl has used."
)


def run(options: Options, progress: Progress) -> Result:
    """Run both weeks under each rule; raises InvalidRequest without valid traces."""
    weeks = (openb_week(options, Plan()), swim_week(options, Plan()))
    return compare(run_weeks(weeks, RULES, options.seed, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits of the teams on the days of ads."""
    for run in outcomes:
        for each in run.jobs:
            if each.at // DAY_S not in run.week.plan.ads_days:
                each.group = ""
    checks = checks_of_waits(outcomes, "ads on its days", ("ads",), than="DRF")
    notes = ("waits are those of jobs that came on the days of ads",)
    return report("past_use", outcomes, TEAMS, checks, notes=notes)
