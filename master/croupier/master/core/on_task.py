"""What becomes of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from croupier.master.core.deadlines import ResendTerminalUpdates
from croupier.master.core.effects import Effect, Happened, Save, Send, SessionId
from croupier.master.core.facts import AgentDrained, PreemptionEnded, TaskMoved, UpdateHandled
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Updated
from croupier.master.core.records import ForgetTask
from croupier.master.core.state import State
from croupier.master.core.tasks import Delivery, Task, TaskHold
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import MASTER_SEQUENCE, TRANSITIONS, Reason, TaskState, TaskStatus

# A message of so many is about 100 KB; a framework is cut off that leaves too many unread.
UPDATES_AT_ONCE = 500


def on_status(state: State, status: TaskStatus) -> Iterator[Effect]:
    """Take in an update that an agent sent, once or again, and pass it on."""
    framework = state.frameworks.get(status.framework_id)
    task = framework.tasks.get(status.task_id) if framework else None
    if framework is None or task is None or task.agent_id != status.agent_id:
        # Everything a returning agent holds is taken in when it registers. What is not
        # known after that was acknowledged before, and the word did not reach the agent.
        yield from acknowledge(state, status)
        yield Happened(UpdateHandled("unknown"))
        return
    if task.is_orphan:
        # How it ended was said in its agent's place, and that stands.
        yield from acknowledge(state, status)
        yield Happened(UpdateHandled("stale"))
        return
    if status.sequence > task.sequence:
        yield from _take(state, task, status)
    elif status.sequence <= task.acknowledged:
        yield from acknowledge(state, status)
        yield Happened(UpdateHandled("stale"))
        return
    yield from _pass_on(state, framework, task, status)


def tell(
    state: State, task: Task, new: TaskState, reason: Reason, message: str
) -> Iterator[Effect]:
    """Pass a verdict of the master's own on a task that has not ended, and tell it.

    That it was unreachable is never taken back in the ledger: nobody acknowledges that it has
    returned, so the next master says that once more.
    """
    assert not new.is_terminal
    status = TaskStatus(
        task.framework_id, task.task_id, task.agent_id, new, reason=reason, message=message
    )
    yield from _take(state, task, status)
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
    """Say how a task ended, for want of an agent that could."""
    assert new.is_terminal
    status = TaskStatus(
        task.framework_id,
        task.task_id,
        task.agent_id,
        new,
        reason=reason,
        message=message,
        sequence=MASTER_SEQUENCE,
    )
    yield from _take(state, task, status)
    task.delivery = None
    yield from orphan(state, task, now)


def kill(
    state: State, task: Task, grace_ms: int | None, reason: Reason, now: float
) -> Iterator[Effect]:
    """Want a task ended, until it has: now if its agent is there, else when it returns."""
    yield from want_kill(task, grace_ms, reason)
    yield from order_kill(state, task, now)


def want_kill(task: Task, grace_ms: int | None, reason: Reason) -> Iterator[Effect]:
    """Have it in the ledger that a task is to end."""
    before = task.kill
    task.request_kill(grace_ms, reason)
    # The removal of the framework is saved with the framework.
    if task.kill != before and reason is not Reason.FRAMEWORK_REMOVED:
        yield Save(task.record())


def order_kill(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Order the kill that is wanted, if the task's agent is there."""
    kill = task.kill
    assert kill is not None
    agent = state.agents.get(task.agent_id)
    if agent is None or agent.session is None:
        return
    # An agent with two orders obeys the sooner.
    due = now + (task.info.grace_ms if kill.grace_ms is None else kill.grace_ms) / 1000
    task.kill = replace(kill, due=due if kill.due is None else min(kill.due, due))
    is_own = kill.reason is Reason.KILLED_BY_FRAMEWORK
    epoch = state.frameworks[task.framework_id].epoch if is_own else 0
    message = KillTask(task.framework_id, task.task_id, kill.grace_ms, kill.reason, epoch)
    yield Send(agent.session, message)


def acknowledge(state: State, status: TaskStatus) -> Iterator[Effect]:
    """Tell the agent that an update need not be sent again."""
    agent = state.agents.get(status.agent_id)
    if agent is not None and agent.session is not None and status.sequence:
        message = AcknowledgeUpdate(status.framework_id, status.task_id, status.sequence)
        yield Send(agent.session, message)


def orphan(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Keep an ended task that its agent has no more until its framework acknowledges the end.

    Nobody else would send its last update again, so we do.
    """
    assert task.state.is_terminal
    if task.is_orphan:
        return
    task.hold_as(TaskHold.ORPHANED)
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop((task.framework_id, task.task_id), None)
    framework = state.frameworks[task.framework_id]
    if framework.is_removed:
        yield from drop(state, task)
        forget_removed(state, task.framework_id)
        return
    task.master_status = task.status
    yield Save(task.record())
    if framework.session is not None:
        if task.delivery is None or task.delivery.session != framework.session:
            task.delivery = Delivery(framework.session)
            yield Send(framework.session, Updated((final(task.status),)))
        watch_orphans(state, framework, now)


def send_updates(session: SessionId, statuses: Sequence[TaskStatus]) -> Iterator[Effect]:
    """Tell a framework of many at once, in messages of a size that it can take."""
    for start in range(0, len(statuses), UPDATES_AT_ONCE):
        yield Send(session, Updated(tuple(statuses[start : start + UPDATES_AT_ONCE])))


def final(status: TaskStatus) -> TaskStatus:
    """An end, as we tell it: it waits for nothing that its agent might have told before."""
    return replace(status, sequence=MASTER_SEQUENCE)


def reconciled(task: Task, session: SessionId) -> TaskStatus:
    """The latest status of a task, in answer to RECONCILE on this session.

    It counts as told: to acknowledge it acknowledges the update itself.
    """
    status = final(task.status) if task.is_orphan else task.status
    if status.needs_acknowledgement:
        sent = task.sent_on(session)
        has_end = sent.has_end or status.state.is_terminal
        task.delivery = Delivery(session, max(sent.sequence, status.sequence), has_end)
    return replace(status, is_reconciled=True)


def watch_orphans(state: State, framework: Framework, now: float) -> None:
    """Have ends that we tell sent again, if they are not acknowledged for a while."""
    resend = ResendTerminalUpdates(framework.framework_id)
    state.deadlines.set_at_most(resend, now + state.settings.resend_s)


def tell_orphans(state: State, framework: Framework, now: float) -> Iterator[Effect]:
    """Tell a framework of all ends that only we can tell. O(its tasks)."""
    assert framework.session is not None
    orphans = [task for task in framework.tasks.values() if task.is_orphan]
    for task in orphans:
        task.delivery = Delivery(framework.session)
    yield from send_updates(framework.session, [final(task.status) for task in orphans])
    if orphans:
        watch_orphans(state, framework, now)


def drop(state: State, task: Task) -> Iterator[Effect]:
    """Forget a task whose end has arrived where it had to.

    The ledger forgets it before its agent does: a task that the ledger holds and its agent
    does not was never there.
    """
    was_left = not task.state.is_terminal
    state.drop_task(task)
    if was_left:
        yield from _left(state, task)
    framework = state.frameworks[task.framework_id]
    if framework.may_repeat_accept(task):
        framework.retained.setdefault(task.seq, []).append(task.task_id)
        yield Save(task.record(is_acknowledged=True))
    else:
        yield Save(ForgetTask(task.framework_id, task.task_id))


def forget_all(framework: Framework, task_ids: list[TaskId]) -> Iterator[Effect]:
    """Strike tasks from the ledger that were dropped before."""
    for task_id in task_ids:
        yield Save(ForgetTask(framework.framework_id, task_id))


def forget_removed(state: State, framework_id: FrameworkId) -> None:
    """Forget a removed framework once its last task has ended."""
    framework = state.frameworks.get(framework_id)
    if framework and framework.is_removed and not framework.tasks:
        state.allocator.remove_framework(framework_id)
        del state.frameworks[framework_id]


def _take(state: State, task: Task, status: TaskStatus) -> Iterator[Effect]:
    if status.state != task.state and status.state not in TRANSITIONS[task.state]:
        # A late word on a task that has ended: its number counts, its state does not.
        task.sequence = max(task.sequence, status.sequence)
        return
    changed = status.state != task.state
    task.move(status)
    if status.state.is_terminal:
        killed = task.kill is not None and task.kill.reason is Reason.PREEMPTED
        if not killed and state.preemptor.is_going((task.framework_id, task.task_id)):
            yield Happened(PreemptionEnded(task.framework_id, task.task_id, "yielded"))
        state.release_task(task)
        state.slim_task(task)
        if changed:
            state.frameworks[task.framework_id].ended += 1
            yield from _left(state, task)
    if changed:
        yield Happened(
            TaskMoved(
                task.framework_id,
                task.task_id,
                task.agent_id,
                status.state,
                status.source,
                status.reason,
                status.message,
            )
        )


def _left(state: State, task: Task) -> Iterator[Effect]:
    """A task has ended: maybe the last that a drain waited for."""
    agent = state.agents.get(task.agent_id)
    if agent is not None and agent.drain is not None and agent.is_empty:
        yield Happened(AgentDrained(agent.agent_id, agent.hostname))


def _pass_on(
    state: State, framework: Framework, task: Task, status: TaskStatus
) -> Iterator[Effect]:
    if framework.is_removed:
        yield from acknowledge(state, status)
        yield Happened(UpdateHandled("unknown"))
        if task.state.is_terminal and status.sequence >= task.sequence:
            yield from drop(state, task)
            forget_removed(state, framework.framework_id)
    elif framework.session is None:
        yield Happened(UpdateHandled("waiting"))
    else:
        yield from _forward(task, status, framework.session)


def _forward(task: Task, status: TaskStatus, session: SessionId) -> Iterator[Effect]:
    """Send an update to its framework, unless it is early or stale."""
    sent = task.sent_on(session)
    if _is_early(task, status, sent):
        yield Happened(UpdateHandled("waiting"))
    elif sent.has_end and not status.state.is_terminal:
        # RECONCILE was answered with the terminal update. The next update is not early.
        task.delivery = replace(sent, sequence=max(sent.sequence, status.sequence))
        yield Happened(UpdateHandled("stale"))
    else:
        task.delivery = replace(sent, sequence=status.sequence)
        yield Send(session, Updated((status,)))
        yield Happened(UpdateHandled("forwarded"))


def _is_early(task: Task, status: TaskStatus, sent: Delivery) -> bool:
    """Return whether earlier updates have not been sent to the framework.

    They arrived while it was disconnected. When it returned, its agents were asked to resend them.
    """
    return status.sequence > max(task.acknowledged, sent.sequence) + 1
