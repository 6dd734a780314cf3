"""The kill of a task: the agent asks its process, or its executor, to end it.

Rule: a second kill may shorten the grace, and never lengthens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from signal import SIGTERM, Signals

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.records import KillRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import Cause, change_state, end_task, limit_text
from croupier.agent.core.tasks import (
    Adopting,
    Due,
    Ended,
    InExecutor,
    Killing,
    KillOrder,
    LocalTask,
    Running,
)
from croupier.model.task import Reason, TaskState

NOT_STARTED = "killed before it was started"


def kill_task(
    state: AgentState, task: LocalTask, order: KillOrder, now: ev.Now
) -> Iterator[fx.Effect]:
    """Ask a task to end; a second request may shorten the grace, and has no other effect."""
    phase, before = task.phase, task.kill
    if isinstance(phase, Ended):
        return
    if before is not None:
        if before.grace_ms <= order.grace_ms:
            return
        order = replace(before, grace_ms=order.grace_ms)
    yield fx.Checkpoint(KillRecord(*task.key, order.grace_ms, order.reason, order.message))
    if isinstance(phase, Running):
        yield from begin_killing(state, task, phase, order, now)
        return
    if isinstance(phase, InExecutor):
        yield from kill_in_executor(state, task, phase, order, now)
        return
    state.set_phase(task, replace(phase, kill=order))
    if not isinstance(phase, Adopting):
        # Set during the start too: a task that stopped its shim never counts as started.
        _kill_within(state, task, order.grace_ms / 1000, now)
        if (Due.TERMINATE, task.key) in state.deadlines:
            _terminate_in_time(state, task)
        if task.info.isolation.image:
            # A pull may take minutes.
            yield fx.CancelLaunch(task.key)


def _kill_within(state: AgentState, task: LocalTask, seconds: float, now: ev.Now) -> None:
    state.deadlines.set_at_most((Due.KILL, task.key), now.at + seconds)


def _terminate_in_time(state: AgentState, task: LocalTask) -> None:
    """Leave a task its own grace after SIGTERM; what is before that is for saving its state."""
    killed_at = state.deadlines.at((Due.KILL, task.key))
    assert killed_at is not None
    grace_s = task.info.grace_ms / 1000
    state.deadlines.set_at_most((Due.TERMINATE, task.key), killed_at - grace_s)


def begin_killing(
    state: AgentState,
    task: LocalTask,
    running: Running,
    order: KillOrder,
    now: ev.Now,
) -> Iterator[fx.Effect]:
    """Ask the process of a task to end."""
    state.deadlines.cancel((Due.REGISTRATION, task.key))
    yield from _note_killing(state, task, Killing(running.run, running.pid, order), now)
    _kill_within(state, task, order.grace_ms / 1000, now)
    executor = state.executors.get(task.key)
    if executor is not None and executor.connection is not None:
        yield fx.ToExecutor(executor.connection, fx.ShutDown(order.grace_ms))
    elif order.reason is Reason.PREEMPTED and task.info.preemption.checkpoint_signal:
        _terminate_in_time(state, task)
        yield fx.Signal(task.key, running.pid, Signals(task.info.preemption.checkpoint_signal))
    else:
        yield fx.Signal(task.key, running.pid, SIGTERM)


def _note_killing(
    state: AgentState, task: LocalTask, killing: Killing | InExecutor, now: ev.Now
) -> Iterator[fx.Effect]:
    """Move a task to KILLING, unless it was killed before."""
    state.deadlines.cancel((Due.COMPLETION, task.key))
    order = killing.kill
    if task.state is TaskState.KILLING or order is None:
        state.set_phase(task, killing)
        return
    message = order.message or limit_text(task.info, order.reason)
    cause = Cause(reason=order.reason, message=message)
    yield from change_state(state, task, killing, TaskState.KILLING, now, cause)


def kill_in_executor(
    state: AgentState,
    task: LocalTask,
    phase: InExecutor,
    order: KillOrder,
    now: ev.Now,
) -> Iterator[fx.Effect]:
    """Have its executor end a task; at once if the executor has not got it.

    An executor that ignores the kill is ended after the grace, and its own shutdown grace.
    """
    assert task.executor_key is not None
    if not phase.is_sent:
        reason = order.reason or Reason.TASK_KILLED_DURING_LAUNCH
        cause = Cause(reason=reason, message=order.message or NOT_STARTED)
        yield from end_task(state, task, TaskState.KILLED, now, cause)
        return
    yield from _note_killing(state, task, replace(phase, kill=order), now)
    spec = state.tasks[task.executor_key].info.executor
    assert spec is not None
    connection = state.executors[task.executor_key].connection
    if connection is not None:
        # One that is away learns of the kill when it returns, if it does so in time.
        _kill_within(state, task, order.grace_ms / 1000 + spec.shutdown_s, now)
        yield fx.ToExecutor(connection, fx.EndTask(task.info.task_id, order.grace_ms))
