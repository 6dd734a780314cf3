"""What a registering agent holds, against what the ledger knows.

What the agent lists is the truth about its tasks. What the ledger holds and the agent does
not list has never arrived there: it is launched again. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.agents import Agent
from croupier.master.core.drains import wanted_kill
from croupier.master.core.effects import PAUSE, Effect, Save, Send, Step
from croupier.master.core.events import AgentTask, Claim, Register
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_accept import order_launch
from croupier.master.core.on_framework import adopt
from croupier.master.core.on_task import (
    end,
    forget_removed,
    on_status,
    order_kill,
    orphan,
    tell,
    want_kill,
)
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import KillTask
from croupier.model.task import Reason, TaskState


def sync(state: State, agent: Agent, event: Register, now: float) -> Iterator[Step]:
    """Bring the books in line with what an agent lists that has just registered."""
    listed = {(report.framework_id, report.task.task_id) for report in event.tasks}
    missing = [task for key, task in agent.tasks.items() if key not in listed]
    # What the agent has done since this store was copied may be missing from the ledger.
    may_have_run = event.incomplete or event.claim is Claim.GIVEN_UP
    yield from _want_drained(agent)
    running: list[Task] = []
    for report in event.tasks:
        yield PAUSE
        yield from _on_listed(state, agent, event, report, running, now)
    # All at once: what is free on the agent is a list of ranges, which each charge rewrites.
    state.charge_tasks(agent.agent_id, [task for task in running if not task.state.is_terminal])
    for task in missing:
        yield from _on_missing(state, task, may_have_run, now)
    # Some may have been found.
    yield from _want_drained(agent)
    for task in agent.tasks.values():
        yield PAUSE
        if task.kill is not None and not task.state.is_terminal:
            yield from order_kill(state, task, now)


def _want_drained(agent: Agent) -> Iterator[Effect]:
    """Have all of an agent's tasks end, if it is being drained."""
    if agent.drain is None:
        return
    for task in agent.tasks.values():
        if not task.state.is_terminal:
            wanted = wanted_kill(task, agent.drain)
            if wanted is not None:
                yield from want_kill(task, *wanted)


def _on_missing(state: State, task: Task, may_have_run: bool, now: float) -> Iterator[Effect]:
    """A task that its agent does not have: it never arrived, or it is gone.

    An agent keeps what it took in until we have forgotten it. So what it has never said a word
    of has not arrived, unless it has lost records, or the ledger has: then it `may_have_run`.
    """
    restarted = Reason.AGENT_RESTARTED
    if task.state.is_terminal:
        yield from orphan(state, task, now)
    elif task.sequence or may_have_run:
        message = "the agent came back without it"
        yield from end(state, task, TaskState.GONE, restarted, message, now)
    elif task.kill is not None:
        message = "killed before it was started"
        yield from end(state, task, TaskState.KILLED, task.kill.reason, message, now)
    elif not task.is_active and not _fits(state, task):
        message = "the agent came back and has no room for it any more"
        yield from end(state, task, TaskState.DROPPED, restarted, message, now)
    else:
        if task.state is TaskState.UNREACHABLE:
            message = "its agent is back, and is to start it"
            yield from tell(state, task, TaskState.STARTING, Reason.AGENT_REREGISTERED, message)
        if not task.is_active:
            state.charge_tasks(task.agent_id, (task,))
        yield from order_launch(state, task)


def _fits(state: State, task: Task) -> bool:
    return task.info.resources <= state.allocator.queries.free(task.agent_id)


def _on_listed(
    state: State,
    agent: Agent,
    event: Register,
    report: AgentTask,
    running: list[Task],
    now: float,
) -> Iterator[Effect]:
    """One task of the list; added to `running` if it is to be charged."""
    framework = state.frameworks.get(report.framework_id)
    if framework is None:
        framework = adopt(state, report.framework_id, report.role, now)
        if not framework.is_removed:
            yield Save(framework.record())
    task = framework.tasks.get(report.task.task_id)
    if task is None:
        # A framework that is a stranger is older than the ledger.
        is_complete = event.claim is Claim.KNOWN and not framework.is_unrecorded
        task = _found(state, agent, framework, report, is_complete, now)
        if task is not None:
            yield Save(task.record())
    if task is not None:
        _know_acknowledged(task, agent, report)
        if not report.latest.state.is_terminal:
            yield from _on_running(state, agent, framework, task, report, running)
    for status in report.unacknowledged:
        yield from on_status(state, status)
    forget_removed(state, report.framework_id)


def _know_acknowledged(task: Task, agent: Agent, report: AgentTask) -> None:
    """What the agent need not say again has arrived, if with an earlier master."""
    if task.agent_id == agent.agent_id and not task.is_orphan:
        waiting = report.unacknowledged
        arrived = waiting[0].sequence - 1 if waiting else report.latest.sequence
        task.acknowledged = max(task.acknowledged, arrived)
        task.sequence = max(task.sequence, arrived)


def _found(
    state: State,
    agent: Agent,
    framework: Framework,
    report: AgentTask,
    is_complete: bool,
    now: float,
) -> Task | None:
    """A task that the ledger does not know; None if it has ended and was forgotten for that.

    If its agent proves that the ledger is as new as what it has heard, then the ledger
    `is_complete`: it has known the task, and the end was acknowledged. Else it may have lost the
    task, and the end is told: rather once more than never.
    """
    latest = report.latest
    task_id = report.task.task_id
    used = framework.has_used(task_id)
    if latest.state.is_terminal and (used or is_complete):
        return None
    role = report.role or framework.roles[0]
    task = Task(report.task, framework.framework_id, agent.agent_id, role, latest, now)
    if used:
        # It was given up and forgotten, and runs all the same: not for long.
        framework.used_ids.pop(task_id, None)
        task.request_kill(None, Reason.AGENT_REREGISTERED)
    state.add_task(task)
    return task


def _on_running(
    state: State,
    agent: Agent,
    framework: Framework,
    task: Task,
    report: AgentTask,
    running: list[Task],
) -> Iterator[Effect]:
    """A task that its agent says has not ended."""
    if task.state.is_terminal or task.agent_id != agent.agent_id:
        # It was given up for good, or is another agent's: it must not run.
        assert agent.session is not None
        yield Send(
            agent.session,
            KillTask(task.framework_id, task.task_id, None, Reason.AGENT_REREGISTERED),
        )
        return
    running.append(task)
    if framework.is_removed:
        task.request_kill(None, Reason.FRAMEWORK_REMOVED)
    new = report.latest.state
    if task.state is TaskState.UNREACHABLE:
        yield from tell(state, task, new, Reason.AGENT_REREGISTERED, "its agent is back")
    if task.state is TaskState.STAGING and not report.unacknowledged:
        # An earlier master has passed on what it is.
        task.move(report.latest)
