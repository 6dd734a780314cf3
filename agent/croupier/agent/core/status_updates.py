"""Status updates: each change of a task's state is recorded and sent until acknowledged.

Rule: a task that was ended for one of its limits is FAILED with the reason of that limit, and a
task that was ended on request is KILLED: the first of the two counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from signal import Signals

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Exited, Now, TaskLaunch
from croupier.agent.core.on_line import take_successor
from croupier.agent.core.records import TaskRecord, UpdateRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import (
    FIRST_RESEND_S,
    Due,
    Ended,
    Executor,
    InExecutor,
    Killing,
    LocalTask,
    PendingUpdates,
    Phase,
    Running,
    Starting,
)
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import TaskId
from croupier.model.isolation import Usage
from croupier.model.task import NO_TASK, Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.model.task_transitions import moved

END_LOST = "the agent has lost records; how the task ended is unknown"
# Characters of an update's message.
MAX_MESSAGE = 500
# States in which a short task is for a few milliseconds only.
MAY_WAIT = (TaskState.STARTING, TaskState.RUNNING)
# Reasons for which an agent ends an executor, as FAILED.
FAULTS_OF_EXECUTORS = (
    Reason.EXECUTOR_REGISTRATION_TIMEOUT,
    Reason.EXECUTOR_REREGISTRATION_TIMEOUT,
    Reason.EXECUTOR_TERMINATED,
)
_EXCEEDED = {
    Reason.MEMORY_LIMIT: "it exceeded its memory limit",
    Reason.DISK_LIMIT: "it exceeded its disk limit",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason for a change of a task's state."""

    source: Source = Source.AGENT
    reason: Reason = Reason.NONE
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage | None = None
    successor: TaskId = NO_TASK
    data: bytes = b""
    labels: tuple[tuple[str, str], ...] = ()
    update_id: bytes = b""


NO_CAUSE = Cause()


def add_task(
    state: AgentState,
    order: LaunchTask,
    phase: Starting | InExecutor | Ended,
    new: TaskState,
    now: Now,
    cause: Cause = NO_CAUSE,
) -> Iterator[fx.Effect]:
    """Add a task with its first update. A task that has ended already never held resources."""
    framework_id, info = order.framework_id, order.task
    staged = TaskStatus(framework_id, info.task_id, state.agent_id, TaskState.STAGING, Source.AGENT)
    updates = PendingUpdates(order.sequence)
    task = LocalTask(framework_id, info, order.role, phase, staged, updates, order.proof)
    state.add(task)
    if task.is_live:
        state.free -= info.resources
        state.live += 1
    yield from change_state(state, task, phase, new, now, cause)


def change_state(
    state: AgentState,
    task: LocalTask,
    phase: Phase,
    new: TaskState,
    now: Now,
    cause: Cause = NO_CAUSE,
) -> Iterator[fx.Effect]:
    """Move a task to another phase and state, and record and send an update."""
    status = TaskStatus(
        *task.key,
        state.agent_id,
        moved(task.info.task_id, task.state, new),
        cause.source,
        cause.reason,
        cause.message[:MAX_MESSAGE],
        task.updates.sequence + 1,
        now.wall_ms,
        cause.exit_code,
        cause.signal,
        phase.pid if isinstance(phase, Running | Killing) else task.pid,
        usage=cause.usage,
        successor=cause.successor,
        data=cause.data,
        labels=cause.labels,
        # The latest one of its executor, which may send it again.
        update_id=cause.update_id or task.status.update_id,
    )
    is_first = task.state is TaskState.STAGING
    state.set_phase(task, phase)
    task.status = status
    if new.is_terminal and task.group is not None:
        state.ended_in_groups.append(task.key)
    if not task.updates.waiting:
        task.updates.restart_resending()
        if state.session is not None:
            state.deadlines.set((Due.RESEND, task.key), now.at + FIRST_RESEND_S)
    task.updates.add(status)
    # An executor is told that its update is durable.
    is_short = new in MAY_WAIT and not cause.update_id
    if is_first:
        yield fx.Checkpoint(TaskRecord(task.info, task.role, task.run, status, task.proof))
    else:
        # Lazy: the run file tells of a start whose record is lost with the agent.
        yield fx.Checkpoint(UpdateRecord(status), lazy=is_short)
    yield fx.Moved(status)
    if state.session is not None:
        # No one waits for the resources of a task that was succeeded: many ends leave together.
        may_wait = is_short or bool(status.successor)
        yield fx.SendUpdates(state.session, (status,), may_wait=may_wait)


def end_task(
    state: AgentState, task: LocalTask, new: TaskState, now: Now, cause: Cause
) -> Iterator[fx.Effect]:
    """Bring a live task to a terminal state; another takes its place, or its resources are free.

    The tasks in an executor end with it: before it, so that no record of a task outlives its.
    """
    if (executor := state.executors.get(task.key)) is not None:
        for key in list(executor.tasks):
            child = state.tasks[key]
            yield from _end_child(state, child, new, cause, now)
        del state.executors[task.key]
        state.deadlines.cancel((Due.REGISTRATION, task.key))
        if executor.connection is not None:
            yield fx.CloseExecutor(executor.connection, "the executor has ended")
    if (executor_key := task.executor_key) is not None:
        del state.executors[executor_key].tasks[task.key]
    run, successor = task.run, take_successor(state, task)
    if successor is not None:
        cause = replace(cause, successor=successor.task.task_id)
    state.free += task.info.resources
    state.live -= 1
    state.deadlines.cancel((Due.KILL, task.key))
    state.deadlines.cancel((Due.TERMINATE, task.key))
    state.deadlines.cancel((Due.COMPLETION, task.key))
    yield from change_state(state, task, Ended(), new, now, cause)
    if run:
        yield fx.ForgetRun(task.key, run)
    if successor is not None:
        yield from start_task(state, TaskLaunch(successor), now)


def _end_child(
    state: AgentState, child: LocalTask, new: TaskState, cause: Cause, now: Now
) -> Iterator[fx.Effect]:
    """End a task whose executor ends as `new`, because of `cause`."""
    message = f"its executor {child.info.executor_id} ended"
    if cause.message:
        message += f": {cause.message}"
    kill, reason = child.kill, cause.reason
    if kill is not None:
        new, reason = TaskState.FAILED if kill.reason.is_limit else TaskState.KILLED, kill.reason
    elif reason is Reason.EXECUTOR_REREGISTRATION_TIMEOUT:
        new = TaskState.GONE
    elif new is TaskState.GONE or (new is TaskState.KILLED and reason.is_blameless):
        pass
    else:
        new = TaskState.FAILED
        if reason is not Reason.EXECUTOR_REGISTRATION_TIMEOUT:
            reason = Reason.EXECUTOR_TERMINATED
    yield from end_task(state, child, new, now, Cause(reason=reason, message=message))


def start_task(state: AgentState, launch: TaskLaunch, now: Now) -> Iterator[fx.Effect]:
    """Start a task, for which there is room, or hand it to its executor, which lives."""
    order = launch.order
    key = (order.framework_id, order.task.task_id)
    if order.task.executor_id:
        executor = state.executors[order.framework_id, order.task.executor_id]
        executor.tasks[key] = None
        phase = InExecutor(is_sent=executor.connection is not None)
        yield from add_task(state, order, phase, TaskState.STARTING, now)
        if executor.connection is not None:
            yield fx.ToExecutor(executor.connection, fx.RunTask(order.task))
        return
    if order.task.executor is not None:
        state.executors[key] = Executor()
    state.runs += 1
    run = f"{state.life}-{state.runs}"
    yield from add_task(state, order, Starting(run), TaskState.STARTING, now)
    yield fx.Spawn(key, run, again=order.sequence > 0, secrets=launch.secrets)


def limit_completion(state: AgentState, task: LocalTask, now: Now, age_s: float = 0.0) -> None:
    """Set the deadline of a task that has run for `age_s`.

    That age may come from a wall clock that was set meanwhile: the task gets no more time than it
    may take, and none if it seems to be older.
    """
    most_s = task.info.max_completion_ms / 1000
    if most_s:
        left_s = min(max(most_s - age_s, 0.0), most_s)
        state.deadlines.set((Due.COMPLETION, task.key), now.at + left_s)


def limit_text(info: TaskInfo, reason: Reason) -> str:
    """Return which limit a task was ended for; empty if for none."""
    if reason is Reason.TIMED_OUT:
        seconds = f"{info.max_completion_ms / 1000:.3f}".removesuffix(".000")
        return f"it did not complete within {seconds} s"
    return _EXCEEDED.get(reason, "")


def cause_of_end(task: LocalTask, event: Exited, now: Now) -> tuple[TaskState, Cause]:
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
        new = TaskState.FAILED if kill.reason in FAULTS_OF_EXECUTORS else TaskState.KILLED
        reason = kill.reason
        notes.insert(0, kill.message)
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
    usage = ending.usage and replace(ending.usage, run_ms=task.age_ms(now.at))
    return new, Cause(source, reason, message, event.exit_code, event.signal, usage)


def _how(event: Exited) -> str:
    if event.unknown:
        return "the shim of the task was killed; how the task ended is unknown"
    if event.signal is None:
        return f"exited with code {event.exit_code}"
    known = {number.value: number.name for number in Signals}
    return f"ended by signal {event.signal} ({known.get(event.signal, 'unnamed')})"
