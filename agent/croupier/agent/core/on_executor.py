"""Executors: their registrations, their updates, and messages.

Rule: each task is launched in its executor once. A registration lists the tasks that the executor
has; the agent then sends those that are not listed and have no update of the executor yet. An
update is recorded before the executor learns that it need not send it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.kills import kill_in_executor, kill_task
from croupier.agent.core.on_task import await_registration
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import (
    END_LOST,
    Cause,
    change_state,
    end_task,
    limit_completion,
)
from croupier.agent.core.tasks import (
    IN_EXECUTOR,
    Due,
    InExecutor,
    Key,
    KillOrder,
    LocalTask,
    Running,
)
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.executor import MESOS_API, news_size
from croupier.model.task import DEFAULT_GRACE_MS, Reason, Source, TaskState

# States that an executor may report.
REPORTABLE = frozenset({*IN_EXECUTOR, TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED})


def _on_registered(
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
        yield from _synchronise(state, child, event, now)


def _synchronise(
    state: AgentState, child: LocalTask, event: ev.ExecutorRegistered, now: ev.Now
) -> Iterator[fx.Effect]:
    """Launch a task in its executor, which has registered, or repeat its kill.

    An executor lists its tasks; one of Mesos only those that it has sent no update of.
    """
    assert isinstance(child.phase, InExecutor)
    is_listed, has_told = child.info.task_id in event.listed, bool(child.status.update_id)
    has_it = is_listed or has_told
    if child.phase.may_have_ended and not (has_it if _is_mesos(state, event.key) else is_listed):
        cause = Cause(reason=Reason.EXECUTOR_TERMINATED, message=END_LOST)
        yield from end_task(state, child, TaskState.GONE, now, cause)
    elif child.kill is not None:
        yield from kill_in_executor(state, child, InExecutor(has_it), child.kill, now)
    else:
        state.set_phase(child, InExecutor(is_sent=True))
        if not has_it:
            yield fx.ToExecutor(event.connection, fx.RunTask(child.info))


def on_event(state: AgentState, event: ev.ExecutorEvent, now: ev.Now) -> Iterator[fx.Effect]:
    """Handle an event of an executor; one of an older stream has no effect."""
    if isinstance(event, ev.ExecutorRegistered):
        yield from _on_registered(state, event, now)
        return
    executor = state.executors.get(event.key)
    if executor is None or executor.connection != event.connection:
        return
    match event:
        case ev.ExecutorLeft(key):
            # Its process may live.
            executor.connection = None
            if isinstance(state.tasks[key].phase, Running):
                await_registration(state, state.tasks[key], now)
        case ev.ExecutorUpdated((framework_id, _), _, task_id):
            task = state.tasks.get((framework_id, task_id))
            if (
                task is not None
                and task.key in executor.tasks
                and not _is_known(state, task, event)
            ):
                yield from _apply(state, task, event, now)
            yield fx.ToExecutor(event.connection, fx.UpdateDurable(task_id, event.update_id))
        case ev.ExecutorSaid(key, _, data):
            if state.session is None:
                yield fx.Dropped("to_framework")
            else:
                yield fx.SendMessage(state.session, ExecutorMessage(*key, data))


def _is_mesos(state: AgentState, executor_key: Key) -> bool:
    spec = state.tasks[executor_key].info.executor
    return spec is not None and spec.api == MESOS_API


def _is_known(state: AgentState, task: LocalTask, event: ev.ExecutorUpdated) -> bool:
    """Return whether an update was recorded before: its executor had not learnt that."""
    if _is_mesos(state, event.key):
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
