"""Runs, each of which is one scheduled time of a job, and the effects of decisions on them.

Rule: a job has at most one run for each of its times, and its tasks have ids that follow from the
job, the time and the attempt. So nothing that is done twice makes a second task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias


class RunState(StrEnum):
    """The state of a run; the texts are those of the state file."""

    WAITING = "waiting"  # for an earlier run, or to be tried again
    PLACING = "placing"  # handed to the cluster
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"  # its agent, or the framework, was lost
    REPLACED = "replaced"  # ended for a later run
    SKIPPED = "skipped"  # by the overlap policy
    MISSED = "missed"  # by the policy for missed times

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the run."""
        return self not in _OPEN

    @property
    def has_task(self) -> bool:
        """Whether the cluster may have a task of the run."""
        return self in (RunState.PLACING, RunState.RUNNING)


_OPEN = frozenset({RunState.WAITING, RunState.PLACING, RunState.RUNNING})


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One scheduled time of a job. Times are seconds since the epoch.

    Attributes:
        attempt: number of its task, from 1. Every task that is handed over has another number.
        failures: attempts that failed.
        not_before: of the next attempt; 0 if it can start at once.
        is_replaced: whether its task is being killed for a later run.
        started: start of the last attempt.
        detail: for people: why it was skipped, how it failed.
    """

    job: str
    scheduled: int
    state: RunState = RunState.WAITING
    attempt: int = 1
    failures: int = 0
    not_before: float = 0.0
    is_replaced: bool = False
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    detail: str = ""

    @property
    def task_id(self) -> str:
        """Id of the task of the present attempt."""
        return f"{self.job}.{stamp(self.scheduled)}.{self.attempt}"

    def end(self, state: RunState, now: float, detail: str = "") -> ScheduledRun:
        """Return the run as ended."""
        assert state.has_ended
        return replace(self, state=state, ended=now, not_before=0.0, detail=detail)


def stamp(instant: int) -> str:
    """Return an instant as it stands in ids: `20260329T003000Z`."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y%m%dT%H%M%SZ")


@dataclass(frozen=True, slots=True)
class KeepRun:
    """Record a run in the state file."""

    run: ScheduledRun


@dataclass(frozen=True, slots=True)
class KeepCursor:
    """Record that all times of a job up to `cursor` are decided, with its schedule as text."""

    job: str
    cursor: int
    schedule: str


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """Hand the task of a run to the cluster, once it is recorded."""

    run: ScheduledRun


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the task of a run."""

    run: ScheduledRun


Effect: TypeAlias = KeepRun | KeepCursor | LaunchRun | Kill
