"""Moves of tasks: into queues, lines and agents, and out of them, with what they hold.

Rule: a task holds what its `TaskHold` says. It changes together with the charges of the allocator,
the usage ledger and all indexes of the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from croupier.master.allocator.charges import Charge
from croupier.master.core.state import NO_AGENT, State
from croupier.master.core.task_queues import shape_of
from croupier.master.core.tasks import Task, TaskHold
from croupier.model.attributes import AGENT_ID, not_equals
from croupier.model.ids import AgentId
from croupier.model.isolation import Usage
from croupier.model.task import Reason, TaskState


def add_task(state: State, task: Task) -> None:
    """Add a task without charging it."""
    framework = state.frameworks[task.framework_id]
    framework.add_task(task)
    state.descriptions.add(task.framework_id, task.info.size)
    state.owned.add(framework.owner, tasks=1)
    framework.ended += task.state.is_terminal
    agent = state.agents.get(task.agent_id)
    if task.is_lined_up:
        put_in_line(state, task)
    elif agent is not None and not task.is_orphan:
        agent.tasks[task.key] = task
    if task.is_counted:
        _begin_use(state, task)


def enqueue(state: State, *unit: Task, at_begin: bool = False) -> None:
    """Queue a task or a group: the allocator deals to it. O(log n)."""
    first = unit[0]
    assert all(task.is_queued for task in unit)
    assert first.queued is not None
    queues, placement = state.frameworks[first.framework_id].queues, first.queued.placement
    avoided = dict.fromkeys(each for task in unit if task.requeue for each in task.requeue.avoids)
    if avoided:
        elsewhere = (not_equals(AGENT_ID, agent_id) for agent_id in avoided)
        placement = replace(placement, constraints=(*placement.constraints, *elsewhere))
    shape = shape_of([task.info for task in unit], placement)
    key = queues.add(unit, shape, at_begin=at_begin)
    state.allocator.queue(first.framework_id, *key, 1, at_begin=at_begin)


def renew_shape(state: State, task: Task) -> None:
    """Queue a task, with its group or gang, in the shape that it has by now. O(log n)."""
    framework = state.frameworks[task.framework_id]
    if task.is_queued and task.task_id not in framework.queues.returning:
        key, unit = framework.queues.remove(task)
        state.allocator.queue(task.framework_id, *key, -1)
        enqueue(state, *unit, at_begin=True)


def put_aside(state: State, task: Task) -> None:
    """Have a member of a gang that starts again wait until the others have returned as well."""
    state.frameworks[task.framework_id].queues.returning[task.task_id] = task
    state.ended_members.append(task)


def dequeue(state: State, task: Task) -> tuple[Task, ...]:
    """Take a task and its group out of its queue without placing them; return all. O(log n)."""
    assert task.is_queued
    framework, unit = state.frameworks[task.framework_id], tuple[Task, ...]()
    if task.task_id in framework.queues.returning:
        unit = tuple(each for each in framework.queued_with(task) if each.is_queued)
        for each in unit:
            del framework.queues.returning[each.task_id]
    else:
        key, unit = framework.queues.remove(task)
        state.allocator.queue(task.framework_id, *key, -1)
    for each in unit:
        each.queued = None
    return unit


def place_task(
    state: State, task: Task, agent_id: AgentId, now: float, hold: TaskHold = TaskHold.ACTIVE
) -> None:
    """Put a task that was taken out of its queue on an agent, where it is charged already.

    With the hold RELEASED it is charged later.
    """
    task.agent_id, task.since, task.placed, task.queued = agent_id, now, now, None
    task.hold_as(hold)
    task.move(task.master_made(TaskState.STAGING, Reason.NONE, ""))
    agent = state.agents[agent_id]
    agent.tasks[task.key] = task
    if task.is_active:
        _begin_use(state, task)
        if task.kind is not None:
            agent.running[task.framework_id, task.kind] += 1


def put_in_line(state: State, task: Task) -> None:
    """Put a task into the line of its agent."""
    state.agents[task.agent_id].line[task.key] = task
    state.lined[task.agent_id] = None


def leave_line(state: State, task: Task) -> None:
    """Take a task out of the line of its agent."""
    assert task.is_lined_up
    agent = state.agents[task.agent_id]
    del agent.line[task.key]
    if task.kind is not None:
        state.frameworks[task.framework_id].queues.lined[task.kind] -= 1
    task.is_recalled, task.agent_id = False, NO_AGENT
    if not agent.line:
        del state.lined[agent.agent_id]


def place_lined(state: State, task: Task, now: float) -> None:
    """Note that a task has left the line of its agent to run there; it is charged later."""
    agent_id = task.agent_id
    leave_line(state, task)
    place_task(state, task, agent_id, now, TaskHold.RELEASED)


def succeed(state: State, ended: Task, task: Task, now: float) -> None:
    """Pass the charge of an ended task to one that was lined up behind it. O(1)."""
    assert (ended.role, ended.info.resources) == (task.role, task.info.resources)
    leave_line(state, task)
    if ended.held:
        # As with all tasks in a hold, none is lined up behind it.
        task.hold_id, task.held, task.kind = ended.hold_id, ended.held, None
    _on_released(state, ended)
    place_task(state, task, ended.agent_id, now)


def charge_tasks(state: State, agent_id: AgentId, tasks: Iterable[Task]) -> None:
    """Charge tasks that are active on one agent. O(tasks).

    Absent tasks are charged to role and framework already; only the agent is charged. Raises
    ValueError if their resources are not free.
    """
    listed = list(tasks)
    absent = [(task.framework_id, task.rest) for task in listed if task.is_absent]
    found = [task for task in listed if not task.is_absent]
    if absent:
        state.allocator.charges.charge_returned(agent_id, absent)
    if found:
        state.allocator.charges.charge(agent_id, map(_charge, found))
    running = state.agents[agent_id].running
    for task in listed:
        if task.held:
            part = (task.framework_id, task.role, state.holds[task.hold_id].place, task.held)
            state.allocator.charges.charge_part(*part, is_absent=task.is_absent)
        if not task.is_absent:
            _begin_use(state, task)
        task.hold_as(TaskHold.ACTIVE)
        if task.kind is not None:
            running[task.framework_id, task.kind] += 1


def release_tasks(state: State, agent_id: AgentId, tasks: Iterable[Task]) -> None:
    """Release what tasks of one agent hold. O(tasks)."""
    active = []
    for task in tasks:
        if task.is_active:
            _release_part(state, task)
            active.append(task)
        else:
            release_task(state, task)
    if active:
        state.allocator.charges.release_all(agent_id, map(_charge, active))
    for task in active:
        _on_released(state, task)


def release_task(state: State, task: Task) -> None:
    """Release what a task holds, if it holds anything."""
    charges = state.allocator.charges
    if task.is_absent:
        task.hold_as(TaskHold.RELEASED)
        _end_use(state, task)
        charges.release_absent(task.framework_id, task.role, task.info.resources)
    elif task.is_active:
        _release_part(state, task)
        charges.release(task.framework_id, task.role, task.agent_id, task.rest)
        _on_released(state, task)


def _release_part(state: State, task: Task) -> None:
    """Give back to a hold what a task took from it."""
    if task.held:
        place = state.holds[task.hold_id].place
        part = (task.framework_id, task.role, place, task.held)
        state.allocator.charges.release(*part, tasks=0)


def _on_released(state: State, task: Task) -> None:
    task.hold_as(TaskHold.RELEASED)
    _end_use(state, task)
    state.preemptor.ended(task.key)
    if task.kind is not None:
        running, key = state.agents[task.agent_id].running, (task.framework_id, task.kind)
        left = running.pop(key) - 1
        if left:
            running[key] = left
        else:
            state.stranded[task.agent_id] = None


def _begin_use(state: State, task: Task) -> None:
    """Count the resources of a task as used from now on."""
    framework = state.frameworks[task.framework_id]
    task.account = framework.account(task.role, task.info.labels)
    state.usage.use(task.account, task.info.resources.scalars)
    if task.hold_id:
        state.usage.touch(task.hold_id)


def _end_use(state: State, task: Task) -> None:
    assert task.account is not None
    state.usage.use(task.account, task.info.resources.scalars, -1)
    if task.hold_id:
        state.usage.touch(task.hold_id)


def count_end(state: State, task: Task, usage: Usage | None) -> None:
    """Count what the agent of a task measured in a run of it that has ended; once for each run.

    The measurement of an executor is of its tasks too, so it is not compared with what the
    executor itself asked for.
    """
    if usage is not None and task.account is not None and task.info.executor is None:
        state.usage.measure(task.account, task.info.resources.scalars, usage)


def slim_task(state: State, task: Task) -> None:
    """Drop the command and labels of a large task that has ended."""
    slim = task.info.slimmed()
    if slim is not task.info:
        state.redescribe(task, slim)


def drop_task(state: State, task: Task) -> None:
    """Forget a task that needs no more updates; operators can still list it."""
    assert not task.is_counted
    # Not at its end: a status that waits for its acknowledgement comes to the next master too.
    count_end(state, task, task.status.usage)
    framework = state.frameworks[task.framework_id]
    framework.ended -= task.state.is_terminal
    framework.done += 1
    framework.failed += task.state.is_failure
    framework.remove_task(task)
    state.descriptions.add(task.framework_id, -task.info.size)
    state.owned.add(framework.owner, tasks=-1)
    framework.remember_used(task.task_id, state.settings.used_task_ids)
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop(task.key, None)
    state.ended.add(state.snapshot(task, framework.owner).slimmed())


def _charge(task: Task) -> Charge:
    return task.framework_id, task.role, task.rest
