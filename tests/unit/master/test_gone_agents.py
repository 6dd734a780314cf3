"""Operators declare agents gone."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.agent_commands import (
    Deactivate,
    Drain,
    MarkGone,
    Reactivate,
)
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.facts import AgentLeft
from croupier.master.core.messages import AgentFailed
from croupier.master.core.records import AgentRecord, ForgetAgent
from croupier.master.core.settings import Settings
from croupier.model.errors import Conflict, Removed
from croupier.model.task import Reason, TaskState
from tests.harness.operated_agent import ALL, T1, Scene
from tests.harness.world import CLUSTER


def test_tasks_of_a_gone_agent_end() -> None:
    scene = Scene()
    agent = scene.operate(MarkGone())
    assert isinstance(agent, AgentStatus)
    assert (agent.agent.agent_id, agent.state, agent.tasks) == (scene.host_id, "gone", 0)
    assert isinstance(scene.closed[scene.host], Removed)
    assert AgentRecord(scene.host_id, "host", gone=True) in scene.saved
    (status,) = scene.updates(scene.session)
    gone = TaskState.GONE_BY_OPERATOR
    assert (status.state, status.reason) == (gone, Reason.GONE_BY_OPERATOR)
    (failed,) = [m for m in scene.sent[scene.session] if isinstance(m, AgentFailed)]
    assert failed.agent_id == scene.host_id
    assert not scene.state.agents
    assert not scene.state.allocator.queries.total
    assert [fact.why for fact in scene.facts if isinstance(fact, AgentLeft)][-1] == "gone"
    # It is resent until it is acknowledged.
    scene.now += 11.0
    scene.pass_time(1.0)
    assert len(scene.updates(scene.session)) == 2
    update = ((scene.host_id, T1, status.sequence),)
    assert scene.call(scene.session, calls.Acknowledge(update)).error is None
    assert not scene.state.frameworks[scene.owner].tasks


def test_gone_agent_cannot_register_again() -> None:
    scene = Scene()
    scene.operate(MarkGone())
    scene.restart()
    session = scene.agent(ALL, agent_id=scene.host_id)
    assert isinstance(scene.closed[session], Removed)
    scene.session = scene.framework(framework_id=scene.owner)
    assert [s.state for s in scene.updates(scene.session)] == [TaskState.GONE_BY_OPERATOR]
    new = scene.agent(ALL)
    assert scene.agent_id(new) != scene.host_id


@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_disconnected_agent_can_be_declared_gone(seconds: float) -> None:
    scene = Scene()
    scene.end_session(scene.host)
    scene.pass_time(seconds)
    scene.operate(MarkGone())
    assert not scene.state.agents
    scene.session = scene.framework(framework_id=scene.owner)
    assert {s.state for s in scene.updates(scene.session)} == {TaskState.GONE_BY_OPERATOR}


def test_absent_agent_can_be_declared_gone() -> None:
    scene = Scene()
    scene.restart()
    scene.operate(MarkGone())
    scene.session = scene.framework(framework_id=scene.owner)
    assert [s.state for s in scene.updates(scene.session)] == [TaskState.GONE_BY_OPERATOR]
    scene.call(scene.session, calls.Reconcile((T1,)))
    assert scene.updates(scene.session)[-1].state is TaskState.GONE_BY_OPERATOR


def test_gone_agent_accepts_only_another_gone() -> None:
    scene = Scene()
    scene.operate(MarkGone())
    again = scene.operate(MarkGone())
    assert isinstance(again, AgentStatus)
    assert again.agent.agent_id == scene.host_id
    for action in (Drain(), Deactivate(), Reactivate()):
        error = scene.refused(action)
        assert isinstance(error, Conflict)
        assert "declared gone" in str(error)


def test_oldest_gone_agents_are_forgotten() -> None:
    scene = Scene(settings=Settings(gone_agents=2))
    ids = [scene.agent_id(scene.agent(ALL, f"h{n}")) for n in range(3)]
    for agent_id in ids:
        scene.operate(MarkGone(), agent_id)
    assert list(scene.state.gone) == ids[1:]
    assert ForgetAgent(ids[0]) in scene.saved
    scene.restart()
    assert list(scene.state.gone) == ids[1:]


def test_gone_id_is_not_reused() -> None:
    scene = Scene()
    guessed = f"{CLUSTER}-1-A2"
    scene.agent(ALL, "liar", agent_id=guessed)
    scene.operate(MarkGone(), guessed)
    assert scene.agent_id(scene.agent(ALL, "next")) != guessed
