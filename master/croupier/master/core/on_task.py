"""What becomes of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from croupier.master.core.effects import Effect, Happened, Send
from croupier.master.core.facts import PreemptionEnded, TaskMoved, UpdateHandled
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.messages import AcknowledgeUpdate, KillTask, Updated
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.ids import FrameworkId
from croupier.model.task import TRANSITIONS, Reason, TaskState, TaskStatus


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
    """Pass a verdict of the master's own on a task, and tell its framework once."""
    status = TaskStatus(
        task.framework_id, task.task_id, task.agent_id, new, reason=reason, message=message
    )
    yield from _take(state, task, status)
    session = state.frameworks[task.framework_id].session
    if session is not None:
        yield Send(session, Updated((status,)))


def kill(state: State, task: Task, grace_ms: int | None, reason: Reason) -> Iterator[Effect]:
    """Want a task ended: now if its agent is there, else when it returns."""
    task.kill = (grace_ms, reason)
    agent = state.agents.get(task.agent_id)
    if agent is not None and agent.session is not None:
        message = KillTask(task.framework_id, task.task_id, grace_ms, reason)
        yield Send(agent.session, message)


def acknowledge(state: State, status: TaskStatus) -> Iterator[Effect]:
    """Tell the agent that an update need not be sent again."""
    agent = state.agents.get(status.agent_id)
    if agent is not None and agent.session is not None and status.sequence:
        message = AcknowledgeUpdate(status.framework_id, status.task_id, status.sequence)
        yield Send(agent.session, message)


def orphan(state: State, task: Task) -> Iterator[Effect]:
    """Keep an ended task that its agent has no more until its framework knows of it.

    Nobody would send its last update again: a framework that is there and has not heard of it
    is told by us.
    """
    assert task.state.is_terminal
    task.is_orphan = True
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop((task.framework_id, task.task_id), None)
    framework = state.frameworks[task.framework_id]
    waits = task.status.needs_acknowledgement
    if framework.session is not None and waits and task.told_on != framework.session:
        yield Send(framework.session, Updated((unnumbered(task.status),)))
        waits = False
    told = framework.session is not None and not waits
    if told or framework.state is FrameworkState.REMOVED:
        state.drop_task(task)
        forget_removed(state, task.framework_id)


def unnumbered(status: TaskStatus) -> TaskStatus:
    """The status, as one that nobody waits for an acknowledgement of."""
    return replace(status, sequence=0)


def forget_removed(state: State, framework_id: FrameworkId) -> None:
    """Forget a removed framework once its last task has ended."""
    framework = state.frameworks.get(framework_id)
    if framework and framework.state is FrameworkState.REMOVED and not framework.tasks:
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
        killed = task.kill is not None and task.kill[1] is Reason.PREEMPTED
        if not killed and state.preemptor.is_going((task.framework_id, task.task_id)):
            yield Happened(PreemptionEnded(task.framework_id, task.task_id, "yielded"))
        state.release_task(task)
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


def _pass_on(
    state: State, framework: Framework, task: Task, status: TaskStatus
) -> Iterator[Effect]:
    if framework.state is FrameworkState.REMOVED:
        yield from acknowledge(state, status)
        yield Happened(UpdateHandled("unknown"))
        if task.state.is_terminal and status.sequence >= task.sequence:
            state.drop_task(task)
            forget_removed(state, framework.framework_id)
    elif framework.session is None:
        yield Happened(UpdateHandled("waiting"))
    else:
        task.told_on = framework.session
        yield Send(framework.session, Updated((status,)))
        yield Happened(UpdateHandled("forwarded"))
