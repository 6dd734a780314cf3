"""Silent agents: suspected, unreachable, returned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import agent_status, calls
from croupier.master.core.agent_commands import Drain, OperateAgent
from croupier.master.core.events import Received
from croupier.master.core.settings import Settings
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import World


def test_suspect_agent_is_offered_again_after_a_heartbeat() -> None:
    scene = Scene()
    scene.pass_time(40.0)
    assert scene.state.agents[scene.host_id].state.name == "suspect"
    assert scene.offers(scene.session) == []
    scene.do(Received(scene.host))
    assert scene.state.agents[scene.host_id].state.name == "connected"
    assert len(scene.offers(scene.session)) == 1


def test_silent_agent_becomes_unreachable() -> None:
    scene = Scene()
    scene.launch()
    scene.pass_time(75.0)
    assert scene.state.agents[scene.host_id].state.name == "unreachable"


def test_removals_are_rate_limited() -> None:
    settings = replace(Settings(), removals=2, removal_window_s=60.0)
    world = World(settings=settings)
    for number in range(5):
        session = world.agent(ALL, f"h{number}")
        world.end_session(session)

    def unreachable() -> int:
        states = [agent.state.name for agent in world.state.agents.values()]
        return states.count("unreachable")

    world.pass_time(76.0)
    assert unreachable() == 2
    world.pass_time(60.0)
    assert unreachable() == 4
    world.pass_time(60.0)
    assert unreachable() == 5


def test_rate_limit_of_removals_tolerates_rounding() -> None:
    settings = replace(Settings(), removals=1, removal_window_s=0.1)
    world = World(settings=settings)
    # In floats, 7.7 + 0.1 - 0.1 is less than 7.7.
    world.now = 7.7 - (settings.agent_timeout_s - settings.suspect_s)
    for number in range(3):
        world.end_session(world.agent(ALL, f"h{number}"))
    world.pass_time(200.0)
    assert len(world.state.unreachable) == 3


def test_unreachable_agent_returns_with_its_tasks() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.host)
    scene.pass_time(74.0)
    scene.do(Received(scene.session))
    scene.pass_time(2.0)
    assert scene.task_updates()[-1].state is TaskState.UNREACHABLE
    scene.restart()
    scene.framework_back()
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    last = scene.task_updates()[-1]
    assert (last.state, last.reason) == (TaskState.RUNNING, Reason.AGENT_REREGISTERED)


def test_agent_stays_unreachable_after_failover() -> None:
    scene = Scene()
    scene.launch()
    scene.end_session(scene.host)
    scene.pass_time(76.0)
    scene.restart()
    assert scene.state.agents[scene.host_id].state.name == "unreachable"
    scene.framework_back()
    scene.call(scene.session, calls.Reconcile((T1,)), 2)
    last = scene.task_updates()[-1]
    assert (last.state, last.decided_in_s) == (TaskState.UNREACHABLE, None)
    # It does not become unreachable a second time.
    scene.pass_time(1000.0)
    assert not scene.state.removals
    assert scene.task_updates()[-1] == last
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    scene.restart()
    assert scene.state.agents[scene.host_id].is_absent


def test_unacknowledged_end_survives_its_agent() -> None:
    scene = Scene()
    scene.launch()
    scene.do(OperateAgent(7, scene.host_id, Drain(), "me"))
    scene.end_session(scene.session)
    scene.report(scene.host, scene.owner, "t1", TaskState.RUNNING, 1)
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 2)
    scene.end_session(scene.host)
    scene.pass_time(76.0)
    for _ in range(2):
        progress = agent_status.drain_progress(
            scene.state, scene.state.agents[scene.host_id], scene.now
        )
        assert progress is not None
        assert progress.is_done
        scene.restart()
    scene.framework_back()
    assert [(s.state, s.sequence) for s in scene.task_updates()] == [
        (TaskState.KILLED, MASTER_SEQUENCE)
    ]
    # Its agent returns with it, and may forget it.
    scene.agent_back(TaskState.RUNNING, TaskState.KILLED, waiting=2)
    assert [s.state for s in scene.task_updates()] == [TaskState.KILLED]
    assert AcknowledgeUpdate(scene.owner, T1, 2) in scene.sent[scene.host]


@pytest.mark.parametrize("away", [False, True])
def test_next_master_resends_unreachable(
    away: bool,
) -> None:
    scene = Scene()
    scene.launch()
    if away:
        scene.end_session(scene.session)
    scene.end_session(scene.host)
    scene.pass_time(74.0)
    scene.do(Received(scene.session))
    scene.pass_time(6.0)
    scene.restart()
    scene.framework_back()
    scene.pass_time(60.0)
    assert [s.state for s in scene.task_updates()] == [TaskState.UNREACHABLE]


@pytest.mark.parametrize("terms", [0, 1, 2])
def test_next_master_resends_status_of_a_returned_agent(
    terms: int,
) -> None:
    scene = Scene()
    scene.launch()
    scene.report(scene.host, scene.owner, "t1", TaskState.STARTING, 1)
    scene.report(scene.host, scene.owner, "t1", TaskState.RUNNING, 2)
    scene.acknowledge(2, 2)
    scene.end_session(scene.host)
    scene.pass_time(74.0)
    scene.do(Received(scene.session))
    scene.pass_time(2.0)
    assert scene.task_updates()[-1].state is TaskState.UNREACHABLE
    scene.end_session(scene.session)
    scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    for _ in range(terms):
        scene.restart()
        scene.framework_back()
        scene.call(scene.session, calls.Reconcile((T1,)), 3)
        assert scene.task_updates()[-1].state is TaskState.UNKNOWN
        scene.end_session(scene.session)
        scene.agent_back(TaskState.STARTING, TaskState.RUNNING)
    scene.framework_back()
    assert [s.state for s in scene.task_updates()] == [TaskState.RUNNING]
