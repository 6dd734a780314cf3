"""A task's news: each move is said, remembered, and kept until it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import Checkpoint, Effect, ForgetRun, Moved, SendUpdates
from croupier.agent.core.events import Now
from croupier.agent.core.pending_updates import FIRST_RESEND_S
from croupier.agent.core.records import TaskRecord, UpdateRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Task
from croupier.model.task import Reason, Source, TaskState, TaskStatus, moved

# Of an update; what a program has to say goes to its stderr.
MAX_MESSAGE = 500


def end(
    state: AgentState,
    task: Task,
    new: TaskState,
    now: Now,
    *,
    source: Source = Source.AGENT,
    reason: Reason = Reason.NONE,
    message: str = "",
    exit_code: int | None = None,
    signal: int | None = None,
) -> Iterator[Effect]:
    """Bring a live task to a terminal state: what it held is free."""
    state.free += task.info.resources
    state.live -= 1
    state.deadlines.cancel(("kill", task.key))
    yield from say(
        state,
        task,
        new,
        now,
        source=source,
        reason=reason,
        message=message,
        exit_code=exit_code,
        signal=signal,
    )
    yield ForgetRun(task.key, task.run)


def say(
    state: AgentState,
    task: Task,
    new: TaskState,
    now: Now,
    *,
    source: Source = Source.AGENT,
    reason: Reason = Reason.NONE,
    message: str = "",
    exit_code: int | None = None,
    signal: int | None = None,
) -> Iterator[Effect]:
    """Move a task, and say so until it is acknowledged."""
    task.state = moved(task.info.task_id, task.state, new)
    status = task.status = TaskStatus(
        task.framework_id,
        task.info.task_id,
        state.agent_id,
        new,
        source,
        reason,
        message[:MAX_MESSAGE],
        task.updates.sequence + 1,
        now.wall_ms,
        exit_code,
        signal,
        task.pid,
    )
    if not task.updates.waiting:
        task.updates.restart_resending()
        if state.session is not None:
            state.deadlines.set(("resend", task.key), now.at + FIRST_RESEND_S)
    is_first = not task.updates.sequence
    task.updates.add(status)
    yield Checkpoint(
        TaskRecord(task.info, task.role, task.run, status) if is_first else UpdateRecord(status)
    )
    yield Moved(status)
    if state.session is not None:
        yield SendUpdates(state.session, (status,))
