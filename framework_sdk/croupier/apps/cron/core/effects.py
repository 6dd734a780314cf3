"""What the core orders from the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from croupier.apps.cron.core.run import ScheduledRun


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
