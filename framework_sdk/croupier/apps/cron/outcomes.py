"""From a status update to what it means for a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.apps.cron.core.board import Outcome
from croupier.sdk import Reason, TaskState, TaskStatus

_LOST: Final = frozenset({TaskState.LOST, TaskState.GONE, TaskState.GONE_BY_OPERATOR})
_FAILED: Final = frozenset({TaskState.FAILED, TaskState.KILLED, TaskState.ERROR})


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a task, or that it runs; with a text for people and its exit code."""

    outcome: Outcome
    detail: str = ""
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The master knows no such task."""


def read_update(status: TaskStatus) -> Ended | Unknown | None:
    """Return what an update means; None if nothing follows from it."""
    state = status.state
    if state is TaskState.RUNNING:
        return Ended(Outcome.RUNNING)
    if state is TaskState.FINISHED:
        return Ended(Outcome.FINISHED, "", status.exit_code)
    if state is TaskState.UNKNOWN:
        return Unknown() if status.decided_in_s is None else None
    if state is TaskState.DROPPED:
        is_invalid = status.reason is Reason.TASK_INVALID
        return Ended(Outcome.FAILED if is_invalid else Outcome.NEVER_RAN, _detail(status))
    if state in _LOST:
        return Ended(Outcome.LOST, _detail(status))
    if state in _FAILED:
        return Ended(Outcome.FAILED, _detail(status), status.exit_code)
    return None


def _detail(status: TaskStatus) -> str:
    if status.state is TaskState.FAILED and status.reason in (
        Reason.NONE,
        Reason.COMMAND_EXECUTOR_FAILED,
    ):
        if status.signal is not None:
            return f"signal {status.signal}"
        if status.exit_code is not None:
            return f"exit code {status.exit_code}"
    parts = [status.state.name]
    if status.reason is not Reason.NONE and status.reason.name != status.state.name:
        parts.append(status.reason.name)
    return " ".join(parts) + (f": {status.message}" if status.message else "")
