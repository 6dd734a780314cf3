"""Budgets on the simulated engine: what follows for the team that has one, and for others."""

from __future__ import annotations

from croupier.lab.cluster import Node
from croupier.lab.experiments.budgets import Budgeted, compare
from croupier.lab.jobs import Job
from croupier.lab.week_runs import run_week
from croupier.lab.weeks import Plan, TeamJob, Week
from croupier.model.budget import BudgetAction
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

SLOT = Size.of(1, 1)
SHAPE = Shape(SLOT.resources, SLOT)
SLOTS = 8
TASK_S = 3600.0


def make() -> list[TeamJob]:
    """Crawl wants everything for a day; web comes after half of it, and wants as much."""
    of_web = [_job("web", hour, SLOTS) for hour in range(12, 24)]
    return [*(_job("crawl", hour, SLOTS) for hour in range(24)), *of_web]


def _job(team: str, hour: int, tasks: int) -> TeamJob:
    works = [Work(SHAPE, TASK_S) for _ in range(tasks)]
    return TeamJob.of(team, hour * 3600.0, Job(f"{team}-{hour}", [works]))


def test_what_follows_once_a_budget_is_used_up() -> None:
    size = Size(SLOT.cpus * SLOTS, SLOT.mem * SLOTS)
    calendar = Plan(1, (), 1)
    week = Week("test", [Node("n0", size, size.resources)], make, calendar)
    rules = {action: Budgeted(action) for action in BudgetAction}
    runs = [run_week(week, rule, 0, lambda _done: None) for rule in rules.values()]

    result = compare(runs)
    assert [check.got for check in result.checks if not check.passed] == []
    assert len({run.simulated.tasks for run in runs}) == 1
    on_first_day = {action: rule.used[0] for action, rule in rules.items()}
    assert on_first_day[BudgetAction.WARN] > 200
    # Crawl gets all that web does not want.
    assert 150 < on_first_day[BudgetAction.LOWEST] <= on_first_day[BudgetAction.WARN]
    assert 100 <= on_first_day[BudgetAction.BLOCK] <= 115
    # What crawl did not get on the first day it gets on later ones.
    ends = {run.rule.name: run.simulated.virtual_s for run in runs}
    assert ends["block"] > 1.5 * ends["warn"]
