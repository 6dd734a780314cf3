"""`croupier cron` in virtual time: leaps of the clock and crashes lose no run, and double none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.apps.controller.outcomes import Outcome
from croupier.apps.cron.core.board import Board, Stored
from croupier.apps.cron.core.job import (
    CronJob,
    Effect,
    KeepCursor,
    KeepRun,
    Kill,
    LaunchRun,
    Missed,
    Overlap,
    RunState,
    ScheduledRun,
)
from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.job_file.task_spec import TaskSpec
from tests.harness.effort import portion


class CronWorld:
    """Runs a board as the command does: commit, then perform; and ends it anywhere in between."""

    def __init__(self, jobs: list[CronJob], start: float, random: Random) -> None:
        self.jobs, self.now, self.random = jobs, start, random
        self.started = start
        self.cursors: dict[str, tuple[int, str]] = {}
        self.runs: dict[tuple[str, int], ScheduledRun] = {}
        # Tasks that the cluster has accepted, with their outcome once they have ended.
        self.tasks: dict[str, Outcome | None] = {}
        self.live: set[str] = set()
        self.kills: set[str] = set()
        self.accepted: Counter[tuple[str, int]] = Counter()
        self.board = Board()
        self.restart()

    def restart(self) -> None:
        """Begin again from the disk, and reconcile."""
        self.board = Board()
        stored = {
            name: Stored(
                cursor,
                text,
                tuple(
                    r for (job, _), r in self.runs.items() if job == name and not r.state.has_ended
                ),
            )
            for name, (cursor, text) in self.cursors.items()
        }
        self.perform(self.board.load(self.jobs, stored, self.now))
        for run in self.board.runs_with_task():
            if run.task_id not in self.tasks:
                self.perform(self.board.on_unknown(run.task_id, self.now))
            elif run.is_replaced:
                self.kills.add(run.task_id)

    def perform(self, effects: Iterable[Effect], *, crashes: bool = False) -> None:
        """Commit and perform; a crash drops all from a random effect on, or the commit too."""
        ordered = list(effects)
        self.board.check()
        if crashes and self.random.random() < 0.3:
            return
        for effect in ordered:
            if isinstance(effect, KeepRun):
                self._keep(effect.run)
            elif isinstance(effect, KeepCursor):
                old = self.cursors.get(effect.job)
                assert old is None or effect.cursor >= old[0], "a cursor went back"
                self.cursors[effect.job] = (effect.cursor, effect.schedule)
        for effect in ordered:
            if crashes and self.random.random() < 0.3:
                return
            if isinstance(effect, LaunchRun):
                assert effect.run.task_id not in self.tasks, f"{effect.run.task_id} runs twice"
                self.tasks[effect.run.task_id] = None
                self.live.add(effect.run.task_id)
                self.accepted[effect.run.job, effect.run.scheduled] += 1
            elif isinstance(effect, Kill):
                self.kills.add(effect.run.task_id)

    def tick(self, *, crashes: bool = False) -> None:
        self.perform(self.board.on_time(self.now), crashes=crashes)
        if crashes:
            self.restart()

    def end_some(self, outcome: Outcome, *, crashes: bool = False) -> None:
        """End one task; a crash may come before the end is recorded, which then comes again."""
        live = sorted(self.live)
        if not live:
            return
        task_id = self.random.choice(live)
        ended = Outcome.FAILED if task_id in self.kills else outcome
        self.tasks[task_id] = ended
        self.live.remove(task_id)
        if crashes:
            self.perform(self.board.on_end(task_id, ended, self.now), crashes=True)
            self.restart()
        self.report()

    def report(self) -> None:
        """Repeat the ends of tasks, as unacknowledged updates are."""
        for run in self.board.runs_with_task():
            outcome = self.tasks.get(run.task_id)
            if outcome is not None:
                self.perform(self.board.on_end(run.task_id, outcome, self.now))

    def settle(self) -> None:
        """Let everything that is open end well."""
        for _ in range(10_000):
            if not any(state.active for state in self.board.jobs.values()):
                assert all(run.state.has_ended for run in self.runs.values()), self.runs
                return
            self.report()
            self.end_some(Outcome.SUCCEEDED)
            if not self.live:
                # What is open waits for its next attempt.
                for state in self.board.jobs.values():
                    if state.active is not None:
                        self.now = max(self.now, state.active.not_before)
                self.perform(self._attempts_only())
        raise AssertionError(f"never settles: {self.runs}")

    def _attempts_only(self) -> list[Effect]:
        """Start what waits, and decide on no further times."""
        nexts = {name: state.next_at for name, state in self.board.jobs.items()}
        for state in self.board.jobs.values():
            state.next_at = None
        effects = list(self.board.on_time(self.now))
        for name, state in self.board.jobs.items():
            state.next_at = nexts[name]
        return effects

    def _keep(self, run: ScheduledRun) -> None:
        old = self.runs.get((run.job, run.scheduled))
        assert old is None or not old.state.has_ended, f"{old} ended, and became {run}"
        self.runs[run.job, run.scheduled] = run


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
            spec=TaskSpec(retries=random.randint(0, 2)),
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
            assert len(ran) <= 1 + job.spec.retries, (run, ran)
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
