"""Rules that remember usage: a busy team and one that comes late, on the simulated engine."""

from __future__ import annotations

from croupier.lab.cluster import Node
from croupier.lab.experiments.past_use import compare
from croupier.lab.fair_over_time import RULES
from croupier.lab.jobs import Job
from croupier.lab.week_runs import run_week
from croupier.lab.weeks import Plan, TeamJob, Week
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

SLOT = Size.of(1, 1)
SHAPE = Shape(SLOT.resources, SLOT)
TASK_S = 3600.0
SLOTS = 8


def make() -> list[TeamJob]:
    """Crawl wants everything for 36 hours; ads comes after a day, and wants everything as well."""
    jobs = [_job("crawl", hour, SLOTS) for hour in range(36)]
    return [*jobs, *(_job("ads", hour, SLOTS) for hour in range(24, 36))]


def _job(team: str, hour: int, tasks: int) -> TeamJob:
    works = [Work(SHAPE, TASK_S) for _ in range(tasks)]
    return TeamJob.of(team, hour * 3600.0, Job(f"{team}-{hour}", [works]))


def test_who_comes_late_gets_more_if_usage_is_remembered() -> None:
    size = Size(SLOT.cpus * SLOTS, SLOT.mem * SLOTS)
    week = Week("test", [Node("n0", size, size.resources)], make, Plan(2, (1,), 2))
    runs = [run_week(week, rule(), 0, lambda _done: None) for rule in RULES]

    result = compare(runs)
    assert [check.got for check in result.checks if not check.passed] == []
    assert len(result.checks) == len(RULES) - 1
    # All do the same work, and none loses any.
    assert len({run.simulated.tasks for run in runs}) == 1
    works = [work for run in runs for each in run.jobs for work in each.works]
    assert all(work.started_at is not None for work in works)

    shares = {run.rule.name: run.series.mean("ads", 26 * 3600, 32 * 3600) for run in runs}
    # Half of the cluster by share alone, and all of it by decayed use alone.
    assert 45 < shares["DRF"] < 55
    assert 55 < shares["half-life"] < 95
    assert shares["fair tree"] > 95
