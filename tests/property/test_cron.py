"""`croupier cron` in virtual time: leaps of the clock and crashes lose no run, and double none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.apps.controller.outcomes import Outcome
from croupier.apps.cron.core.job import CronJob, Missed, Overlap, RunState
from croupier.apps.cron.core.schedule import Schedule
from tests.harness.cron_world import CronWorld
from tests.harness.effort import portion

# Hours before Vienna's clock leaps forward, and back.
STARTS = [
    datetime(2026, 3, 28, 20, tzinfo=UTC).timestamp(),
    datetime(2026, 10, 24, 20, tzinfo=UTC).timestamp(),
]
TEXTS = ["*/10 * * * *", "30 2 * * *", "15,45 1-3 * * *", "@hourly", "@every 90s"]


def jobs(random: Random) -> list[CronJob]:
    return [
        CronJob(
            name,
            Schedule(random.choice(TEXTS), "Europe/Vienna"),
            overlap=random.choice(list(Overlap)),
            queue=random.randint(1, 4),
            missed=random.choice(list(Missed)),
            catch_up=random.randint(1, 5),
            retries=random.randint(0, 2),
        )
        for name in ("a", "b")
    ]


def play(world: CronWorld, steps: int, *, crashes: bool, leaps: bool) -> None:
    random = world.random
    for _ in range(steps):
        match random.randrange(8):
            case 0 | 1 | 2:
                world.now += random.choice([1, 30, 90, 600, 3600])
                world.tick(crashes=crashes and random.random() < 0.3)
            case 3:
                world.end_some(Outcome.SUCCEEDED, crashes=crashes and random.random() < 0.3)
            case 4:
                world.end_some(random.choice([Outcome.FAILED, Outcome.LOST, Outcome.NEVER_RAN]))
            case 5 if leaps:
                world.now += random.choice([-7200, -3600, -60, 7200, 86_400])
                world.tick()
            case 6 if crashes:
                world.restart()
            case _:
                world.tick()


@settings(max_examples=portion(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_time_runs_twice_and_every_run_ends(seed: int) -> None:
    random = Random(seed)
    own = jobs(random)
    world = CronWorld(own, random.choice(STARTS), random)
    play(world, 80, crashes=True, leaps=True)
    world.settle()
    never = {task_id for task_id, end in world.tasks.items() if end is Outcome.NEVER_RAN}
    for job in own:
        for (name, scheduled), run in world.runs.items():
            if name != job.name:
                continue
            beginning = run.task_id.rpartition(".")[0] + "."
            mine = {task_id for task_id in world.tasks if task_id.startswith(beginning)}
            ran = mine - never
            assert len(ran) <= 1 + job.retries, (run, ran)
            assert run.state not in (RunState.SKIPPED, RunState.MISSED) or not mine
            if run.state is RunState.FINISHED:
                assert sum(world.tasks[t] is Outcome.SUCCEEDED for t in mine) == 1
            assert world.accepted[name, scheduled] == len(mine)


@settings(max_examples=portion(60), deadline=None)
@given(st.integers(0, 2**32))
def test_a_job_that_makes_up_for_all_runs_at_every_one_of_its_times(seed: int) -> None:
    random = Random(seed)
    own = [
        replace(job, overlap=Overlap.QUEUE, queue=1000, missed=Missed.ALL, catch_up=1000)
        for job in jobs(random)
    ]
    world = CronWorld(own, random.choice(STARTS), random)
    play(world, 20, crashes=True, leaps=False)
    world.tick()
    world.settle()
    for job in own:
        expected = list(job.schedule.times(int(world.started), world.cursors[job.name][0]))
        assert [s for n, s in sorted(world.runs) if n == job.name] == expected
        assert all(r.state is not RunState.SKIPPED for r in world.runs.values())


@settings(max_examples=portion(60), deadline=None)
@given(st.integers(0, 2**32))
def test_one_run_of_a_job_at_a_time(seed: int) -> None:
    random = Random(seed)
    world = CronWorld(jobs(random), random.choice(STARTS), random)
    for _ in range(60):
        play(world, 1, crashes=True, leaps=True)
        for job in world.jobs:
            live = [task_id for task_id in world.live if task_id.startswith(f"{job.name}.")]
            assert len(live) <= 1
