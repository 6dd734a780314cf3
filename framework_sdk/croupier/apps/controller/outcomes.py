"""Outcomes: the meaning of a task's end to the controller that launched it. Pure.

Rule: exit code 0 is success, also after a request to end: the program says that its work is done.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from croupier.model.task import Reason, TaskState, TaskStatus


class Outcome(Enum):
    """How an attempt ended.

    Attributes:
        SUCCEEDED: with exit code 0.
        FAILED: in any other way, after it may have begun.
        LOST: with its agent, or with the cluster's memory of it; it may have run.
        REFUSED: it can never run.
        NEVER_RAN: it is not known to the cluster, or was dropped before it began.
        DEFERRED: the master takes no more such tasks now.
        STOPPED: its framework killed or withdrew it.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    REFUSED = "refused"
    NEVER_RAN = "never ran"
    DEFERRED = "deferred"
    STOPPED = "stopped"


_BY_STATE: Final = {
    TaskState.FINISHED: Outcome.SUCCEEDED,
    TaskState.FAILED: Outcome.FAILED,
    TaskState.KILLED: Outcome.FAILED,
    TaskState.ERROR: Outcome.REFUSED,
    TaskState.DROPPED: Outcome.NEVER_RAN,
    TaskState.LOST: Outcome.LOST,
    TaskState.GONE: Outcome.LOST,
    TaskState.GONE_BY_OPERATOR: Outcome.LOST,
}


def outcome_of(status: TaskStatus, *, was_accepted: bool = True) -> Outcome | None:
    """Return how an attempt ended; None if it has not, or the master will tell later.

    `was_accepted` says whether the cluster is known to have had the task.
    """
    match status.state:
        case TaskState.UNKNOWN if status.decided_in_s is None:
            return Outcome.LOST if was_accepted else Outcome.NEVER_RAN
        case TaskState.KILLED if status.exit_code == 0:
            return Outcome.SUCCEEDED
        case TaskState.KILLED if status.reason is Reason.KILLED_BY_FRAMEWORK:
            return Outcome.STOPPED
        case TaskState.DROPPED if status.reason is Reason.TASK_INVALID:
            return Outcome.REFUSED
    return _BY_STATE.get(status.state)


def is_blameless(status: TaskStatus) -> bool:
    """Return whether the end of a task tells nothing about its program."""
    if status.reason in (Reason.GROUP_ENDED, Reason.GANG_ENDED):
        # A task beside it has failed: the group or gang is one program to its owner.
        return False
    return status.reason.is_blameless or outcome_of(status) in (Outcome.LOST, Outcome.NEVER_RAN)


def own_end(status: TaskStatus) -> str:
    """Return `signal 9` or `exit code 3` if the program ended by itself; else nothing."""
    is_own = status.reason in (Reason.NONE, Reason.COMMAND_EXECUTOR_FAILED)
    if status.state is not TaskState.FAILED or not is_own:
        return ""
    if status.signal is not None:
        return f"signal {status.signal}"
    return "" if status.exit_code is None else f"exit code {status.exit_code}"


def state_text(status: TaskStatus) -> str:
    """Return the state with its reason and message, such as `KILLED (PREEMPTED): for ads`."""
    says_more = status.reason is not Reason.NONE and status.reason.name != status.state.name
    reason = f" ({status.reason.name})" if says_more else ""
    return f"{status.state.name}{reason}" + (f": {status.message}" if status.message else "")
