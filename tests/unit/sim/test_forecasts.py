"""Forecasts on the simulated engine: tasks of an hour, of one team, come as foretold."""

from __future__ import annotations

import pytest

from croupier.lab.cluster import Node
from croupier.lab.experiments import forecasts
from croupier.lab.experiments.forecasts import Asker, table_rows
from croupier.lab.jobs import Job
from croupier.lab.week_runs import run_week
from croupier.lab.weeks import Plan, TeamJob, Week
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

SLOT = Size.of(1, 1)
SHAPE = Shape(SLOT.resources, SLOT)
SLOTS = 4
TASK_S = 3600.0


def make() -> list[TeamJob]:
    """Return a job of 12 hours on all slots, and one of 3 that arrives with it."""
    sizes = {"crawl": 12 * SLOTS, "web": 3 * SLOTS}
    return [
        TeamJob.of(team, 0.0, Job(team, [[Work(SHAPE, TASK_S) for _ in range(tasks)]]))
        for team, tasks in sizes.items()
    ]


def test_exact_durations_are_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "FIRST_S", 4.25 * TASK_S)
    size = Size(SLOT.cpus * SLOTS, SLOT.mem * SLOTS)
    week = Week("test", [Node("n0", size, size.resources)], make, Plan(1, (), 1))
    asker = Asker(seed=1)
    run_week(week, asker, 0, lambda _done: None)
    assert len(asker.asked) > 10
    for each in asker.asked:
        assert each.median_s is not None
        assert each.start_s is not None
        # A fifth is the width of a bucket.
        assert each.start_s <= each.median_s <= each.start_s * 1.2 + TASK_S * 0.2
    rows = table_rows("test", asker.asked)
    assert sum(int(row[2]) for row in rows if row[2]) == len(asker.asked)
    assert rows[-1] == ("test", "not foretold", 0, "", "", "")
