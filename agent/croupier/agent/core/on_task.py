"""The life of tasks: launched, started, asked to end, ended."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from croupier.agent.core.effects import (
    Effect,
    Force,
    Moved,
    SendUpdates,
    Signal,
    Spawn,
)
from croupier.agent.core.events import Exited, Kill, Now
from croupier.agent.core.on_session import introduce
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, Task
from croupier.agent.core.updates import FIRST_RESEND_S
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role, check_id
from croupier.model.resources import NOTHING
from croupier.model.task import (
    Command,
    Reason,
    Source,
    TaskInfo,
    TaskState,
    TaskStatus,
    moved,
)

# Of an update; what a program has to say goes to its stderr.
MAX_MESSAGE = 500
# When the daemon stops, no task is given longer than this to end by itself.
STOP_GRACE_MS = 5_000


def on_launch(
    state: AgentState, framework_id: FrameworkId, info: TaskInfo, role: Role, now: Now
) -> Iterator[Effect]:
    """Start a task; one that is known already was launched by an order sent twice."""
    task = Task(framework_id, info, role)
    if task.key in state.tasks or task.key in state.voided:
        return
    state.tasks[task.key] = task
    reason, objection = _objection(state, framework_id, info)
    if objection:
        # It never held anything, so it is not counted in.
        yield from _say(state, task, TaskState.DROPPED, now, reason=reason, message=objection)
        return
    state.free -= info.resources
    state.live += 1
    yield from _say(state, task, TaskState.STARTING, now)
    yield Spawn(task.key)


def on_started(state: AgentState, key: Key, pid: int, now: Now) -> Iterator[Effect]:
    """The process runs; the state wanted it just before."""
    task = state.tasks[key]
    assert state.wants_process(key)
    task.pid = pid
    yield from _say(state, task, TaskState.RUNNING, now, source=Source.EXECUTOR)


def on_launch_failed(state: AgentState, key: Key, message: str, now: Now) -> Iterator[Effect]:
    """There is no process."""
    assert state.wants_process(key)
    reason = Reason.CONTAINER_LAUNCH_FAILED
    yield from _end(state, state.tasks[key], TaskState.FAILED, now, reason=reason, message=message)


def on_exited(state: AgentState, event: Exited, now: Now) -> Iterator[Effect]:
    """The process has ended, and what was left of its group with it."""
    if state.voided.pop(event.key, None) is not None:
        yield from introduce(state, now)
        return
    task = state.tasks[event.key]
    message = _how(event)
    if task.kill is not None:
        new, reason = TaskState.KILLED, task.kill
    elif event.exit_code == 0:
        new, reason, message = TaskState.FINISHED, Reason.NONE, ""
    else:
        new, reason = TaskState.FAILED, Reason.COMMAND_EXECUTOR_FAILED
    yield from _end(
        state,
        task,
        new,
        now,
        source=Source.EXECUTOR,
        reason=reason,
        message=message,
        exit_code=event.exit_code,
        signal=event.signal,
    )


def on_kill(state: AgentState, event: Kill, now: Now) -> Iterator[Effect]:
    """Ask a task to end; a second kill may shorten the grace, never lengthen it."""
    key = (event.framework_id, event.task_id)
    task = state.tasks.get(key)
    if task is not None:
        grace_ms = task.info.grace_ms if event.grace_ms is None else event.grace_ms
        yield from _kill(state, task, grace_ms, event.reason, now)
    elif key not in state.voided:
        # Whoever asks must be told that there is nothing to end, until they know it.
        nothing = TaskInfo(event.task_id, Command(), NOTHING)
        task = state.tasks[key] = Task(event.framework_id, nothing)
        message = "the agent has no such task"
        reason = Reason.TASK_UNKNOWN
        yield from _say(state, task, TaskState.GONE, now, reason=reason, message=message)


def on_stop_asked(state: AgentState, now: Now) -> Iterator[Effect]:
    """End every task, and start no more."""
    state.stopping = True
    for task in list(state.tasks.values()):
        grace_ms = min(task.info.grace_ms, STOP_GRACE_MS)
        yield from _kill(state, task, grace_ms, Reason.AGENT_STOPPED, now)


def _kill(
    state: AgentState, task: Task, grace_ms: int, reason: Reason, now: Now
) -> Iterator[Effect]:
    if not task.is_live:
        return
    if not task.pid:
        reason = reason or Reason.TASK_KILLED_DURING_LAUNCH
        message = "killed before it was started"
        yield from _end(state, task, TaskState.KILLED, now, reason=reason, message=message)
        return
    state.deadlines.set_at_most(("kill", task.key), now.at + grace_ms / 1000)
    if task.kill is None:
        task.kill = reason
        yield from _say(state, task, TaskState.KILLING, now, reason=reason)
        yield Signal(task.key, task.pid, Force.ASK)


def _objection(state: AgentState, framework_id: FrameworkId, info: TaskInfo) -> tuple[Reason, str]:
    """Why the task cannot be started here; empty if it can. The master has checked it before."""
    try:
        check_id("framework", framework_id)
        info.check()
    except InvalidRequest as error:
        return Reason.TASK_INVALID, str(error)
    if state.stopping:
        return Reason.AGENT_STOPPED, "the agent is stopping"
    if not info.resources <= state.free:
        free = state.free or "nothing"
        return Reason.INVALID_OFFERS, f"it takes {info.resources}, but the agent has {free} free"
    return Reason.NONE, ""


def _how(event: Exited) -> str:
    if event.signal is None:
        return f"exited with code {event.exit_code}"
    known = {number.value: number.name for number in Signals}
    return f"ended by signal {event.signal} ({known.get(event.signal, 'unnamed')})"


def _end(
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
    yield from _say(
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


def _say(
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
    task.updates.add(status)
    yield Moved(status)
    if state.session is not None:
        yield SendUpdates(state.session, (status,))
