"""Fair over time: a week of two traces, in which one team uses much and another comes rarely.

The weeks are those of `lab.weeks`; the half-life is a day. Each rule of `lab.fair_over_time` gets
the same jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from croupier.lab.fair_over_time import RULES
from croupier.lab.weeks import (
    DAY_S,
    TEAMS,
    Counted,
    Outcome,
    Rule,
    TeamJob,
    openb_week,
    report,
    run_weeks,
    swim_week,
)
from croupier.sim.experiment import Check, Options, Progress, Result
from croupier.sim.work import Work

EXPECTED = (
    "A week of the SWIM and openb traces: crawl uses most of the cluster, ads comes on two\n"
    "days. Expected: with a half-life, Slurm's fair tree and Karma, ads waits less on these\n"
    "days than with DRF, which does not remember what crawl has used."
)


def run(options: Options, progress: Progress) -> Result:
    """Run both weeks under each rule; raises InvalidRequest without valid traces."""
    weeks = (openb_week(options), swim_week(options))
    return compare(run_weeks(weeks, RULES, options, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits of the teams on the days of ads."""
    ads_days = outcomes[0].week.calendar.ads_days
    groups = {team: _of(team, ads_days) for team in TEAMS}
    notes = ("waits are those of jobs that came on the days of ads",)
    checks = _checks(outcomes, groups["ads"])
    return report("past_use", " on the days of ads", outcomes, groups, checks, notes=notes)


def _of(team: str, days: Sequence[int]) -> Counted:
    """Return the function that counts jobs of the team that came on one of these days."""

    def counted(each: TeamJob) -> Sequence[Work]:
        return each.works if each.team == team and each.at // DAY_S in days else ()

    return counted


def _checks(outcomes: Sequence[Outcome], of_ads: Counted) -> Iterator[Check]:
    plain = {run.trace: run.mean_wait(of_ads) for run in outcomes if type(run.rule) is Rule}
    for run in outcomes:
        if type(run.rule) is not Rule:
            wait, least = run.mean_wait(of_ads), plain[run.trace]
            yield Check(
                f"{run.trace}: mean wait of ads on its days with {run.rule.name}",
                "less than with DRF",
                f"{wait:.1f} min, and {least:.1f} min with DRF",
                wait < least,
            )
