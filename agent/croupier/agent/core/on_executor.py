"""Executors: their registrations, their updates, and messages.

Rule: each task is launched in its executor once. A registration lists the tasks that the executor
has; the agent then sends those that are not listed, and of which the executor has never told. An
update is recorded before the executor learns that it need not send it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.on_task import (
    NOT_STARTED,
    await_registration,
    kill_in_executor,
    kill_task,
)
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import Cause, change_state, end_task, limit_completion
from croupier.agent.core.tasks import (
    IN_EXECUTOR,
    Due,
    InExecutor,
    KillOrder,
    LocalTask,
    Running,
)
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.executor import MESOS_API, news_size
from croupier.model.task import DEFAULT_GRACE_MS, Reason, Source, TaskState

# States that an executor may report.
REPORTABLE = frozenset({*IN_EXECUTOR, TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED})


def on_registered(
    state: AgentState, event: ev.ExecutorRegistered, now: ev.Now
) -> Iterator[fx.Effect]:
    """Send an executor what it has not got; its newest stream replaces an older one."""
    key, connection = event.key, event.connection
    executor, task = state.executors.get(key), state.tasks.get(key)
    if executor is None or task is None:
        yield fx.CloseExecutor(connection, "the executor has ended")
        return
    if executor.connection is not None:
        yield fx.CloseExecutor(executor.connection, "the executor has registered again")
    executor.connection, executor.has_registered = connection, True
    state.deadlines.cancel((Due.REGISTRATION, key))
    yield fx.ToExecutor(connection, fx.Welcome(key[0], state.agent_id, task.info))
    if task.kill is not None:
        # Its tasks end with it; those that it has not got are not launched any more.
        yield fx.ToExecutor(connection, fx.ShutDown(task.kill.grace_ms))
        return
    live = {child[1] for child in executor.tasks}
    for task_id in sorted(event.listed - live):
        # Its end is recorded, or the records of it are lost.
        yield fx.ToExecutor(connection, fx.EndTask(task_id, DEFAULT_GRACE_MS))
    for child_key in list(executor.tasks):
        child = state.tasks[child_key]
        has_it = child.info.task_id in event.listed or bool(child.status.update_id)
        yield from _send(state, child, connection, now, has_it=has_it)


def _send(
    state: AgentState, child: LocalTask, connection: int, now: ev.Now, *, has_it: bool
) -> Iterator[fx.Effect]:
    """Launch a task in its executor, or repeat its kill; end it if it was killed before that."""
    assert isinstance(child.phase, InExecutor)
    kill = child.phase.kill
    if kill is not None and has_it:
        yield from kill_in_executor(state, child, child.phase, kill, now)
    elif kill is not None:
        cause = Cause(reason=kill.reason, message=kill.message or NOT_STARTED)
        yield from end_task(state, child, TaskState.KILLED, now, cause)
    else:
        state.set_phase(child, InExecutor(is_sent=True))
        if not has_it:
            yield fx.ToExecutor(connection, fx.RunTask(child.info))


def on_left(state: AgentState, event: ev.ExecutorLeft, now: ev.Now) -> Iterator[fx.Effect]:
    """Wait for an executor whose stream has ended; its process may live."""
    executor = state.executors.get(event.key)
    if executor is None or executor.connection != event.connection:
        return
    executor.connection = None
    task = state.tasks[event.key]
    if isinstance(task.phase, Running):
        await_registration(state, task, now)
    yield from ()


def on_updated(state: AgentState, event: ev.ExecutorUpdated, now: ev.Now) -> Iterator[fx.Effect]:
    """Record what an executor tells of a live task of its own, unless it is known already."""
    executor = state.executors.get(event.key)
    if executor is None or executor.connection != event.connection:
        return
    key = (event.key[0], event.task_id)
    if key in executor.tasks and not _is_known(state, state.tasks[key], event):
        yield from _apply(state, state.tasks[key], event, now)
    durable = fx.UpdateDurable(event.task_id, event.update_id)
    yield fx.ToExecutor(event.connection, durable)


def _is_known(state: AgentState, task: LocalTask, event: ev.ExecutorUpdated) -> bool:
    """Return whether an update was recorded before: its executor had not learnt that."""
    spec = state.tasks[event.key].info.executor
    if spec is not None and spec.api == MESOS_API:
        waiting = {status.update_id for status in task.updates.waiting}
        return event.update_id in waiting | {task.status.update_id}
    return event.update_id <= task.status.update_id


def _apply(
    state: AgentState, task: LocalTask, event: ev.ExecutorUpdated, now: ev.Now
) -> Iterator[fx.Effect]:
    kill, new, reason = task.kill, event.state, Reason.NONE
    if new.is_terminal:
        # One that has ended by itself before the kill reached it says so.
        if kill is not None and new is TaskState.KILLED:
            new, reason = TaskState.FAILED if kill.reason.is_limit else new, kill.reason
    elif not task.updates.has_room(news_size(event.data, event.labels)):
        yield fx.Dropped("update")
        return
    else:
        # It never goes back.
        new = max(task.state, new, key=IN_EXECUTOR.index)
    cause = Cause(
        Source.EXECUTOR,
        reason,
        event.message,
        data=event.data,
        labels=event.labels,
        update_id=event.update_id,
    )
    if new.is_terminal:
        yield from end_task(state, task, new, now, cause)
        return
    before = task.state
    yield from change_state(state, task, task.phase, new, now, cause)
    if new is TaskState.KILLING:
        state.deadlines.cancel((Due.COMPLETION, task.key))
    elif new is TaskState.RUNNING and before is not new:
        limit_completion(state, task, now)


def on_said(state: AgentState, event: ev.ExecutorSaid) -> Iterator[fx.Effect]:
    """Pass a message on to the framework, if there is a session with a master."""
    executor = state.executors.get(event.key)
    if executor is None or executor.connection != event.connection:
        return
    if state.session is None:
        yield fx.Dropped("to_framework")
    else:
        yield fx.SendMessage(state.session, ExecutorMessage(*event.key, event.data))


def on_message(state: AgentState, message: ExecutorMessage) -> Iterator[fx.Effect]:
    """Pass a message on to an executor, if it is registered."""
    executor = state.executors.get((message.framework_id, message.task_id))
    if executor is None or executor.connection is None:
        yield fx.Dropped("to_executor")
    else:
        yield fx.ToExecutor(executor.connection, fx.Said(message.data))


def on_late(state: AgentState, task: LocalTask, now: ev.Now) -> Iterator[fx.Effect]:
    """End an executor that has not registered in time."""
    reason = Reason.EXECUTOR_REGISTRATION_TIMEOUT
    message = "it did not register with its agent in time"
    if state.executors[task.key].has_registered:
        reason = Reason.EXECUTOR_REREGISTRATION_TIMEOUT
        message = "it did not return to its agent in time"
    yield from kill_task(state, task, KillOrder(reason, 0, message), now)


def on_kill_ignored(state: AgentState, task: LocalTask, now: ev.Now) -> Iterator[fx.Effect]:
    """End an executor that has not ended one of its tasks in time."""
    assert task.executor_key is not None
    message = f"it ignored the kill of task {task.info.task_id}"
    order = KillOrder(Reason.EXECUTOR_TERMINATED, 0, message)
    yield from kill_task(state, state.tasks[task.executor_key], order, now)
