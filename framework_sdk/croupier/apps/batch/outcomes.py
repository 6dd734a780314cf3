"""What a status update means for a task of a batch. Pure."""

from __future__ import annotations

from croupier.apps.batch.machine import Outcome
from croupier.model.task import Reason, TaskState, TaskStatus


def outcome_of(status: TaskStatus, *, was_accepted: bool, is_stopping: bool) -> Outcome | None:
    """Return how the attempt ended; None if it has not.

    Args:
        status: the update.
        was_accepted: whether the cluster is known to have had the task.
        is_stopping: whether this command has asked to end all tasks.
    """
    if status.state is TaskState.UNKNOWN:
        if status.decided_in_s is not None:
            return None
        return Outcome.FAILED if was_accepted else Outcome.NEVER_RAN
    if not status.state.is_terminal:
        return None
    match status.state:
        case TaskState.FINISHED:
            return Outcome.SUCCEEDED
        case TaskState.KILLED if status.exit_code == 0:
            # It had done its work when it was asked to end, so it must not run again.
            return Outcome.SUCCEEDED
        case TaskState.ERROR:
            return Outcome.REFUSED
        case TaskState.DROPPED:
            return Outcome.NEVER_RAN
        case TaskState.KILLED if status.reason is Reason.KILLED_BY_FRAMEWORK:
            return Outcome.STOPPED
    # A task may answer SIGTERM with an exit code of its own.
    return Outcome.STOPPED if is_stopping else Outcome.FAILED


def reason_text(status: TaskStatus) -> str:
    """Return why an attempt failed, such as `exit code 3`."""
    if status.state is TaskState.UNKNOWN:
        return "its result is lost: the cluster does not know the task any more"
    is_own = status.reason in (Reason.NONE, Reason.COMMAND_EXECUTOR_FAILED)
    if status.state is TaskState.FAILED and is_own:
        if status.signal is not None:
            return f"signal {status.signal}"
        if status.exit_code is not None:
            return f"exit code {status.exit_code}"
    words = status.reason.name if status.reason is not Reason.NONE else status.state.name
    text = words.lower().replace("_", " ")
    return f"{text}: {status.message}" if status.message else text
