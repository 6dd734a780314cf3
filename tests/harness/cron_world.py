"""A world for the core of `croupier cron`: a clock that leaps, a cluster, a disk, and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from croupier.apps.controller.outcomes import Outcome
from croupier.apps.cron.core.board import Board, Stored
from croupier.apps.cron.core.job import (
    CronJob,
    Effect,
    KeepCursor,
    KeepRun,
    Kill,
    LaunchRun,
    ScheduledRun,
)


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
