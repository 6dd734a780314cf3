"""Gangs and reservations among single tasks, on the simulated engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from croupier.lab.cluster import Node, SimulatedCluster, make_allocator
from croupier.lab.experiments import backfill
from croupier.lab.experiments.backfill import Declared, Undeclared
from croupier.lab.experiments.gangs import (
    Gathering,
    NoGathering,
    OneByOne,
    compare,
)
from croupier.lab.jobs import Job
from croupier.lab.week_runs import Rule, run_week
from croupier.lab.weeks import Plan, TeamJob, Week
from croupier.master.core.reservations import Times
from croupier.model.demand import MAX_SHAPES
from croupier.sim.framework import Habits
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

SLOT = Size.of(1, 1)
SHAPE = Shape(SLOT.resources, SLOT)
SLOTS = 8


def make() -> list[TeamJob]:
    """Return single tasks of all lengths, which fill every gap, and two gangs that come later."""
    single = [
        _job("crawl", number * 5.0, 1, 60.0 + 7 * (number % 40), f"single{number}")
        for number in range(400)
    ]
    return [*single, *(_job("web", 600.0, size, 300.0, f"gang{size}") for size in (4, 8))]


def _job(team: str, at: float, tasks: int, seconds: float, name: str) -> TeamJob:
    return TeamJob.of(team, at, Job(name, [[Work(SHAPE, seconds) for _ in range(tasks)]]))


HALF = Size(SLOT.cpus * SLOTS // 2, SLOT.mem * SLOTS // 2)
NODES = [Node(f"n{number}", HALF, HALF.resources) for number in range(2)]
WEEK = Week("test", NODES, make, Plan(1, (), 1, sample_s=60.0))


def test_gathering_ends_the_wait_of_gangs() -> None:
    rules: list[Callable[[], Rule]] = [Gathering, NoGathering, OneByOne]
    runs = [run_week(WEEK, rule(), 0, lambda _done: None) for rule in rules]

    for run in runs:
        assert all(work.started_at is not None for each in run.jobs for work in each.works)
        for each in run.jobs:
            # Nothing of a gang works before all of it does.
            assert len({work.started_at for work in each.counted}) == 1
    result = compare(runs)
    waits = {type(run.rule): run.mean_wait("2-4") for run in runs}
    assert waits[Gathering] < waits[NoGathering] / 2
    lost, given_up = [run.part("lost") for run in runs], [run.given_up for run in runs]
    # Only gathering loses free resources, and only tasks that are dealt one by one give up.
    assert lost[1] == given_up[0] == given_up[1] == 0
    assert lost[0] > 0
    assert given_up[2] > 0
    assert len(result.checks) == 5


def test_declared_times_fill_what_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "RESERVED", Times(1800_000, 2400_000))
    monkeypatch.setattr(backfill, "NOTICE_MS", 1500_000)
    runs = [run_week(WEEK, rule(), 0, lambda _done: None) for rule in (Undeclared, Declared)]

    result = backfill.compare(runs)
    assert [check.got for check in result.checks if not check.passed] == []
    undeclared, declared = (run.part("lost") for run in runs)
    assert declared < undeclared


def test_tasks_that_are_refused_are_submitted_again_later() -> None:
    cluster = SimulatedCluster([Node("n0", SLOT, SLOT.resources)], make_allocator())
    sizes = [Size(SLOT.cpus - number, SLOT.mem) for number in range(MAX_SHAPES + 6)]
    works = [Work(Shape(size.resources, size), 1.0) for size in sizes]
    team = cluster.framework("team", "team", Habits(submits=True))
    cluster.kernel.at(0.0, lambda: team.submit(works))
    cluster.run(300.0)
    assert team.waiting == team.running == 0
    assert all(work.started_at is not None for work in works)
