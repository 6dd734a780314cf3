"""Statuses of tasks: updates from agents, statuses of the master's own, kills, acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from croupier.master.core import facts, task_moves
from croupier.master.core.deadlines import ResendTerminalUpdates
from croupier.master.core.effects import Effect, Happened, Save, Send, SessionId
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Updated
from croupier.master.core.records import ForgetTask
from croupier.master.core.state import State
from croupier.master.core.tasks import Delivery, Task, TaskHold
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, RecallTask
from croupier.model.ids import NO_HOLD, AgentId, FrameworkId, TaskId
from croupier.model.resources import NOTHING
from croupier.model.task import MASTER_SEQUENCE, NO_TASK, TERMINAL, Reason, TaskState, TaskStatus
from croupier.model.task_transitions import TRANSITIONS

# States in which a task is no longer with its gang.
_LEFT = TERMINAL | {TaskState.UNREACHABLE}
# About 100 KB. A framework that leaves too much unread is disconnected.
UPDATES_AT_ONCE = 500


def on_status(state: State, status: TaskStatus, now: float) -> Iterator[Effect]:
    """Apply an update that an agent sent for the first time or again, and forward it."""
    if status.successor:
        # For masters only.
        status = replace(status, successor=NO_TASK)
    framework = state.frameworks.get(status.framework_id)
    task = framework.tasks.get(status.task_id) if framework else None
    if framework is None or task is None or task.agent_id != status.agent_id:
        # Registration adds all tasks of an agent. So an unknown task was acknowledged, and the
        # acknowledgement did not reach the agent.
        yield from acknowledge(state, status)
        yield Happened(facts.UpdateHandled("unknown"))
    elif task.is_orphan or status.sequence <= min(task.sequence, task.acknowledged):
        # It was acknowledged; or the terminal status that the master recorded is final.
        yield from acknowledge(state, status)
        yield Happened(facts.UpdateHandled("stale"))
    else:
        if status.sequence > task.sequence:
            # The agent has what an executor says until it is acknowledged.
            kept = status.without_data()
            task.has_data = kept is not status
            yield from _apply(state, task, kept)
            yield from _end_queued_in(state, task, now)
        yield from receive(state, framework, task, status)


def set_status(
    state: State, task: Task, new: TaskState, reason: Reason, message: str
) -> Iterator[Effect]:
    """Set a live status on behalf of the agent, and send it.

    The ledger never withdraws UNREACHABLE. The status that follows it is not acknowledged, so the
    next master has to send one again.
    """
    assert not new.is_terminal
    status = task.master_made(new, reason, message)
    yield from _apply(state, task, status)
    if new is TaskState.UNREACHABLE:
        task.master_status = status
        yield Save(task.record())
    session = state.frameworks[task.framework_id].session
    task.is_unsent = session is None
    if session is not None:
        yield Send(session, Updated((status,)))


def end(
    state: State, task: Task, new: TaskState, reason: Reason, message: str, now: float
) -> Iterator[Effect]:
    """Record a terminal status on behalf of a lost agent."""
    assert new.is_terminal
    yield from _apply(state, task, as_master_update(task.master_made(new, reason, message)))
    task.delivery = None
    yield from _end_queued_in(state, task, now)
    # May forget a removed framework.
    yield from orphan(state, task, now)


def end_queued(
    state: State, task: Task, new: TaskState, reason: Reason, message: str, now: float
) -> Iterator[Effect]:
    """End a task that has not been placed, and never will be, with its group or gang."""
    for each in task_moves.dequeue(state, task):
        if each is task:
            yield from end(state, task, new, reason, message, now)
        else:
            unit = "group" if task.info.gang is None else "gang"
            ended = f"task {task.task_id} of its {unit} ended before it was placed: {message}"
            cause = Reason.GROUP_ENDED if task.info.gang is None else Reason.GANG_ENDED
            yield from end(state, each, TaskState.KILLED, cause, ended, now)


def _end_queued_in(state: State, executor: Task, now: float) -> Iterator[Effect]:
    """End the tasks that are queued for an executor which has ended. O(queued tasks)."""
    if executor.info.executor is None or not executor.state.is_terminal:
        return
    message = f"its executor {executor.task_id} has ended"
    for task in list(state.frameworks[executor.framework_id].queues):
        if task.info.executor_id == executor.task_id:
            reason = Reason.EXECUTOR_TERMINATED
            yield from end_queued(state, task, TaskState.DROPPED, reason, message, now)


def kill(
    state: State, task: Task, grace_ms: int | None, reason: Reason, now: float
) -> Iterator[Effect]:
    """Kill a task: now if it is queued or its agent is connected, else when the agent returns.

    Of a task whose end is kept back, the gang does not start again, and the framework is told.
    """
    if task.is_queued:
        yield from end_queued(state, task, TaskState.KILLED, reason, "killed while queued", now)
        return
    yield from request_kill(task, grace_ms, reason)
    if task.is_kept_back:
        state.ended_members.append(task)
    else:
        yield from order_kill(state, task, now)


def request_kill(task: Task, grace_ms: int | None, reason: Reason) -> Iterator[Effect]:
    """Record in the ledger that a task is to be killed."""
    before = task.kill
    task.request_kill(grace_ms, reason)
    # The removal of the framework is saved with the framework.
    if task.kill != before and reason is not Reason.FRAMEWORK_REMOVED:
        yield Save(task.record())


def order_kill(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Order the requested kill, if the task's agent is connected.

    A lined-up task is recalled: its agent's answer tells whether there is anything to kill.
    """
    kill = task.kill
    assert kill is not None
    agent = state.agents.get(task.agent_id)
    if agent is None or agent.session is None:
        return
    if task.is_lined_up:
        yield from recall(state, task)
        return
    # Of two orders, an agent obeys the one that is due first.
    due = now + (task.info.grace_ms if kill.grace_ms is None else kill.grace_ms) / 1000
    task.kill = replace(kill, due=due if kill.due is None else min(kill.due, due))
    is_own = kill.reason is Reason.KILLED_BY_FRAMEWORK
    epoch = state.frameworks[task.framework_id].epoch if is_own else 0
    message = KillTask(task.framework_id, task.task_id, kill.grace_ms, kill.reason, epoch)
    yield Send(agent.session, message)


def recall(state: State, task: Task) -> Iterator[Effect]:
    """Ask the agent of a lined-up task to return it, unless that was asked before."""
    session = state.agents[task.agent_id].session
    if session is not None and not task.is_recalled:
        task.is_recalled = True
        yield Send(session, RecallTask(task.framework_id, task.task_id))
        yield Happened(facts.TaskLined("recalled"))


def acknowledge(state: State, status: TaskStatus) -> Iterator[Effect]:
    """Acknowledge an update to its agent."""
    agent = state.agents.get(status.agent_id)
    if agent is not None and agent.session is not None and status.sequence:
        message = AcknowledgeUpdate(status.framework_id, status.task_id, status.sequence)
        yield Send(agent.session, message)


def orphan(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Send the terminal update of a task that its agent has no record of, until acknowledged."""
    assert task.state.is_terminal
    if task.is_orphan:
        return
    task.hold_as(TaskHold.ORPHANED)
    task_moves.slim_task(state, task)
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop(task.key, None)
    framework = state.frameworks[task.framework_id]
    if framework.is_removed:
        yield from drop(state, task)
        forget_removed(state, task.framework_id)
        return
    # It outlives its hold, whose id another may get.
    task.hold_id, task.held = NO_HOLD, NOTHING
    task.master_status = task.status
    yield Save(task.record())
    if framework.session is not None:
        if task.delivery is None or task.delivery.session != framework.session:
            task.delivery = Delivery(framework.session)
            yield Send(framework.session, Updated((as_master_update(task.status),)))
        schedule_resend(state, framework, now)


def send_updates(session: SessionId, statuses: Sequence[TaskStatus]) -> Iterator[Effect]:
    """Send many updates in messages of bounded size."""
    for start in range(0, len(statuses), UPDATES_AT_ONCE):
        yield Send(session, Updated(tuple(statuses[start : start + UPDATES_AT_ONCE])))


def as_master_update(status: TaskStatus) -> TaskStatus:
    """Return a terminal update as the master sends it: it follows no updates of the agent."""
    return replace(status, sequence=MASTER_SEQUENCE)


def reconciled(task: Task, session: SessionId) -> TaskStatus:
    """Return the latest status, in answer to RECONCILE; it counts as sent on this session.

    Without its data it replaces no update: that has to be acknowledged by itself.
    """
    if task.has_data and not task.is_orphan and task.acknowledged < task.status.sequence:
        return replace(task.status, sequence=0, is_reconciled=True)
    if task.is_kept_back:
        running = task.master_made(TaskState.RUNNING, Reason.RECONCILIATION, "")
        return replace(running, is_reconciled=True)
    status = as_master_update(task.status) if task.is_orphan else task.status
    if status.needs_acknowledgement:
        sent = task.sent_on(session)
        has_end = sent.has_end or status.state.is_terminal
        task.delivery = Delivery(session, max(sent.sequence, status.sequence), has_end)
    return replace(status, is_reconciled=True)


def schedule_resend(state: State, framework: Framework, now: float) -> None:
    """Schedule a resend of the terminal updates that are not acknowledged by then."""
    resend = ResendTerminalUpdates(framework.framework_id)
    state.deadlines.set_at_most(resend, now + state.settings.resend_s)


def resend_terminal_updates(state: State, framework: Framework, now: float) -> Iterator[Effect]:
    """Send the terminal updates of all orphans. O(the framework's tasks)."""
    assert framework.session is not None
    orphans = [task for task in framework.tasks.values() if task.is_orphan]
    for task in orphans:
        task.delivery = Delivery(framework.session)
    yield from send_updates(framework.session, [as_master_update(task.status) for task in orphans])
    if orphans:
        schedule_resend(state, framework, now)


def drop(state: State, task: Task) -> Iterator[Effect]:
    """Forget a task whose terminal update was acknowledged.

    The ledger forgets it before its agent does: a task in the ledger that its agent does not list
    never arrived there.
    """
    was_live = not task.state.is_terminal
    task_moves.drop_task(state, task)
    if was_live:
        yield from check_drain(state, task.agent_id)
    framework = state.frameworks[task.framework_id]
    if framework.may_repeat_accept(task):
        framework.retained.setdefault(task.seq, []).append(task.task_id)
        yield Save(task.record(is_acknowledged=True))
    else:
        yield Save(ForgetTask(task.framework_id, task.task_id))


def forget_all(framework: Framework, task_ids: list[TaskId]) -> Iterator[Effect]:
    """Delete the records of tasks that were dropped before."""
    for task_id in task_ids:
        yield Save(ForgetTask(framework.framework_id, task_id))


def forget_removed(state: State, framework_id: FrameworkId) -> None:
    """Forget a removed framework once its last task and its holds have ended."""
    framework = state.frameworks.get(framework_id)
    if framework is None or not framework.is_removed or framework.tasks:
        return
    if all(hold.framework_id != framework_id for hold in state.holds.values()):
        state.forget_framework(framework)


def _apply(state: State, task: Task, status: TaskStatus) -> Iterator[Effect]:
    if status.state not in TRANSITIONS[task.state]:
        # A late update of an ended task: its number counts, its state does not.
        task.sequence = max(task.sequence, status.sequence)
        return
    is_new = status.state != task.state
    task.move(status)
    if is_new and task.info.gang is not None and status.state in _LEFT:
        state.ended_members.append(task)
    if status.state.is_terminal:
        was_killed = task.kill is not None and task.kill.reason is Reason.PREEMPTED
        if not was_killed and state.preemptor.is_ending(task.key):
            yield Happened(facts.PreemptionEnded(task.framework_id, task.task_id, "yielded"))
        task_moves.release_task(state, task)
        if not task.is_kept_back:
            task_moves.slim_task(state, task)
        if is_new:
            framework = state.frameworks[task.framework_id]
            framework.ended += 1
            begun_ms = task.begun_ms or task.started_ms
            if begun_ms and status.state in (TaskState.FINISHED, TaskState.FAILED):
                # A negative time is that of a clock that was set back.
                ms = max(status.time_ms - begun_ms, 1)
                state.durations.note(framework.name, task.role, task.info.name, ms)
            yield from check_drain(state, task.agent_id)
    if is_new:
        yield Happened(moved_fact(status))


def moved_fact(status: TaskStatus) -> facts.TaskMoved:
    """Return the fact that a task has this status now."""
    return facts.TaskMoved(
        status.framework_id,
        status.task_id,
        status.agent_id,
        status.state,
        status.source,
        status.reason,
        status.message,
    )


def check_drain(state: State, agent_id: AgentId) -> Iterator[Effect]:
    """Report that the drain of an agent is done, if the task that has ended was its last one."""
    agent = state.agents.get(agent_id)
    if agent is not None and agent.drain is not None and agent.is_empty:
        yield Happened(facts.AgentDrained(agent.agent_id, agent.hostname))


def receive(state: State, framework: Framework, task: Task, status: TaskStatus) -> Iterator[Effect]:
    """Send an update to its framework, unless it is early, stale, or an end that is kept back."""
    if framework.is_removed:
        yield from acknowledge(state, status)
        yield Happened(facts.UpdateHandled("unknown"))
        if task.state.is_terminal and status.sequence >= task.sequence:
            yield from drop(state, task)
            forget_removed(state, framework.framework_id)
    elif framework.session is None or (task.is_kept_back and status.state.is_terminal):
        yield Happened(facts.UpdateHandled("waiting"))
    else:
        sent = task.sent_on(framework.session)
        if _is_early(task, status, sent):
            yield Happened(facts.UpdateHandled("waiting"))
        elif sent.has_end and not status.state.is_terminal:
            # RECONCILE was answered with the terminal update. The next update is not early.
            task.delivery = replace(sent, sequence=max(sent.sequence, status.sequence))
            yield Happened(facts.UpdateHandled("stale"))
        else:
            task.delivery = Delivery(framework.session, status.sequence, sent.has_end)
            yield Send(framework.session, Updated((status,)))
            yield Happened(facts.UpdateHandled("forwarded"))


def _is_early(task: Task, status: TaskStatus, sent: Delivery) -> bool:
    """Return whether earlier updates have not been sent to the framework.

    They arrived while it was disconnected. Its agents were ordered to resend them on its return.
    """
    return status.sequence > max(task.acknowledged, sent.sequence) + 1
