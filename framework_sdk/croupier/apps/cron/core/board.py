"""The state of all jobs, and what events do to it.

Rule: at most one run of a job is active, and others wait behind it. Each function returns effects;
the caller records all of them in one commit before it hands over or kills a task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.apps.controller.outcomes import Outcome
from croupier.apps.cron.core.job import (
    CronJob,
    Due,
    Effect,
    KeepCursor,
    KeepRun,
    Kill,
    LaunchRun,
    Overlap,
    RunState,
    ScheduledRun,
    due_times,
    stamp,
)

# The longest pause before a task that never ran is handed over again.
MAX_PLACING_S: Final = 60.0
# A task that agents drop more often than this has failed.
MAX_DROPS: Final = 10


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored state of a job: cursor, schedule as text, and open runs."""

    cursor: int
    schedule: str
    runs: tuple[ScheduledRun, ...] = ()


@dataclass(slots=True)
class JobState:
    """One job. `job` is None if it is no longer in the file, but its last run has not ended."""

    name: str
    job: CronJob | None
    cursor: int
    next_at: int | None = None
    active: ScheduledRun | None = None
    waiting: deque[ScheduledRun] = field(default_factory=deque)

    def ready_at(self) -> float | None:
        """Return when this job has something to do next; None if only updates can change it."""
        times: list[float] = [] if self.next_at is None else [self.next_at]
        if self.active is not None and self.active.state is RunState.WAITING:
            times.append(self.active.not_before)
        return min(times, default=None)


class Board:
    """All jobs of a file."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobState] = {}

    def check(self) -> None:
        """Check the invariants."""
        for state in self.jobs.values():
            runs = [*([state.active] if state.active else []), *state.waiting]
            assert not any(run.state.has_ended for run in runs)
            assert not any(run.state.has_task for run in state.waiting)
            assert state.active is not None or not state.waiting
            assert len({run.scheduled for run in runs}) == len(runs)
            assert all(run.scheduled <= state.cursor for run in runs)

    def wake_at(self) -> float | None:
        """Return when `on_time` has something to do next."""
        times = [at for state in self.jobs.values() if (at := state.ready_at()) is not None]
        return min(times, default=None)

    def runs_with_task(self) -> list[ScheduledRun]:
        """Return the runs that may have a task in the cluster."""
        active = [state.active for state in self.jobs.values() if state.active]
        return [run for run in active if run.state.has_task]

    def has_task(self, task_id: str) -> bool:
        """Return whether this is the task of a run that has not ended."""
        return self._of(task_id) is not None

    def is_current(self, run: ScheduledRun) -> bool:
        """Return whether the task of `run` is to be handed over still."""
        state = self._of(run.task_id)
        return state is not None and not (state.active and state.active.is_replaced)

    def load(
        self, jobs: Iterable[CronJob], stored: dict[str, Stored], now: float
    ) -> Iterator[Effect]:
        """Take the jobs of the file, and what is stored about them and about earlier jobs.

        Times begin to count when a job is first seen, or seen with another schedule.
        """
        wanted = {job.name: job for job in jobs}
        for name in [*wanted, *(name for name in stored if name not in wanted)]:
            yield from self._load_job(name, wanted.get(name), stored.get(name), now)

    def on_time(self, now: float) -> Iterator[Effect]:
        """Decide on the times that are due, and start what waits for its next attempt."""
        for state in self.jobs.values():
            if state.job is not None and state.next_at is not None and state.next_at <= now:
                yield from _on_due(state, state.job, now)
            yield from _advance(state, now)

    def on_running(self, task_id: str, now: float) -> Iterator[Effect]:
        """Record that a task runs."""
        state = self._of(task_id)
        if state is not None and state.active and state.active.state is not RunState.RUNNING:
            state.active = replace(state.active, state=RunState.RUNNING, started=now)
            yield KeepRun(state.active)

    def on_end(
        self, task_id: str, outcome: Outcome, now: float, detail: str = "", code: int | None = None
    ) -> Iterator[Effect]:
        """Apply the end of a task. Tasks of earlier attempts and of others are ignored."""
        state = self._of(task_id)
        if state is None:
            return
        assert state.active is not None
        run = state.active
        ended = _ended(replace(run, exit_code=code), state.job, outcome, now, detail)
        yield KeepRun(ended)
        state.active = None if ended.state.has_ended else ended
        yield from _advance(state, now)
        self._drop_if_done(state)

    def on_unknown(self, task_id: str, now: float) -> Iterator[Effect]:
        """Apply the master's answer that it knows no such task, and has no decision pending.

        An end is recorded before it is acknowledged, so a task that was only handed over has never
        been accepted.
        """
        state = self._of(task_id)
        if state is None:
            return
        assert state.active is not None
        if state.active.state is RunState.PLACING and not state.active.is_replaced:
            yield LaunchRun(state.active)
        elif state.active.state is RunState.PLACING:
            yield from self.on_end(task_id, Outcome.NEVER_RAN, now)
        else:
            yield from self.on_end(task_id, Outcome.LOST, now, "the master no longer knows it")

    def on_removed(self, now: float) -> Iterator[Effect]:
        """Apply the removal of the framework by the master, which killed all of its tasks."""
        for run in self.runs_with_task():
            detail = "the master had removed the framework"
            yield from self.on_end(run.task_id, Outcome.LOST, now, detail)

    def _of(self, task_id: str) -> JobState | None:
        state = self.jobs.get(task_id.split(".", 1)[0])
        if state is None or state.active is None or state.active.task_id != task_id:
            return None
        return state if state.active.state.has_task else None

    def _load_job(
        self, name: str, job: CronJob | None, stored: Stored | None, now: float
    ) -> Iterator[Effect]:
        text = "" if job is None else f"{job.schedule.text} {job.schedule.zone_name}"
        cursor = int(now) if stored is None else stored.cursor
        if stored is not None and job is not None and stored.schedule != text:
            cursor = max(cursor, int(now))
        state = self.jobs[name] = JobState(name, job, cursor)
        runs = sorted(stored.runs if stored else (), key=lambda run: run.scheduled)
        for run in runs:
            if job is None and run.state is RunState.WAITING:
                yield KeepRun(run.end(RunState.SKIPPED, now, "the job is no longer in the file"))
            elif state.active is None and (run.state.has_task or run.attempt > 1):
                state.active = run
            else:
                state.waiting.append(run)
        if job is not None:
            state.next_at = job.schedule.next_after(cursor)
            if stored is None or stored.schedule != text or stored.cursor != cursor:
                yield KeepCursor(name, cursor, text)
            if state.active is None:
                yield from _advance(state, now)
        else:
            self._drop_if_done(state)

    def _drop_if_done(self, state: JobState) -> None:
        if state.job is None and state.active is None:
            del self.jobs[state.name]


def _on_due(state: JobState, job: CronJob, now: float) -> Iterator[Effect]:
    due = due_times(job, state.cursor, now)
    times = [*due.dropped, *due.late, *due.on_time]
    if not times:
        return
    if due.dropped:
        missed = ScheduledRun(job.name, due.dropped[-1])
        yield KeepRun(missed.end(RunState.MISSED, now, _missed_text(due)))
    last = times[-1]
    state.cursor, state.next_at = last, job.schedule.next_after(last)
    yield KeepCursor(job.name, last, f"{job.schedule.text} {job.schedule.zone_name}")
    for time in due.late:
        yield from _enqueue(state, job, ScheduledRun(job.name, time), now, is_late=True)
    for time in due.on_time:
        yield from _enqueue(state, job, ScheduledRun(job.name, time), now, is_late=False)


def _enqueue(
    state: JobState, job: CronJob, run: ScheduledRun, now: float, *, is_late: bool
) -> Iterator[Effect]:
    """Start a run, or do what the overlap policy says. Late runs wait for each other."""
    if state.active is None:
        state.waiting.append(run)
        yield from _advance(state, now)
        return
    if not is_late and job.overlap is Overlap.REPLACE:
        yield from _replace(state, run, now)
        return
    if not is_late and job.overlap is Overlap.SKIP:
        detail = f"the run of {stamp(state.active.scheduled)} has not ended"
        yield KeepRun(run.end(RunState.SKIPPED, now, detail))
        return
    room = max(job.catch_up, job.queue) if is_late else job.queue
    if len(state.waiting) >= room:
        yield KeepRun(run.end(RunState.SKIPPED, now, f"{len(state.waiting)} runs wait already"))
        return
    state.waiting.append(run)
    yield KeepRun(run)


def _replace(state: JobState, run: ScheduledRun, now: float) -> Iterator[Effect]:
    """Let `run` be the only one that waits, and end the active one."""
    for old in state.waiting:
        yield KeepRun(old.end(RunState.SKIPPED, now, "a later run replaced it"))
    state.waiting = deque([run])
    yield KeepRun(run)
    active = state.active
    assert active is not None
    if not active.state.has_task:
        yield KeepRun(active.end(RunState.REPLACED, now, "a later run replaced it"))
        state.active = None
        yield from _advance(state, now)
    elif not active.is_replaced:
        state.active = replace(active, is_replaced=True)
        yield KeepRun(state.active)
        yield Kill(state.active)


def _advance(state: JobState, now: float) -> Iterator[Effect]:
    """Hand over the active run if its next attempt is due, or the one that waits longest."""
    if state.active is None:
        if not state.waiting:
            return
        state.active = state.waiting.popleft()
    run = state.active
    if run.state is not RunState.WAITING or not _is_ready(run, state.job, now):
        return
    state.active = replace(run, state=RunState.PLACING, not_before=0.0)
    yield KeepRun(state.active)
    yield LaunchRun(state.active)


def _is_ready(run: ScheduledRun, job: CronJob | None, now: float) -> bool:
    """Return whether the next attempt is due; also if the clock was moved back."""
    longest = max(MAX_PLACING_S, 0.0 if job is None else job.spec.backoff.most_s)
    return not run.not_before - longest <= now < run.not_before


def _ended(
    run: ScheduledRun, job: CronJob | None, outcome: Outcome, now: float, detail: str
) -> ScheduledRun:
    """Return the run after the end of its task: ended, or waiting for another attempt."""
    if outcome is Outcome.SUCCEEDED:
        return run.end(RunState.FINISHED, now, detail)
    if run.is_replaced:
        return run.end(RunState.REPLACED, now, "a later run replaced it")
    drops = run.attempt - run.failures
    if outcome is Outcome.NEVER_RAN and drops <= MAX_DROPS:
        again_at = now + min(MAX_PLACING_S, 2.0 ** min(drops - 1, 10))
    else:
        run = replace(run, failures=run.failures + 1)
        if job is None or run.failures > job.spec.retries:
            state = RunState.LOST if outcome is Outcome.LOST else RunState.FAILED
            return run.end(state, now, detail)
        again_at = now + job.spec.backoff.pause_s(run.failures)
    return replace(
        run, state=RunState.WAITING, attempt=run.attempt + 1, not_before=again_at, detail=detail
    )


def _missed_text(due: Due) -> str:
    if due.has_more:
        return "cron did not run: this and many earlier times"
    earlier = len(due.dropped) - 1
    return "cron did not run" + (f": this and {earlier} earlier" if earlier else "")
