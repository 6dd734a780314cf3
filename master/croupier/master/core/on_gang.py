"""Gangs: their launch, and what the end of a member means to the others.

Rule: all members of a gang are launched in one step, or none is. The step in which a member ends,
or becomes unreachable, decides about the others; so a gang runs in part for no longer than the
grace of a kill, or until the agent of a member that is to be killed returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from croupier.master.allocator.grant import Grant
from croupier.master.core import task_moves
from croupier.master.core.authorisation import require_user
from croupier.master.core.deadlines import GatheringReview
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.frameworks import Framework
from croupier.master.core.launches import order_launch
from croupier.master.core.messages import Placed
from croupier.master.core.on_requeue import is_whole, requeue
from croupier.master.core.on_task import end, kill, moved_fact, receive, request_kill
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.errors import CroupierError, shortened
from croupier.model.ids import AgentId
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus
from croupier.model.task_group import GroupPart, ends_rest

GATHERING_INTERVAL_S: Final = 5.0


def launch_gang(state: State, grant: Grant, unit: Sequence[Task], now: float) -> Iterator[Effect]:
    """Launch a queued gang, for which the grant was made, each member on its agent."""
    framework = state.frameworks[grant.framework_id]
    framework.queues.remove(unit[0])
    refused = _refused(state, grant, unit)
    if refused is not None:
        yield from _refuse(state, unit, *refused, now)
        state.allocator.withdraw_gang(grant)
        return
    hosts = tuple(state.agents[place.agent_id].hostname for place in grant.places)
    ports = grant.places[0].resources.ranges.get("ports", ())
    for task, (agent_id, amount) in zip(unit, grant.places, strict=True):
        state.redescribe(task, _placed(task.info, hosts, ports[0][0] if ports else 0))
        task.info = replace(task.info, resources=amount)
        # The allocator counts the task on its agent already.
        owner = (task.framework_id, task.role)
        state.allocator.charges.launch(*owner, agent_id, amount, tasks=0)
        task_moves.place_task(state, task, agent_id, now)
        yield Save(task.record())
    for task in unit:
        yield order_launch(state, task)
        yield Happened(moved_fact(task.status))
    state.allocator.launched(grant)
    if framework.session is not None:
        statuses: dict[AgentId, list[TaskStatus]] = {}
        for task in unit:
            statuses.setdefault(task.agent_id, []).append(task.status)
        for agent_id, launched in statuses.items():
            message = Placed(state.agents[agent_id].describe(), tuple(launched))
            yield Send(framework.session, message)


def _placed(info: TaskInfo, hosts: tuple[str, ...], port: int) -> TaskInfo:
    """Return a member that knows where all members are."""
    assert info.gang is not None
    return replace(info, gang=replace(info.gang, hosts=hosts, port=port))


def _refused(state: State, grant: Grant, unit: Sequence[Task]) -> tuple[Task, CroupierError] | None:
    """Return the first member that cannot run on its agent, and why; None if all can."""
    permissions = state.permissions(state.frameworks[grant.framework_id].principal)
    for task, place in zip(unit, grant.places, strict=True):
        agent = state.agents[place.agent_id]
        try:
            # The constraints of the shape cannot state these.
            require_user(permissions, agent, task.info)
            agent.check_suitable(task.info)
        except CroupierError as error:
            return task, error
    return None


def _refuse(
    state: State, unit: Sequence[Task], refused: Task, error: CroupierError, now: float
) -> Iterator[Effect]:
    """End all members of a gang of which one cannot be launched."""
    for task in unit:
        task.queued = None
        why = str(shortened(error))
        if task is refused:
            yield from end(state, task, TaskState.ERROR, Reason.TASK_INVALID, why, now)
        else:
            message = f"task {refused.task_id} of its gang cannot be launched: {why}"
            yield from end(state, task, TaskState.KILLED, Reason.GANG_ENDED, message, now)


def schedule_gathering(state: State, now: float) -> None:
    """Schedule a look at the gangs that wait, if there are any."""
    if state.allocator.has_waiting_gangs and GatheringReview() not in state.deadlines:
        state.deadlines.set(GatheringReview(), now + GATHERING_INTERVAL_S)


def on_gathering_due(state: State, now: float) -> None:
    """Gather room for gangs that have waited for long."""
    state.allocator.gather(now)
    schedule_gathering(state, now)


def settle_gangs(state: State, now: float) -> Iterator[Effect]:
    """Decide about the gangs of members that ended or became unreachable. O(their members)."""
    while state.ended_members:
        task = state.ended_members.pop(0)
        framework = state.frameworks.get(task.framework_id)
        if framework is None or framework.is_removed:
            # All of its tasks are being killed.
            continue
        members = list(framework.gangs.get(task.info.gang_id, {}).values())
        is_returning = any(each.task_id in framework.queues.returning for each in members)
        if is_returning and is_whole(state, task):
            yield from _start_again(state, framework, members, now)
            continue
        if task.is_queued and not is_returning:
            # Its gang is in the queue.
            continue
        live = [each for each in members if not each.state.is_terminal]
        if not _may_start_again(state, task, live):
            for each in members:
                if each.is_kept_back:
                    yield from _tell_end(state, framework, each)
        left = [each for each in live if each is not task]
        has_finished = task.state is TaskState.FINISHED
        ends = left and ends_rest(_part(task), has_finished, list(map(_part, left)))
        is_live = not (task.is_queued or task.state.is_terminal)
        if ends and is_live and task.kill is None:
            # It is killed when its agent returns.
            yield from request_kill(task, None, Reason.GANG_ENDED)
        if ends or is_returning:
            yield from _end_all(state, live if task.is_queued else left, now)


def _start_again(
    state: State, framework: Framework, members: Sequence[Task], now: float
) -> Iterator[Effect]:
    """End the runs of a gang that starts again; put it into the queue once all have ended."""
    for task in members:
        if task.is_kept_back:
            yield from requeue(state, task, task.status)
    yield from _end_all(state, [task for task in members if not task.is_queued], now)
    unit = framework.queued_with(members[0])
    if all(task.is_queued for task in unit):
        for task in unit:
            del framework.queues.returning[task.task_id]
        task_moves.enqueue(state, *unit, at_begin=True)


def _may_start_again(state: State, task: Task, live: Sequence[Task]) -> bool:
    """Return whether another failure of a member, of those that live, has the gang start again."""
    gang, again = task.info.gang, task.requeue
    has_restarts = gang is not None and again is not None and again.count < gang.restarts
    works = any(_part(each) is not GroupPart.SIDECAR for each in live)
    return has_restarts and works and is_whole(state, task)


def _tell_end(state: State, framework: Framework, task: Task) -> Iterator[Effect]:
    """Tell the framework of an end that was kept back. The task cannot start again after that."""
    assert task.requeue is not None
    task.requeue = replace(task.requeue, is_last=True)
    task_moves.slim_task(state, task)
    yield Save(task.record())
    yield from receive(state, framework, task, task.status)


def _end_all(state: State, tasks: Sequence[Task], now: float) -> Iterator[Effect]:
    for task in tasks:
        # One that is queued ends with the others that are.
        if task.kill is None and not task.state.is_terminal:
            yield from kill(state, task, None, Reason.GANG_ENDED, now)


def _part(task: Task) -> GroupPart:
    assert task.info.gang is not None
    return task.info.gang.part
