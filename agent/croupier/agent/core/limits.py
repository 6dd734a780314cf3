"""Limits of a task: its deadline to complete, and what its end says of limits that it exceeded.

Rule: a task that was ended for one of its limits is FAILED with the reason of that limit, and a
task that was ended on request is KILLED: the first of the two counts.
"""

from __future__ import annotations

from signal import Signals

from croupier.agent.core.events import Exited, Now
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import Cause
from croupier.agent.core.tasks import CompletionDeadline, LocalTask
from croupier.model.task import Reason, Source, TaskInfo, TaskState

_EXCEEDED = {
    Reason.MEMORY_LIMIT: "it exceeded its memory limit",
    Reason.DISK_LIMIT: "it exceeded its disk limit",
}


def limit_completion(state: AgentState, task: LocalTask, now: Now, age_s: float = 0.0) -> None:
    """Set the deadline of a task that has run for `age_s`.

    That age may come from a wall clock that was set meanwhile: the task gets no more time than it
    may take, and none if it seems to be older.
    """
    most_s = task.info.max_completion_ms / 1000
    if most_s:
        left_s = min(max(most_s - age_s, 0.0), most_s)
        state.deadlines.set(CompletionDeadline(task.key), now.at + left_s)


def limit_text(info: TaskInfo, reason: Reason) -> str:
    """Return which limit a task was ended for; empty if for none."""
    if reason is Reason.TIMED_OUT:
        return f"it did not complete within {_seconds(info.max_completion_ms)}"
    return _EXCEEDED.get(reason, "")


def cause_of_end(task: LocalTask, event: Exited) -> tuple[TaskState, Cause]:
    """Return the state and the cause with which a task has ended."""
    ending, kill = event.ending, task.kill
    notes = list(ending.notes)
    if ending.exceeded is not None:
        notes.insert(0, ending.exceeded.message)
    new, reason, message = TaskState.FAILED, Reason.COMMAND_EXECUTOR_FAILED, _how(event)
    if kill is not None and kill.reason.is_limit:
        reason = kill.reason
        # The limit is in the status that reported the kill.
        is_told = task.state is TaskState.KILLING and task.status.reason is reason
        text = task.status.message if is_told else ""
        # What is known at the end has the last peak.
        if ending.exceeded is None or ending.exceeded.reason is not reason:
            notes.insert(0, text or limit_text(task.info, reason))
    elif kill is not None:
        new, reason = TaskState.KILLED, kill.reason
    elif event.exit_code == 0:
        new, reason, message = TaskState.FINISHED, Reason.NONE, ""
    elif ending.exceeded is not None:
        reason = ending.exceeded.reason
    elif event.signal == Signals.SIGXFSZ:
        # The kernel's, for a file larger than the disk limit of the whole task.
        reason = Reason.DISK_LIMIT
        notes.insert(0, "one of its files grew beyond its disk limit")
    elif event.unknown:
        reason = Reason.EXECUTOR_TERMINATED
    # The limit comes first: a long message is cut. The watch and the isolator may tell the same.
    texts = (*notes, message) if reason.is_limit else (message, *notes)
    message = "; ".join(text for text in dict.fromkeys(texts) if text)
    source = Source.AGENT if event.unknown else Source.EXECUTOR
    return new, Cause(source, reason, message, event.exit_code, event.signal, ending.usage)


def _how(event: Exited) -> str:
    if event.unknown:
        return "the shim of the task was killed; how the task ended is unknown"
    if event.signal is None:
        return f"exited with code {event.exit_code}"
    known = {number.value: number.name for number in Signals}
    return f"ended by signal {event.signal} ({known.get(event.signal, 'unnamed')})"


def _seconds(ms: int) -> str:
    return f"{ms // 1000} s" if ms % 1000 == 0 else f"{ms / 1000:.3f} s"
