"""Budgets: a week of two traces, in which the team with most jobs has a budget for each day.

The weeks are those of `lab.weeks`. Crawl has three quarters of the jobs, and a budget of 30 % of
what the cluster has in a day, with one action or another. `warn` changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from croupier.lab.cluster import SimulatedCluster
from croupier.lab.week_runs import Outcome, Rule, checks_of_waits, judged, report, run_weeks
from croupier.lab.weeks import TEAMS, Plan, openb_week, swim_week
from croupier.master.core.events import AccountingDue
from croupier.model.budget import DAY_MS, Budget, BudgetAction, BudgetPeriod
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.sim.experiment import Check, Options, Progress, Result, Table
from croupier.sim.framework import SimulatedFramework

EXPECTED = (
    "A week of the SWIM and openb traces; crawl has most jobs, and a budget of 30 % of the\n"
    "cluster for each day. Expected of SWIM: with lowest, web waits no longer than with warn;\n"
    "with block, crawl uses little more than its budget, since what runs then runs on."
)

BUDGET_PERCENT: Final = 30
# The most of the budget that is used with `block`.
MOST_USED_PERCENT: Final = 125
ACCOUNTING_S: Final = 60.0


class Budgeted(Rule):
    """Crawl has a budget with an action; `used` has the percent that it used of it each day."""

    def __init__(self, action: BudgetAction) -> None:
        super().__init__()
        self.used: dict[int, float] = {}
        self.name = action.value
        self._action = action

    def watch(self, cluster: SimulatedCluster, _: Mapping[str, SimulatedFramework], /) -> None:
        """Set the budget, and let the master account."""
        kernel = cluster.kernel
        allocator = kernel.state.allocator
        amounts = {
            name: milli * 24 * BUDGET_PERCENT // 100
            for name, milli in allocator.queries.total.items()
        }
        budget = Budget(amounts, BudgetPeriod.DAY, self._action)
        allocator.set_role(Role(TEAMS[0]), RoleSettings(budget=budget))

        def account() -> None:
            kernel.step(AccountingDue(round(kernel.now * 1000)))
            status = kernel.state.budgets[Role(TEAMS[0])]
            self.used[status.begin_ms // DAY_MS] = status.used_ppm / 10_000
            kernel.at(kernel.now + ACCOUNTING_S, account)

        account()


def run(options: Options, progress: Progress) -> Result:
    """Run both weeks with each action; raises InvalidRequest without valid traces."""
    weeks = (openb_week(options, Plan(openb_part=10)), swim_week(options, Plan()))
    rules = [partial(Budgeted, action) for action in BudgetAction]
    return compare(run_weeks(weeks, rules, options.seed, progress))


def compare(outcomes: Sequence[Outcome]) -> Result:
    """Return the waits of the teams, and what crawl used of its budget on each day."""
    days = range(outcomes[0].week.plan.days)
    used = tuple(
        (run.trace, run.rule.name, *(round(_used(run).get(day, 0.0)) for day in days))
        for run in outcomes
    )
    columns = ("trace", "rule", *(f"day {day + 1}, %" for day in days))
    table = Table("budgets_used", columns, used)
    return report("budgets", outcomes, TEAMS, _checks(judged(outcomes)), [table])


def _used(run: Outcome) -> dict[int, float]:
    assert isinstance(run.rule, Budgeted)
    return run.rule.used


def _checks(outcomes: Sequence[Outcome]) -> Iterator[Check]:
    others = [run for run in outcomes if run.rule.name != BudgetAction.BLOCK.value]
    yield from checks_of_waits(others, "web", ("web",), than=BudgetAction.WARN.value)
    for run in outcomes:
        if run.rule.name == BudgetAction.BLOCK.value:
            most = max(_used(run).values())
            yield Check(
                f"{run.trace}: most of its budget that crawl uses on a day with block",
                f"at most {MOST_USED_PERCENT} %",
                f"{most:.0f} %",
                most <= MOST_USED_PERCENT,
            )
