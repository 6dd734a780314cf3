"""Preempted tasks that go back to the front of their queues.

Rule: a task has one run at a time. The end of a run is in the ledger, and its agent was told to
forget it, before the next run is launched anywhere. The updates of all runs are numbered in one
sequence: a late update of an earlier run has a number that was handled, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from croupier.master.core import task_moves
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.events import AgentTask
from croupier.master.core.facts import PreemptionEnded
from croupier.master.core.messages import Updated
from croupier.master.core.on_task import acknowledge, check_drain, moved_fact
from croupier.master.core.records import Requeue
from croupier.master.core.state import NO_AGENT, State
from croupier.master.core.tasks import Task, TaskHold
from croupier.model.devices import without_slots
from croupier.model.ids import NO_HOLD
from croupier.model.isolation import Usage
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Reason, TaskState, TaskStatus


def is_preempted(state: State, task: Task) -> bool:
    """Return whether a task is to be requeued once its agent has ended it.

    It ends if its framework or an operator has killed it since.
    """
    # It is forgotten with the last task of a framework that was removed.
    framework = state.frameworks.get(task.framework_id)
    return (
        framework is not None
        and task.requeue is not None
        and task.kill is not None
        and task.kill.reason is Reason.PREEMPTED
        and not task.state.is_terminal
        and not framework.is_removed
        and task.role in framework.roles
    )


def ends_run(state: State, task: Task, status: TaskStatus) -> bool:
    """Return whether a status of its agent is the end of a run after which a task is requeued.

    With exit code 0 it has done its work in the grace.
    """
    return (
        status.state is TaskState.KILLED
        and status.reason is Reason.PREEMPTED
        and status.exit_code != 0
        and task.agent_id == status.agent_id
        and status.sequence > task.sequence
        and is_preempted(state, task)
    )


def requeue(
    state: State, task: Task, sequence: int, usage: Usage | None = None
) -> Iterator[Effect]:
    """Put a task whose run has ended, or never began, back to the front of its queue.

    `sequence` is the number of the last update of that run, which has used `usage`.
    """
    task_moves.count_end(state, task, usage)
    framework, agent_id = state.frameworks[task.framework_id], task.agent_id
    task_moves.release_task(state, task)
    ended = TaskStatus(task.framework_id, task.task_id, agent_id, task.state, sequence=sequence)
    _put_back(state, task, sequence)
    yield Save(task.record())
    # The launch of the next run may follow to the same agent.
    yield from acknowledge(state, ended)
    yield from check_drain(state, agent_id)
    task.is_unsent = framework.session is None
    if framework.session is not None:
        yield Send(framework.session, Updated((task.status,)))
    yield Happened(PreemptionEnded(task.framework_id, task.task_id, "requeued"))
    yield Happened(moved_fact(task.status))


def _put_back(state: State, task: Task, sequence: int) -> None:
    """Put a placed task that holds nothing back to the front of its queue.

    `sequence` is the number of the last update of the run that has ended. O(log n).
    """
    before = task.requeue
    assert before is not None
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop((task.framework_id, task.task_id), None)
    # A store of a later generation may have lost the next launch.
    place = replace(before.place, generation=state.generation)
    task.requeue = Requeue(place, before.count + 1, sequence)
    task.sequence = task.acknowledged = sequence
    message = f"preempted on agent {task.agent_id}"
    task.agent_id, task.queued = NO_AGENT, place
    task.kill = task.placed = task.kind = task.master_status = None
    task.started_ms, task.begun_ms, task.has_data = 0, 0, False
    task.hold_id, task.held = NO_HOLD, NOTHING
    amount = without_slots(task.info.resources).counted()
    if amount != task.info.resources:
        task.info = replace(task.info, resources=amount)
    task.hold_as(TaskHold.QUEUED)
    task.move(task.master_made(TaskState.QUEUED, Reason.PREEMPTED, message))
    task_moves.enqueue(state, task, at_begin=True)


def is_earlier_run(state: State, report: AgentTask) -> bool:
    """Return whether an agent lists the end of an earlier run, which it has yet to forget."""
    framework = state.frameworks.get(report.framework_id)
    task = framework.tasks.get(report.task.task_id) if framework is not None else None
    if task is None or task.requeue is None or not report.latest.state.is_terminal:
        return False
    return report.latest.sequence <= task.requeue.sequence


def forget_earlier_runs(state: State, listed: Iterable[AgentTask]) -> Iterator[Effect]:
    """Have an agent forget the earlier runs that it lists: it missed the acknowledgement."""
    for report in listed:
        if is_earlier_run(state, report):
            for status in report.unacknowledged:
                yield from acknowledge(state, status)


def may_have(task: Task, amount: Resources) -> bool:
    """Return whether a task can have these resources on its agent.

    An older copy of the store may lack the latest run of a requeued task, which got as much.
    """
    had = task.info.resources
    is_as_much = had.scalars == amount.scalars and _counted(had) == _counted(amount)
    return amount == had or (task.requeue is not None and is_as_much and not task.held)


def _counted(amount: Resources) -> Resources:
    """Return an amount without the ports and devices that each run gets anew."""
    return without_slots(amount).counted()
