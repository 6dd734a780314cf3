"""Tasks that go back to the front of their queues: preempted ones, and all those of a gang at once.

Rule: a task has one run at a time. The end of a run is in the ledger, and its agent was told to
forget it, before the next run is launched anywhere. The updates of all runs are numbered in one
sequence: a late update of an earlier run has a number that was handled, and changes nothing.

A gang starts again by its `restarts` if a member fails, as long as none has ended for good. Each
member returns when its run ends. If its agent is unreachable, that run may go on there until the
agent returns and has ended it; so the next one is launched elsewhere. As long as a gang may start
again, the end of a member that ends no other is kept back: its agent keeps the update, and its
framework is not told.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final

from croupier.master.core import task_moves
from croupier.master.core.agents import AgentState
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.events import AgentTask
from croupier.master.core.facts import PreemptionEnded
from croupier.master.core.messages import Updated
from croupier.master.core.on_task import acknowledge, check_drain, end, moved_fact, orphan
from croupier.master.core.records import Requeue
from croupier.master.core.state import NO_AGENT, State
from croupier.master.core.tasks import Task, TaskHold, TaskKey
from croupier.model.attributes import MAX_CONSTRAINTS
from croupier.model.devices import without_slots
from croupier.model.ids import NO_HOLD, AgentId
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.model.task_group import GroupPart

# More than the updates of a run that a lost agent may have yet to send.
UNSENT_UPDATES: Final = 1_000
# More than the numbers of one run, which go on from the clock after an agent has lost records. What
# an agent makes up leaves numbers for the later runs on other agents.
MOST_NUMBERS: Final = 2**44
# With another, a kill is the end of the task.
_KILLS_OF_RUNS: Final = (Reason.GANG_ENDED, Reason.AGENT_DRAINING)


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

    With exit code 0 a preempted task has done its work in the grace.
    """
    if task.agent_id != status.agent_id or status.sequence <= task.sequence:
        return False
    if task.info.gang is not None:
        return status.state.is_terminal and starts_again(state, task, status.state)
    return (
        status.state is TaskState.KILLED
        and status.reason is Reason.PREEMPTED
        and status.exit_code != 0
        and is_preempted(state, task)
    )


def starts_again(state: State, task: Task, ended: TaskState) -> bool:
    """Return whether a member of a gang starts again, with all others, if its run has `ended`.

    As soon as one has failed, all of them do, however they end. O(its gang).
    """
    gang, again = task.info.gang, task.requeue
    if gang is None or again is None or again.count >= gang.restarts or not is_whole(state, task):
        return False
    avoided = len(again.place.placement.constraints) + len(again.avoids)
    has_room = avoided < MAX_CONSTRAINTS
    has_failed = ended is not TaskState.FINISHED and gang.part is not GroupPart.SIDECAR
    members = state.frameworks[task.framework_id].gangs[gang.gang_id].values()
    return has_room and (has_failed or any(each.is_queued for each in members))


def is_whole(state: State, task: Task) -> bool:
    """Return whether no member of a task's gang has ended for good, or will. O(its gang)."""
    gang, framework = task.info.gang, state.frameworks.get(task.framework_id)
    if gang is None or framework is None or framework.is_removed:
        return False
    members = framework.gangs.get(gang.gang_id, {}).values()
    is_known = len(members) == gang.size and task.role in framework.roles
    return is_known and not any(map(_has_ended, members))


def _has_ended(task: Task) -> bool:
    is_killed = task.kill is not None and task.kill.reason not in _KILLS_OF_RUNS
    is_over = task.state.is_terminal and not (task.is_kept_back and _ends_alone(task))
    return is_over or is_killed or task.master_status is not None


def _ends_alone(task: Task) -> bool:
    """Return whether the others of a gang run on when this member ends."""
    part = task.info.gang.part if task.info.gang is not None else GroupPart.MEMBER
    has_finished = task.state is TaskState.FINISHED
    return part is GroupPart.SIDECAR or (part is GroupPart.MEMBER and has_finished)


def causes_first(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks of a lost agent in the order in which their runs end.

    Those whose loss has a gang start again come first: its other tasks there return with them.
    """
    return sorted(tasks, key=lambda task: (task.state.is_terminal, _ends_alone(task)))


def end_run(
    state: State, task: Task, new: TaskState, reason: Reason, message: str, now: float
) -> Iterator[Effect]:
    """End a task on behalf of a lost agent; a member of a gang may start again instead."""
    has_ended = task.state.is_terminal
    if starts_again(state, task, task.state if has_ended else new):
        lost = task.master_made(new, reason, message)
        yield from requeue(state, task, task.status if has_ended else lost)
    elif has_ended:
        # Its terminal status is known, but not acknowledged.
        yield from orphan(state, task, now)
    else:
        yield from end(state, task, new, reason, message, now)


def requeue(state: State, task: Task, ended: TaskStatus) -> Iterator[Effect]:
    """Put a task whose run has ended, or never began, back to the front of its queue.

    `ended` is the last update of that run, or a status of the master's own in its place.
    """
    task_moves.count_end(state, task, ended.usage)
    framework, agent_id, gang = state.frameworks[task.framework_id], task.agent_id, task.info.gang
    task_moves.release_task(state, task)
    if gang is None:
        _put_back(state, task, ended.sequence, Reason.PREEMPTED, f"preempted on agent {agent_id}")
    else:
        assert task.requeue is not None
        number = f"{task.requeue.count + 1} of {gang.restarts}"
        why = f": {ended.message}" if ended.message else ""
        message = f"{ended.state.name} on agent {agent_id}{why}; restart {number} of its gang"
        sequence = ended.sequence or task.sequence + UNSENT_UPDATES
        _put_back(state, task, sequence, Reason.GANG_ENDED, message)
    yield Save(task.record())
    # The launch of the next run may follow to the same agent.
    yield from acknowledge(state, ended)
    yield from check_drain(state, agent_id)
    task.is_unsent = framework.session is None
    if framework.session is not None:
        yield Send(framework.session, Updated((task.status,)))
    if gang is None:
        yield Happened(PreemptionEnded(task.framework_id, task.task_id, "requeued"))
    yield Happened(moved_fact(task.status))


def _put_back(state: State, task: Task, sequence: int, reason: Reason, message: str) -> None:
    """Put a placed task that holds nothing back to the front of its queue.

    A member of a gang returns with the others; see `settle_gangs`. `sequence` is the number of the
    last update of the run that has ended. O(log n).
    """
    before = task.requeue
    assert before is not None
    sequence = min(sequence, before.sequence + MOST_NUMBERS)
    agent = state.agents.get(task.agent_id)
    if agent is not None:
        agent.tasks.pop(task.key, None)
    # A store of a later generation may have lost the next launch.
    place = replace(before.place, generation=state.generation)
    is_lost = agent is not None and agent.state is AgentState.UNREACHABLE
    avoids = (*before.avoids, task.agent_id) if is_lost else before.avoids
    task.requeue = Requeue(place, before.count + 1, sequence, avoids=avoids)
    task.sequence = task.acknowledged = sequence
    task.agent_id, task.queued = NO_AGENT, place
    task.kill = task.placed = task.kind = task.master_status = None
    task.started_ms, task.begun_ms, task.has_data = 0, 0, False
    task.hold_id, task.held = NO_HOLD, NOTHING
    amount = without_slots(task.info.resources).counted()
    if amount != task.info.resources:
        task.info = replace(task.info, resources=amount)
    task.hold_as(TaskHold.QUEUED)
    queued, gang = task.master_made(TaskState.QUEUED, reason, message), task.info.gang
    if task.state.is_terminal:
        # Its framework was not told of this end.
        state.frameworks[task.framework_id].ended -= 1
        task.status = queued
    else:
        task.move(queued)
    if gang is None:
        task_moves.enqueue(state, task, at_begin=True)
    else:
        state.redescribe(task, replace(task.info, gang=replace(gang, hosts=(), port=0)))
        task_moves.put_aside(state, task)


def is_earlier_run(state: State, report: AgentTask) -> bool:
    """Return whether an agent lists an earlier run, which it has yet to forget.

    It may still run if the agent was lost when its gang started again.
    """
    framework = state.frameworks.get(report.framework_id)
    task = framework.tasks.get(report.task.task_id) if framework is not None else None
    if task is None or task.requeue is None:
        return False
    if report.latest.agent_id in task.requeue.avoids:
        # No later run is placed there. The agent may have numbered on after a loss of records.
        return True
    has_left = report.latest.state.is_terminal or task.agent_id != report.latest.agent_id
    return has_left and report.latest.sequence <= task.requeue.sequence


def end_earlier_run(state: State, status: TaskStatus) -> Iterator[Effect]:
    """Have a task no longer avoid an agent that tells the end of the run that was lost there."""
    framework = state.frameworks.get(status.framework_id)
    task = framework.tasks.get(status.task_id) if framework is not None else None
    if task is not None and status.state.is_terminal:
        yield from _stop_avoiding(state, task, status.agent_id)


def end_unlisted_runs(
    state: State, agent_id: AgentId, listed: Container[TaskKey]
) -> Iterator[Effect]:
    """Have no task avoid an agent that is back, unless it lists an earlier run. O(gangs)."""
    for framework in state.frameworks.values():
        for members in list(framework.gangs.values()):
            for task in members.values():
                if task.key not in listed:
                    yield from _stop_avoiding(state, task, agent_id)


def _stop_avoiding(state: State, task: Task, agent_id: AgentId) -> Iterator[Effect]:
    again = task.requeue
    if again is not None and agent_id in again.avoids:
        avoids = tuple(each for each in again.avoids if each != agent_id)
        task.requeue = replace(again, avoids=avoids)
        task_moves.renew_shape(state, task)
        yield Save(task.record())


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
