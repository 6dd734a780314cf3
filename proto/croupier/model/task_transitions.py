"""The states that a task can move to.

Rule: `TRANSITIONS` lists them all; any other move is an error and changes nothing.
"""

from __future__ import annotations

from croupier.model.errors import Conflict
from croupier.model.ids import TaskId
from croupier.model.task import TERMINAL, TaskState

_S = TaskState
_LIVE = frozenset({_S.STAGING, _S.STARTING, _S.RUNNING, _S.KILLING, _S.UNREACHABLE})
_ENDS = TERMINAL - {_S.ERROR}

# States that agents report; the master sets the others.
REPORTABLE = frozenset(
    {_S.STARTING, _S.RUNNING, _S.KILLING, _S.FINISHED, _S.FAILED, _S.KILLED, _S.DROPPED, _S.GONE}
)

# Like Mesos, this enforces no order among the live states, except that no task returns to STAGING.
# ERROR is for a task that was never launched. QUEUED is the first state of a submitted task, and
# that of a preempted one that is to run again.
TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    **{state: (_LIVE - {_S.STAGING}) | _ENDS | {_S.QUEUED} for state in _LIVE},
    **{state: frozenset() for state in TERMINAL},
    _S.UNKNOWN: frozenset(),
    _S.QUEUED: frozenset({_S.STAGING, _S.KILLED, _S.ERROR, _S.DROPPED, _S.LOST}),
}


def moved(task_id: TaskId, old: TaskState, new: TaskState) -> TaskState:
    """Return the state after a move from `old` to `new`; raises Conflict if it is illegal."""
    if new not in TRANSITIONS[old]:
        raise Conflict(f"task {task_id} cannot go from {old.name} to {new.name}")
    return new
