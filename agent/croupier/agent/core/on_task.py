"""The life of tasks: launched, started, asked to end, ended.

Rule: each `Spawn` and each `Adopt` is answered exactly once, and until then a task without a
pid may have a process or not. So a task that is asked to end meanwhile ends with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from signal import Signals

from croupier.agent.core.effects import (
    Checkpoint,
    Effect,
    Force,
    Forget,
    ForgetRun,
    Outdated,
    RefuseLaunch,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Exited, Kill, Launch, LaunchFailed, Now
from croupier.agent.core.on_framework import note_framework_epoch
from croupier.agent.core.on_health import on_failed_launch, on_started_well
from croupier.agent.core.on_session import settle
from croupier.agent.core.records import ForgetTask, KillRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import end, say
from croupier.agent.core.tasks import Key, KillOrder, Task
from croupier.model.errors import InvalidRequest
from croupier.model.health import problems_text
from croupier.model.ids import check_id
from croupier.model.resources import NOTHING
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState

# When the daemon stops, no task is given longer than this to end by itself.
STOP_GRACE_MS = 5_000
NOT_STARTED = "killed before it was started"
RAN_BEFORE = (
    "a task of this id has run on this agent before, and its sandbox is still there; the master"
    " may have lost records"
)


def on_launch(state: AgentState, order: Launch, now: Now) -> Iterator[Effect]:
    """Start a task; one that is known already was launched by an order sent twice.

    A task that has a sandbox and is not known any more has run and ended. So a master whose
    store was put back to an earlier time cannot have it run a second time.
    """
    framework_id, info = order.framework_id, order.task
    key = (framework_id, info.task_id)
    if key in state.tasks or key in state.voided:
        return
    if not state.health.is_healthy and state.takes_refusals:
        # Nothing of it is recorded: the disk may have room for the ends of other tasks only.
        if state.session is not None:
            yield RefuseLaunch(state.session, key, _unhealthy(state))
        return
    reason, objection = _objection(state, order)
    if objection:
        # It never holds anything, so it is not counted in; and its words, which may be many,
        # are of no use any more.
        refused = replace(info, command=Command())
        task = state.tasks[key] = Task(framework_id, refused, order.role)
        yield from say(state, task, TaskState.DROPPED, now, reason=reason, message=objection)
        return
    yield from note_framework_epoch(state, framework_id, order.framework_epoch)
    state.runs += 1
    task = Task(framework_id, info, order.role, f"{state.life}-{state.runs}")
    state.tasks[key] = task
    state.free -= info.resources
    state.live += 1
    yield from say(state, task, TaskState.STARTING, now)
    yield Spawn(key, task.run)


def on_started(state: AgentState, key: Key, pid: int, now: Now) -> Iterator[Effect]:
    """The process runs; it may not be wanted any more."""
    void = state.voided.get(key)
    if void is not None:
        void.pid = pid
        yield Signal(key, pid, Force.KILL)
        return
    task = state.tasks[key]
    assert task.is_live
    assert not task.pid
    task.pid = pid
    on_started_well(state)
    yield from say(state, task, TaskState.RUNNING, now, source=Source.EXECUTOR)
    if task.kill is not None:
        yield from press(state, task, now)


def on_launch_failed(state: AgentState, event: LaunchFailed, now: Now) -> Iterator[Effect]:
    """There is no process."""
    state.adopting.discard(event.key)
    if event.cause:
        yield from on_failed_launch(state, event.key[0], event.cause, now)
    if event.key in state.voided:
        yield from end_void(state, event.key, now)
        return
    task = state.tasks[event.key]
    assert task.is_live
    assert not task.pid
    yield from end(
        state,
        task,
        TaskState.FAILED,
        now,
        reason=Reason.CONTAINER_LAUNCH_FAILED,
        message=event.message,
        exit_code=event.exit_code,
    )
    yield from settle(state, now)


def on_not_started(state: AgentState, key: Key, now: Now) -> Iterator[Effect]:
    """There is no process, as was wanted."""
    if key in state.voided:
        yield from end_void(state, key, now)
        return
    task = state.tasks[key]
    assert task.is_live
    assert not task.pid
    assert task.kill is not None
    reason = task.kill.reason or Reason.TASK_KILLED_DURING_LAUNCH
    yield from end(state, task, TaskState.KILLED, now, reason=reason, message=NOT_STARTED)


def on_exited(state: AgentState, event: Exited, now: Now) -> Iterator[Effect]:
    """The process has ended, and what was left of it."""
    state.adopting.discard(event.key)
    if event.key in state.voided:
        yield from end_void(state, event.key, now)
        return
    task = state.tasks[event.key]
    message = _how(event)
    if task.kill is not None:
        new, reason = TaskState.KILLED, task.kill.reason
    elif event.unknown:
        new, reason = TaskState.FAILED, Reason.EXECUTOR_TERMINATED
    elif event.exit_code == 0:
        new, reason, message = TaskState.FINISHED, Reason.NONE, ""
    else:
        new, reason = TaskState.FAILED, Reason.COMMAND_EXECUTOR_FAILED
    yield from end(
        state,
        task,
        new,
        now,
        source=Source.AGENT if event.unknown else Source.EXECUTOR,
        reason=reason,
        message=message,
        exit_code=event.exit_code,
        signal=event.signal,
    )
    yield from settle(state, now)


def on_kill(state: AgentState, event: Kill, now: Now) -> Iterator[Effect]:
    """Ask a task to end; a second kill may shorten the grace, never lengthen it."""
    key = (event.framework_id, event.task_id)
    if state.is_outdated(event.framework_id, event.framework_epoch):
        yield Outdated(key, event.framework_epoch)
        return
    yield from note_framework_epoch(state, event.framework_id, event.framework_epoch)
    task = state.tasks.get(key)
    if task is not None:
        grace_ms = task.info.grace_ms if event.grace_ms is None else event.grace_ms
        yield from _kill(state, task, KillOrder(event.reason, grace_ms), now)
    elif key not in state.voided:
        # Whoever asks must be told that there is nothing to end, until they know it.
        nothing = TaskInfo(event.task_id, Command(), NOTHING)
        task = state.tasks[key] = Task(event.framework_id, nothing)
        message = "the agent has no such task"
        reason = Reason.TASK_UNKNOWN
        yield from say(state, task, TaskState.GONE, now, reason=reason, message=message)


def on_stop_requested(state: AgentState, now: Now) -> Iterator[Effect]:
    """End every task, and start no more."""
    state.stopping = True
    for task in list(state.tasks.values()):
        grace_ms = min(task.info.grace_ms, STOP_GRACE_MS)
        yield from _kill(state, task, KillOrder(Reason.AGENT_STOPPED, grace_ms), now)


def press(state: AgentState, task: Task, now: Now) -> Iterator[Effect]:
    """Have the process of a task that is to end do so; it has just been found or started."""
    assert task.kill is not None
    if task.state is not TaskState.KILLING:
        yield from say(state, task, TaskState.KILLING, now, reason=task.kill.reason)
    state.deadlines.set_at_most(("kill", task.key), now.at + task.kill.grace_ms / 1000)
    yield Signal(task.key, task.pid, Force.TERMINATE)


def end_void(state: AgentState, key: Key, now: Now) -> Iterator[Effect]:
    """Nothing is left of a void task."""
    void = state.voided.pop(key)
    state.adopting.discard(key)
    yield Checkpoint(ForgetTask(*key))
    yield ForgetRun(key, void.run)
    yield Forget(key)
    yield from settle(state, now)


def _kill(state: AgentState, task: Task, wish: KillOrder, now: Now) -> Iterator[Effect]:
    if not task.is_live:
        return
    before = task.kill
    if before is not None and before.grace_ms <= wish.grace_ms:
        return
    task.kill = wish if before is None else KillOrder(before.reason, wish.grace_ms)
    yield Checkpoint(KillRecord(*task.key, task.kill.grace_ms, task.kill.reason))
    if task.key in state.adopting:
        return
    if before is None and task.pid:
        yield from press(state, task, now)
    else:
        # Without a pid too: a task that has stopped its shim is never known to have started.
        state.deadlines.set_at_most(("kill", task.key), now.at + wish.grace_ms / 1000)


def _objection(state: AgentState, order: Launch) -> tuple[Reason, str]:
    """Why the task cannot be started here; empty if it can. The master has checked it before."""
    info = order.task
    try:
        check_id("framework", order.framework_id)
        info.check()
    except InvalidRequest as error:
        return Reason.TASK_INVALID, str(error)
    if state.stopping:
        return Reason.AGENT_STOPPED, "the agent is stopping"
    if state.is_outdated(order.framework_id, order.framework_epoch):
        return Reason.INVALID_OFFERS, "a newer run of the framework has taken over"
    if not state.health.is_healthy:
        return Reason.CONTAINER_LAUNCH_FAILED, _unhealthy(state)
    if order.has_sandbox:
        # The agent has forgotten the task, so its framework knew how it had ended.
        return Reason.TASK_INVALID, RAN_BEFORE
    if not info.resources <= state.free:
        free = state.free or "nothing"
        return Reason.INVALID_OFFERS, f"it takes {info.resources}, but the agent has {free} free"
    return Reason.NONE, ""


def _unhealthy(state: AgentState) -> str:
    return f"the agent cannot launch tasks now: {problems_text(state.health.problems)}"


def _how(event: Exited) -> str:
    if event.unknown:
        return "what watched over the task was killed; how the task ended is not known"
    if event.signal is None:
        return f"exited with code {event.exit_code}"
    known = {number.value: number.name for number in Signals}
    return f"ended by signal {event.signal} ({known.get(event.signal, 'unnamed')})"
