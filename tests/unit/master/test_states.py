"""Agents, frameworks and tasks change state only along their tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from croupier.master.core import agents, frameworks, tasks
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.tasks import Delivery, KillRequest, Task, TaskHold
from croupier.model.errors import Conflict
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.model.task_transitions import TRANSITIONS
from tests.harness.world import make_task

S1, S2 = SessionId(1), SessionId(2)
PROBLEMS = (Problem("disk", "it is full"),)
WITH_SESSION = (AgentState.CONNECTED, AgentState.SUSPECT)


def make() -> Task:
    ids = (FrameworkId("F"), TaskId("t"), AgentId("A"))
    status = TaskStatus(*ids, TaskState.STAGING)
    return Task(make_task("t"), ids[0], ids[2], Role("*"), status)


@pytest.mark.parametrize(("old", "new"), list(product(AgentState, AgentState)))
def test_agent_moves_only_along_its_transitions(old: AgentState, new: AgentState) -> None:
    session = S1 if old in WITH_SESSION else None
    agent = Agent(AgentId("A"), "host", old, session=session, problems=PROBLEMS if session else ())
    if new in agents.TRANSITIONS[old]:
        agent.move(new)
        assert agent.state is new
        kept = session if new in WITH_SESSION else None
        assert (agent.session, agent.problems) == (kept, PROBLEMS if kept else ())
    else:
        with pytest.raises(Conflict, match="agent A cannot go"):
            agent.move(new)
        assert (agent.state, agent.session) == (old, session)


@pytest.mark.parametrize("state", AgentState)
def test_only_a_connected_agent_is_offered(state: AgentState) -> None:
    agent = Agent(AgentId("A"), "host", state, session=S1 if state in WITH_SESSION else None)
    assert agent.is_offered == (state is AgentState.CONNECTED)
    assert agent.in_pool == (state in (*WITH_SESSION, AgentState.DISCONNECTED))
    assert (agent.state_name in agents.STATE_NAMES) == (state is not AgentState.GONE)


@pytest.mark.parametrize(("old", "new"), list(product(FrameworkState, FrameworkState)))
def test_framework_moves_only_along_its_transitions(
    old: FrameworkState, new: FrameworkState
) -> None:
    framework = Framework(FrameworkId("F"), "name", (Role("*"),), 60.0, old)
    if new in frameworks.TRANSITIONS[old]:
        session = S2 if new is FrameworkState.CONNECTED else None
        framework.move(new, session)
        assert (framework.state, framework.session) == (new, session)
    else:
        with pytest.raises(Conflict, match="framework F cannot go"):
            framework.move(new)
        assert framework.state == old


@pytest.mark.parametrize(("old", "new"), list(product(TaskHold, TaskHold)))
def test_hold_of_a_task_changes_only_along_its_transitions(old: TaskHold, new: TaskHold) -> None:
    task = make()
    task.hold = old
    if new in tasks.TRANSITIONS[old]:
        task.hold_as(new)
        assert task.hold is new
    else:
        with pytest.raises(AssertionError):
            task.hold_as(new)
        assert task.hold is old


@pytest.mark.parametrize(("old", "new"), list(product(TaskState, TaskState)))
def test_task_moves_only_along_its_transitions(old: TaskState, new: TaskState) -> None:
    task = make()
    task.status = replace(task.status, state=old)
    status = replace(task.status, state=new, message="new")
    if new in TRANSITIONS[old]:
        task.move(status)
        assert task.status == status
    else:
        with pytest.raises(Conflict, match="task t cannot go"):
            task.move(status)
        assert task.state is old
        assert not task.status.message


def test_second_kill_request_keeps_the_time_of_the_ordered_kill() -> None:
    task = make()
    task.kill = KillRequest(None, Reason.AGENT_DRAINING, due=5.0)
    task.request_kill(1000, Reason.KILLED_BY_FRAMEWORK)
    assert task.kill == KillRequest(1000, Reason.KILLED_BY_FRAMEWORK, due=5.0)
    assert task.record().kill == (1000, Reason.KILLED_BY_FRAMEWORK)


def test_updates_that_were_sent_on_an_earlier_session_do_not_count() -> None:
    task = make()
    task.delivery = Delivery(S1, 3, has_end=True)
    assert task.sent_on(S1) == Delivery(S1, 3, has_end=True)
    assert task.sent_on(S2) == Delivery(S2)
