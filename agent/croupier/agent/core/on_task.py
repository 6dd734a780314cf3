"""The life of a task: launch, start, kill and end.

Rules:
- Each `Spawn` and each `Adopt` is answered exactly once; until then, the agent does not know
  whether the task has a process. A task that is killed meanwhile ends with the answer.
- The agent obeys no order of an older epoch of its framework. It remembers a bounded number of
  epochs, and first forgets the least recently changed ones of frameworks without tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from signal import SIGKILL

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.kills import NOT_STARTED, begin_killing, kill_task
from croupier.agent.core.on_health import on_failed_launch
from croupier.agent.core.on_line import line_up, on_recall, return_all
from croupier.agent.core.on_session import register_when_ready
from croupier.agent.core.records import ForgetFramework, ForgetTask, FrameworkRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import (
    Cause,
    add_task,
    cause_of_end,
    change_state,
    end_task,
    limit_completion,
    start_task,
)
from croupier.agent.core.tasks import (
    Adopting,
    Due,
    Ended,
    Key,
    Killing,
    KillOrder,
    LocalTask,
    Running,
    Starting,
)
from croupier.model.agent_orders import KillTask, LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.model.executor import MESOS_API
from croupier.model.health import problems_text
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, check_id
from croupier.model.isolation import cannot_enforce
from croupier.model.resources import NOTHING
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState
from croupier.model.task_checks import check_task

MOST_FRAMEWORKS = 10_000
# The longest grace of any task when the daemon stops.
STOP_GRACE_MS = 5_000
# Executors of Mesos wait for up to 15 s before they look for their agent again.
MESOS_RETURN_S = 30.0
RAN_BEFORE = (
    "a task of this id has run on this agent before, and its sandbox is still there; the master"
    " may have lost records"
)


def note_framework_epoch(
    state: AgentState, framework_id: FrameworkId, epoch: int
) -> Iterator[fx.Effect]:
    """Record the epoch of an order if it is new."""
    if epoch <= state.epochs.get(framework_id, 0):
        return
    # The latest change comes last.
    state.epochs.pop(framework_id, None)
    state.epochs[framework_id] = epoch
    yield fx.Checkpoint(FrameworkRecord(framework_id, epoch))
    if len(state.epochs) > MOST_FRAMEWORKS:
        yield from _forget_idle(state)


def _forget_idle(state: AgentState) -> Iterator[fx.Effect]:
    """Forget the older half of the frameworks without tasks. O(tasks), but rare."""
    busy = {framework_id for framework_id, _ in state.tasks}
    idle = [each for each in state.epochs if each not in busy]
    for framework_id in idle[: len(idle) // 2]:
        del state.epochs[framework_id]
        yield fx.Checkpoint(ForgetFramework(framework_id), lazy=True)


def on_launch(state: AgentState, event: ev.TaskLaunch, now: ev.Now) -> Iterator[fx.Effect]:
    """Start a task, unless it is known: then the order was sent twice.

    An unknown task with a sandbox has run and ended. Its launch is rejected, so that a master with
    an older copy of its store cannot run it a second time; but a requeued task has earlier runs.
    """
    order = event.order
    key = (order.framework_id, order.task.task_id)
    if key in state.tasks or key in state.voided or key in state.line:
        return
    if order.lined_up:
        yield from line_up(state, order, can_start=not (_ran_before(event) or event.secrets))
        return
    if not state.health.is_healthy:
        yield from refuse_for_health(state, key)
        return
    rejection = rejection_of(state, event)
    if rejection is not None:
        yield from reject(state, order, rejection, now)
        return
    yield from note_framework_epoch(state, order.framework_id, order.framework_epoch)
    yield from start_task(state, event, now)


def refuse_for_health(state: AgentState, key: Key) -> Iterator[fx.Effect]:
    """Refuse a launch for the agent's problems.

    It is not recorded: the disk may only have room for the ends of other tasks.
    """
    if state.session is not None:
        problems = problems_text(state.health.problems)
        message = f"the agent cannot launch tasks now: {problems}"
        yield fx.RefuseLaunch(state.session, key, message)


def reject(state: AgentState, order: LaunchTask, cause: Cause, now: ev.Now) -> Iterator[fx.Effect]:
    """Record a task that the agent does not start."""
    # The command and the data may be large, and are no longer needed.
    order = replace(order, task=replace(order.task, command=Command(), data=b""))
    yield from add_task(state, order, Ended(), TaskState.DROPPED, now, cause)


def on_started(
    state: AgentState, event: ev.Started | ev.Adopted, now: ev.Now
) -> Iterator[fx.Effect]:
    """Record the process of a task, and kill it if the task is no longer wanted.

    The records of a task that is adopted may lag behind.
    """
    key, pid = event.key, event.pid
    void = state.voided.get(key)
    if void is not None:
        state.set_void(key, Running(void.run, pid))
        yield fx.Signal(key, pid, SIGKILL)
        return
    task = state.tasks[key]
    phase = task.phase
    age_s: float | None = 0.0
    if isinstance(event, ev.Adopted):
        assert isinstance(phase, Adopting)
        age_s = event.age_s
    else:
        assert isinstance(phase, Starting)
        state.health.reset_failures()
    if age_s is None:
        # Since the status that the earlier life recorded last, at the start at the earliest.
        age_s = (now.wall_ms - task.status.time_ms) / 1000
    task.began_at = now.at - age_s
    running = Running(phase.run, pid)
    if task.state is TaskState.STARTING:
        cause = Cause(Source.EXECUTOR)
        yield from change_state(state, task, running, TaskState.RUNNING, now, cause)
    else:
        state.set_phase(task, running)
    await_registration(state, task, now, age_s)
    if phase.kill is not None:
        yield from begin_killing(state, task, running, phase.kill, now)
    else:
        limit_completion(state, task, now, age_s)
    yield from register_when_ready(state, now)


def on_launch_failed(state: AgentState, event: ev.LaunchFailed, now: ev.Now) -> Iterator[fx.Effect]:
    """End a task whose process could not be started."""
    if event.cause:
        yield from on_failed_launch(state, event.key[0], event.cause, now)
    if event.key in state.voided:
        yield from end_void(state, event.key, now)
        return
    task = state.tasks[event.key]
    assert isinstance(task.phase, Starting | Adopting)
    cause = Cause(
        reason=Reason.CONTAINER_LAUNCH_FAILED, message=event.message, exit_code=event.exit_code
    )
    yield from end_task(state, task, TaskState.FAILED, now, cause)
    yield from register_when_ready(state, now)


def on_not_started(state: AgentState, key: Key, now: ev.Now) -> Iterator[fx.Effect]:
    """End a task that was killed before it was started."""
    if key in state.voided:
        yield from end_void(state, key, now)
        return
    task = state.tasks[key]
    assert isinstance(task.phase, Starting | Adopting)
    assert task.phase.kill is not None
    reason = task.phase.kill.reason or Reason.TASK_KILLED_DURING_LAUNCH
    cause = Cause(reason=reason, message=task.phase.kill.message or NOT_STARTED)
    yield from end_task(state, task, TaskState.KILLED, now, cause)


def on_prepared(state: AgentState, event: ev.Prepared, now: ev.Now) -> Iterator[fx.Effect]:
    """Start a task whose image is ready, unless it was killed meanwhile."""
    if state.wants_process(event.spawn.key):
        yield event.spawn
    else:
        yield from on_not_started(state, event.spawn.key, now)


def on_exited(state: AgentState, event: ev.Exited, now: ev.Now) -> Iterator[fx.Effect]:
    """End a task whose process has ended."""
    if event.key in state.voided:
        yield from end_void(state, event.key, now)
        return
    task = state.tasks[event.key]
    new, cause = cause_of_end(task, event, now)
    yield from end_task(state, task, new, now, cause)
    yield from register_when_ready(state, now)


def on_kill(state: AgentState, event: KillTask, now: ev.Now) -> Iterator[fx.Effect]:
    """Ask a task to end; a second kill may shorten the grace, never lengthen it."""
    key = (event.framework_id, event.task_id)
    if state.is_outdated(event.framework_id, event.framework_epoch):
        yield fx.Outdated(key, event.framework_epoch)
        return
    yield from note_framework_epoch(state, event.framework_id, event.framework_epoch)
    task = state.tasks.get(key)
    if key in state.line:
        yield from on_recall(state, key)
    elif task is not None:
        grace_ms = task.info.grace_ms if event.grace_ms is None else event.grace_ms
        yield from kill_task(state, task, KillOrder(event.reason, grace_ms), now)
    elif key not in state.voided:
        # Sent until acknowledged: the framework must learn that there is nothing to kill.
        info = TaskInfo(event.task_id, Command(), NOTHING)
        order = LaunchTask(event.framework_id, info, DEFAULT_ROLE)
        cause = Cause(reason=Reason.TASK_UNKNOWN, message="the agent has no such task")
        yield from add_task(state, order, Ended(), TaskState.GONE, now, cause)


def on_stop_requested(state: AgentState, now: ev.Now) -> Iterator[fx.Effect]:
    """End every task, and start no more."""
    state.stopping = True
    for task in list(state.tasks.values()):
        grace_ms = min(task.info.grace_ms, STOP_GRACE_MS)
        yield from kill_task(state, task, KillOrder(Reason.AGENT_STOPPED, grace_ms), now)
    yield from return_all(state)


def await_registration(state: AgentState, task: LocalTask, now: ev.Now, age_s: float = 0.0) -> None:
    """Set the deadline of an executor, which has run for `age_s`, to register."""
    executor = state.executors.get(task.key)
    if executor is None or executor.connection is not None:
        return
    assert task.info.executor is not None
    left_s = task.info.executor.registration_s - max(age_s, 0.0)
    if executor.has_registered:
        # One that an earlier life started, and that has told of no task, may never have registered.
        is_certain = not age_s or any(state.tasks[each].status.update_id for each in executor.tasks)
        return_s = state.reregistration_s
        if task.info.executor.api == MESOS_API:
            return_s = max(return_s, MESOS_RETURN_S)
        left_s = return_s if is_certain else max(left_s, return_s)
    state.deadlines.set((Due.REGISTRATION, task.key), now.at + left_s)


def end_void(state: AgentState, key: Key, now: ev.Now) -> Iterator[fx.Effect]:
    """Forget a void task that has no process."""
    run = state.voided[key].run
    state.set_void(key, None)
    yield fx.Checkpoint(ForgetTask(*key))
    yield fx.ForgetRun(key, run)
    yield fx.Forget(key)
    yield from register_when_ready(state, now)


def rejection_of(state: AgentState, launch: ev.TaskLaunch) -> Cause | None:
    """Return why the task cannot be started here; None if it can. The master checked it before."""
    order, info = launch.order, launch.order.task
    try:
        check_id("framework", order.framework_id)
        check_task(info)
    except InvalidRequest as error:
        return Cause(reason=Reason.TASK_INVALID, message=str(error))
    reason = Reason.INVALID_OFFERS
    if state.stopping:
        reason, message = Reason.AGENT_STOPPED, "the agent is stopping"
    elif state.is_outdated(order.framework_id, order.framework_epoch):
        message = "a newer run of the framework has taken over"
    elif _ran_before(launch):
        # The agent has forgotten the task, so its framework knew how it had ended.
        reason, message = Reason.TASK_INVALID, RAN_BEFORE
    elif not info.resources <= state.free:
        free = state.free or "nothing"
        message = f"it takes {info.resources}, but the agent has {free} free"
    elif lacks := info.needs() - state.features:
        reason, message = Reason.TASK_INVALID, cannot_enforce(lacks)
    elif launch.secrets.names != info.command.secrets.keys():
        reason, message = Reason.TASK_INVALID, "it came without the values of its secrets"
    elif info.executor_id and not _takes_tasks(state, (order.framework_id, info.executor_id)):
        reason = Reason.EXECUTOR_TERMINATED
        message = f"its executor {info.executor_id} has ended, or is about to"
    else:
        return None
    return Cause(reason=reason, message=message)


def _ran_before(launch: ev.TaskLaunch) -> bool:
    """Return whether the task has had a run here that is not known to its master."""
    return launch.has_sandbox and not launch.order.sequence


def _takes_tasks(state: AgentState, executor_key: Key) -> bool:
    executor = state.tasks.get(executor_key)
    return executor_key in state.executors and executor is not None and executor.kill is None


def on_limit_exceeded(
    state: AgentState, event: ev.LimitExceeded, now: ev.Now
) -> Iterator[fx.Effect]:
    """Kill a task at once that exceeds a limit, also in the grace of another kill."""
    task = state.tasks.get(event.key)
    if task is None or task.run != event.run:
        return
    # The start of a task that was just started is reported soon, and the event is repeated.
    if isinstance(task.phase, Running | Killing):
        order = KillOrder(event.exceeded.reason, 0, event.exceeded.message)
        yield from kill_task(state, task, order, now)
