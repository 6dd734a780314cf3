"""Synchronise the tasks that a registering agent lists with the ledger.

The agent's list is authoritative about tasks that a master launched there: the ledger has them, or
they come with a proof. The agent is told to end all others, which charge no framework. A task in
the ledger that the agent does not list has never arrived there, so it is launched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from croupier.master.core import task_moves
from croupier.master.core.agent_status import drain_kills
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require_user
from croupier.master.core.effects import PAUSE, Effect, Happened, Save, Send, Step
from croupier.master.core.events import AgentTask, Claim, Register
from croupier.master.core.facts import TasksUnproven
from croupier.master.core.frameworks import Framework
from croupier.master.core.launches import order_launch
from croupier.master.core.on_framework import adopt
from croupier.master.core.on_line import give_back, on_started
from croupier.master.core.on_requeue import (
    causes_first,
    end_earlier_run,
    end_run,
    ends_run,
    is_earlier_run,
    is_preempted,
    requeue,
)
from croupier.master.core.on_task import (
    acknowledge,
    end_queued,
    forget_removed,
    on_status,
    order_kill,
    orphan,
    recall,
    request_kill,
    set_status,
)
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import KillTask
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import NO_TASK, Reason, TaskState


def sync(state: State, agent: Agent, event: Register, now: float) -> Iterator[Step]:
    """Apply the list of an agent that has just registered."""
    reports = []
    for report in event.tasks:
        if is_earlier_run(state, report):
            # The agent missed the acknowledgement, or was lost during that run.
            yield from _end_and_forget(state, agent, report)
            yield from end_earlier_run(state, report.latest)
        else:
            reports.append(report)
    listed = {(report.framework_id, report.task.task_id) for report in reports}
    # The ledger may be older than the agent's records.
    may_have_run = event.incomplete or event.claim is Claim.GIVEN_UP
    for key, task in reversed(list(agent.line.items())):
        if key in listed or may_have_run:
            task_moves.place_lined(state, task, now)
            yield from on_started(state, task, now)
        else:
            yield from give_back(state, task, now)
    missing = causes_first(task for key, task in agent.tasks.items() if key not in listed)
    # Executors come before their tasks.
    missing.sort(key=lambda task: bool(task.info.executor_id))
    for task, grace_ms, reason in drain_kills(agent):
        yield from request_kill(task, grace_ms, reason)
    running: list[Task] = []
    unproven: list[AgentTask] = []
    for report in reports:
        yield PAUSE
        if _is_unproven(state, report, now):
            unproven.append(report)
            yield from _end_and_forget(state, agent, report)
        else:
            yield from _on_listed(state, agent, event, report, running, now)
    live = [report for report in unproven if not report.latest.state.is_terminal]
    if live:
        first = f"{live[0].framework_id}/{live[0].task.task_id}"
        yield Happened(TasksUnproven(agent.agent_id, agent.hostname, len(live), first))
    # In one call, since each rewrites the free ranges of the agent.
    task_moves.charge_tasks(
        state, agent.agent_id, [task for task in running if not task.state.is_terminal]
    )
    for unit in _units(missing):
        yield from _on_missing(state, unit, may_have_run, now)
    # Tasks that were not in the ledger have no request to kill them yet.
    for task, grace_ms, reason in drain_kills(agent):
        yield from request_kill(task, grace_ms, reason)
    for task in agent.tasks.values():
        yield PAUSE
        if task.kill is not None and not task.state.is_terminal:
            yield from order_kill(state, task, now)


def _units(missing: Iterable[Task]) -> Iterable[list[Task]]:
    """Return each task alone, and the tasks of a group together."""
    units: dict[tuple[FrameworkId, str, TaskId], list[Task]] = {}
    for task in missing:
        group_id = task.info.group_id
        alone = task.task_id if not group_id else NO_TASK
        units.setdefault((task.framework_id, group_id, alone), []).append(task)
    return units.values()


def _on_missing(state: State, unit: list[Task], may_have_run: bool, now: float) -> Iterator[Effect]:
    """Decide about a task, or the tasks of a group, that their agent does not list.

    An agent keeps the record of a task until the master has forgotten the task. So a task without
    any update has not arrived, unless the agent or the ledger lost records: then it
    `may_have_run`. An agent records all tasks of a group or none: a group is launched again only
    as a whole.
    """
    first = unit[0]
    if is_preempted(state, first) and not (first.has_updates or may_have_run):
        never_ran = first.master_made(TaskState.KILLED, Reason.PREEMPTED, "")
        yield from requeue(state, first, replace(never_ran, sequence=first.sequence))
        return
    ends: dict[TaskId, tuple[TaskState, Reason, str] | None] = {}
    places = {place for task in unit for place, _ in task.parts()}
    free = {place: state.allocator.queries.free(place) for place in places}
    for task in unit:
        end_of_task = ends[task.task_id] = _end_of_missing(state, task, free, may_have_run)
        if end_of_task is None and not task.is_active:
            for place, part in task.parts():
                free[place] = free[place] - part
    has_lost = not all(task.state.is_terminal for task in unit)
    known = state.frameworks[unit[0].framework_id].unit_of(unit[0])
    if not any(ends.values()) and len(unit) == len(known):
        for task in unit:
            if task.state is TaskState.UNREACHABLE:
                message = "its agent is back, and is to start it"
                yield from set_status(
                    state, task, TaskState.STARTING, Reason.AGENT_REREGISTERED, message
                )
        idle = [task for task in unit if not task.is_active]
        if idle:
            task_moves.charge_tasks(state, idle[0].agent_id, idle)
        yield order_launch(state, *unit)
        return
    for task in unit:
        message = "the agent came back, and its group cannot be started as a whole any more"
        rest = (TaskState.DROPPED, Reason.GROUP_ENDED, message)
        yield from end_run(state, task, *(ends[task.task_id] or rest), now)
    for other in known:
        # Listed by the agent, which does not know that others of its group have ended.
        if has_lost and other.task_id not in ends and not other.state.is_terminal:
            yield from request_kill(other, None, Reason.GROUP_ENDED)


def _end_of_missing(
    state: State, task: Task, free: Mapping[AgentId, Resources], may_have_run: bool
) -> tuple[TaskState, Reason, str] | None:
    """Return the end of a task that its agent does not list; None if it is to be launched."""
    agent = state.agents[task.agent_id]
    restarted = Reason.AGENT_RESTARTED
    if task.state.is_terminal:
        return task.state, task.status.reason, task.status.message
    if task.has_updates or may_have_run:
        return TaskState.GONE, restarted, "the agent came back without it"
    if task.kill is not None:
        return TaskState.KILLED, task.kill.reason, "killed before it was started"
    if not task.is_active and not all(part <= free[place] for place, part in task.parts()):
        message = "the agent came back and has no room for it any more"
        return TaskState.DROPPED, restarted, message
    if (why := _unsuitable(state, agent, task)) is not None:
        return TaskState.DROPPED, restarted, f"the agent came back, but {why}"
    return None


def _unsuitable(state: State, agent: Agent, task: Task) -> CroupierError | None:
    """Return why a returned agent cannot be sent a task that it never got; None if it can."""
    framework = state.frameworks[task.framework_id]
    if not agent.is_certain(task.info.resources):
        return InvalidRequest("its devices have other names or slots now")
    try:
        agent.check_suitable(task.info)
        # After a failover the framework's principal is not known until it subscribes again.
        if not task.info.command.user and not framework.principal.is_anonymous:
            require_user(state.permissions(framework.principal), agent, task.info)
    except CroupierError as error:
        return error
    return None


def _is_unproven(state: State, report: AgentTask, now: float) -> bool:
    """Return whether nothing shows that a master launched a listed task."""
    framework = state.frameworks.get(report.framework_id)
    known = framework.tasks.get(report.task.task_id) if framework else None
    if known is not None and not known.is_queued:
        return False
    if state.has_yet_to_issue(report.framework_id):
        return True
    return report.is_unproven and now >= state.adopts_unproven_until


def _end_and_forget(state: State, agent: Agent, report: AgentTask) -> Iterator[Effect]:
    """End a listed task that is none of the master's, or have the agent forget its end."""
    if not report.latest.state.is_terminal:
        yield _end_here(agent, report)
    for status in report.unacknowledged:
        yield from acknowledge(state, status)


def _end_here(agent: Agent, report: AgentTask) -> Send:
    """Return the order to end a listed task that is none of this agent's."""
    assert agent.session is not None
    key = (report.framework_id, TaskId(report.task.task_id))
    return Send(agent.session, KillTask(*key, None, Reason.AGENT_REREGISTERED))


def _on_listed(
    state: State, agent: Agent, event: Register, report: AgentTask, running: list[Task], now: float
) -> Iterator[Effect]:
    """Apply one task of the list; add it to `running` if it is to be charged."""
    framework = state.frameworks.get(report.framework_id)
    if framework is None:
        framework = adopt(state, report.framework_id, report.role, now)
        if not framework.is_removed:
            yield Save(framework.record())
    task = framework.tasks.get(report.task.task_id)
    if task is None and _is_of_earlier_gang(framework, report):
        yield from _end_and_forget(state, agent, report)
        return
    if task is None:
        # An unrecorded framework may have tasks that the ledger never had.
        is_complete = event.claim is Claim.KNOWN and not framework.is_unrecorded
        task = _add_found(state, agent, framework, report, is_complete, now)
        if task is not None:
            yield Save(task.record())
    # Only a store that lost records can hold it as queued, or as lined up at another agent.
    if task is not None and task.is_lined_up and task.agent_id != agent.agent_id:
        yield from recall(state, task)
        yield from give_back(state, task, now)
    if task is not None and task.is_queued:
        message = f"agent {agent.agent_id} has run it already"
        yield from end_queued(state, task, TaskState.LOST, Reason.TASK_UNKNOWN, message, now)
    if task is not None:
        yield from _note_resources(task, agent, report)
        _note_acknowledged(task, agent, report)
        if not report.latest.state.is_terminal:
            yield from _on_running(state, agent, framework, task, report, running, now)
    for status in report.unacknowledged:
        if task is not None and ends_run(state, task, status):
            yield from requeue(state, task, status)
        else:
            yield from on_status(state, status, now)
    forget_removed(state, report.framework_id)


def _is_of_earlier_gang(framework: Framework, report: AgentTask) -> bool:
    """Return whether a task is of a gang whose id another gang has by now, or of an earlier run.

    A framework uses an id again only after it knew the ends of all members. A member of an earlier
    run must not end the others of the present one.
    """
    gang = report.task.gang
    known = () if gang is None else framework.gangs.get(gang.gang_id, {}).values()
    if gang is None or not known:
        return False
    members = [each.info.gang for each in known if each.info.gang is not None]
    has_rank = any(each.rank == gang.rank for each in members)
    # All members of a run know the same hosts; an outline has none.
    hosts = {each.hosts for each in (gang, *members) if each.hosts}
    is_queued = any(each.is_queued for each in known)
    return has_rank or is_queued or len(hosts) > 1 or framework.has_used(report.task.task_id)


def _note_resources(task: Task, agent: Agent, report: AgentTask) -> Iterator[Effect]:
    """Note the ports and devices of a run that an older copy of the store lacks."""
    is_live = not (task.state.is_terminal or report.latest.state.is_terminal)
    has_others = task.requeue is not None and task.info.resources != report.task.resources
    if has_others and is_live and task.agent_id == agent.agent_id:
        task.info = replace(task.info, resources=report.task.resources)
        yield Save(task.record())


def _note_acknowledged(task: Task, agent: Agent, report: AgentTask) -> None:
    """Note the updates that an earlier master acknowledged."""
    if task.agent_id == agent.agent_id and not task.is_orphan:
        waiting = report.unacknowledged
        arrived = waiting[0].sequence - 1 if waiting else report.latest.sequence
        task.acknowledged = max(task.acknowledged, arrived)
        task.sequence = max(task.sequence, arrived)


def _add_found(
    state: State,
    agent: Agent,
    framework: Framework,
    report: AgentTask,
    is_complete: bool,
    now: float,
) -> Task | None:
    """Add a task that is not in the ledger; None if it has ended and was acknowledged.

    If the agent has seen no later master than this ledger's, the ledger `is_complete`: it had the
    task, and the end was acknowledged. Otherwise the terminal update may be new, so it is sent,
    perhaps for a second time.
    """
    latest = report.latest
    task_id = report.task.task_id
    used = framework.has_used(task_id)
    if latest.state.is_terminal and (used or is_complete):
        return None
    role = report.role or framework.roles[0]
    task = Task(report.task, framework.framework_id, agent.agent_id, role, latest, now)
    if used:
        # The master has forgotten it after a terminal status, but it still runs: kill it.
        framework.used_ids.pop(task_id, None)
        task.request_kill(None, Reason.AGENT_REREGISTERED)
    task_moves.add_task(state, task)
    if task.info.gang is not None:
        # What the ends of members mean may be new, too.
        members = framework.gangs[task.info.gang_id].values()
        state.ended_members += [each for each in members if each.state.is_terminal]
    return task


def _on_running(
    state: State,
    agent: Agent,
    framework: Framework,
    task: Task,
    report: AgentTask,
    running: list[Task],
    now: float,
) -> Iterator[Effect]:
    if task.state.is_terminal or task.agent_id != agent.agent_id:
        # It has a terminal status, or is a task of another agent: it must not run here.
        yield _end_here(agent, report)
        if task.agent_id == agent.agent_id and report.latest.sequence > task.sequence:
            # The agent has lost its record of the end: the master sends that in its place.
            yield from orphan(state, task, now)
        return
    running.append(task)
    if report.age_ms and task.placed is None:
        # An earlier master has launched it.
        task.since = now - report.age_ms / 1000
    if framework.is_removed:
        task.request_kill(None, Reason.FRAMEWORK_REMOVED)
    new = report.latest.state
    if task.state is TaskState.UNREACHABLE:
        yield from set_status(state, task, new, Reason.AGENT_REREGISTERED, "its agent is back")
    if task.state is TaskState.STAGING and not report.unacknowledged:
        # An earlier master has forwarded its status.
        task.move(report.latest)
