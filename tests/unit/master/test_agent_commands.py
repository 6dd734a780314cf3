"""Operators drain, deactivate and reactivate agents."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.agent_commands import (
    Deactivate,
    Drain,
    Reactivate,
)
from croupier.master.core.agent_status import AgentStatus, DrainProgress, agent_status
from croupier.master.core.events import AgentStopped
from croupier.master.core.facts import AgentDrained, AgentOperated
from croupier.master.core.messages import Rescinded
from croupier.master.core.records import AgentRecord, DrainRequest, ForgetAgent
from croupier.master.leadership.recovery import agents_missing
from croupier.master.metrics.gauges import STATE as AGENTS
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import TaskId, short_id
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState
from tests.harness.operated_agent import ALL, T1, Scene, graceful
from tests.harness.world import make_task

# Drain.


def test_drained_agent_is_withheld_and_its_tasks_end() -> None:
    scene = Scene()
    scene.pass_time(6.0)
    (offer,) = scene.offers(scene.session)
    agent = scene.operate(Drain())
    assert agent == agent_status(scene.state, scene.known, scene.now)
    assert scene.saved[-2:] == [
        AgentRecord(scene.host_id, "host", drain=DrainRequest(), total=Resources.parse(ALL)),
        scene.state.frameworks[scene.owner].tasks[T1].record(),
    ]
    rescinded = [m for m in scene.sent[scene.session] if isinstance(m, Rescinded)]
    assert [m.offer_id for m in rescinded] == [offer.offer_id]
    assert rescinded[0].reason == "its agent is being drained"
    assert scene.killed() == [("t1", None, Reason.AGENT_DRAINING)]
    assert scene.drain == DrainProgress(None, 1, 3.0, ())
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    assert scene.drain.is_done
    assert scene.drained() == 1
    scene.pass_time(1.0)
    assert not scene.offers(scene.session)
    assert AgentOperated(scene.host_id, "host", "drain", "me") in scene.facts


def test_an_agent_without_tasks_is_drained_at_once() -> None:
    scene = Scene()
    other = scene.agent_id(scene.agent(ALL, "idle"))
    scene.operate(Drain(), "idle")
    assert AgentDrained(other, "idle") in scene.facts


def counted(scene: Scene) -> tuple[dict[str, float], int]:
    """Return the agents in each state, as alerts see them, and how many are missing."""
    (family,) = [each for each in AGENTS if each.name == "agents"]
    reading = family.read(scene.state)
    assert isinstance(reading, dict)
    return {name: number for name, number in reading.items() if number}, agents_missing(scene.state)


def test_an_agent_that_was_drained_and_stopped_raises_no_alert() -> None:
    scene = Scene()
    idle = scene.agent(ALL, "idle")
    scene.end_session(scene.host)
    scene.operate(Drain(), "idle")
    assert counted(scene) == ({"connected": 1, "disconnected": 1}, 0)
    scene.end_session(idle)
    assert counted(scene) == ({"disconnected": 1, "stopped": 1}, 0)
    scene.pass_time(100.0)
    assert counted(scene) == ({"unreachable": 1, "stopped": 1}, 0)
    scene.restart()
    assert counted(scene)[0]["stopped"] == 1
    # An agent with tasks is missed, although it is to be drained.
    scene.operate(Drain())
    assert counted(scene)[0]["unreachable"] == 1


def test_drain_kills_with_the_shorter_grace() -> None:
    scene = Scene(graceful("t1", 1000), graceful("t2", 60_000))
    scene.operate(Drain(5000))
    draining = Reason.AGENT_DRAINING
    assert scene.killed() == [("t1", None, draining), ("t2", 5000, draining)]
    assert scene.drain.estimate_s == 5.0
    assert scene.drain.grace_ms == 5000


def test_second_drain_may_only_shorten_the_grace() -> None:
    scene = Scene(graceful("t1", 60_000))
    scene.operate(Drain(30_000))
    saved, sent = len(scene.saved), len(scene.killed())
    scene.operate(Drain(30_000))
    assert (len(scene.saved), len(scene.killed())) == (saved, sent)
    scene.operate(Drain(5000))
    assert scene.killed()[sent:] == [("t1", 5000, Reason.AGENT_DRAINING)]
    assert scene.drain.estimate_s == 5.0
    scene.operate(Drain(50_000))
    assert len(scene.killed()) == sent + 1
    assert scene.drain.grace_ms == 50_000
    assert scene.drain.estimate_s == 5.0


def test_drain_keeps_the_reason_of_an_earlier_kill() -> None:
    scene = Scene(graceful("t1", 60_000))
    scene.call(scene.session, calls.Kill(T1))
    scene.operate(Drain())
    assert scene.killed() == [("t1", None, Reason.KILLED_BY_FRAMEWORK)]
    scene.operate(Drain(1000))
    assert scene.killed()[1:] == [("t1", 1000, Reason.KILLED_BY_FRAMEWORK)]


def test_disconnected_agent_is_drained_when_it_returns() -> None:
    scene = Scene()
    scene.end_session(scene.host)
    scene.operate(Drain())
    assert scene.drain.estimate_s is None
    (blocker,) = scene.drain.blockers
    assert "disconnected, and becomes unreachable in 75 s" in blocker.reason
    scene.agent_back(make_task("t1"))
    assert scene.killed() == [("t1", None, Reason.AGENT_DRAINING)]
    assert scene.drain == DrainProgress(None, 1, 3.0, ())


def test_a_task_that_never_arrived_is_not_launched_on_a_drained_agent() -> None:
    scene = Scene()
    scene.end_session(scene.host)
    scene.operate(Drain())
    scene.agent_back()
    assert not [m for m in scene.sent[scene.host] if isinstance(m, LaunchTask)]
    (status,) = scene.updates(scene.session)
    assert (status.state, status.reason) == (TaskState.KILLED, Reason.AGENT_DRAINING)
    assert scene.drain.is_done
    assert scene.drained() == 1


def test_unknown_task_on_a_drained_agent_is_killed() -> None:
    scene = Scene()
    scene.operate(Drain(2000))
    scene.end_session(scene.host)
    scene.agent_back(make_task("t1"), make_task("stray"))
    assert {task for task, _, _ in scene.killed()} == {"t1", "stray"}
    assert scene.drain.tasks_left == 2


def test_drain_survives_failover() -> None:
    scene = Scene()
    scene.operate(Drain(2000))
    scene.restart()
    assert scene.drain.tasks_left == 1
    assert not scene.known.is_offered
    scene.agent_back(make_task("t1"), make_task("t2"))
    assert scene.killed() == [
        ("t1", 2000, Reason.AGENT_DRAINING),
        ("t2", 2000, Reason.AGENT_DRAINING),
    ]
    scene.session = scene.framework(framework_id=scene.owner)
    assert not scene.offers(scene.session)
    for task in ("t1", "t2"):
        scene.report(scene.host, scene.owner, task, TaskState.KILLED, 2)
    assert scene.drained() == 1


def test_drain_shows_missing_acknowledgements_without_waiting_for_them() -> None:
    scene = Scene()
    scene.operate(Drain())
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    assert scene.drain.is_done
    (blocker,) = scene.drain.blockers
    assert "its framework has not acknowledged that" in blocker.reason
    scene.end_session(scene.session)
    assert "its framework is disconnected" in scene.drain.blockers[0].reason


def test_overdue_task_is_shown_as_a_blocker() -> None:
    scene = Scene()
    scene.operate(Drain())
    scene.now += 5.0
    assert not scene.drain.blockers
    scene.now += 5.0
    (blocker,) = scene.drain.blockers
    assert blocker.reason.startswith("its grace ended 7 s ago")
    assert scene.drain.estimate_s == 0.0


def test_blockers_are_bounded() -> None:
    small = [make_task(f"t{n}", "cpus:0.01;mem:1MB") for n in range(150)]
    scene = Scene(*small)
    scene.end_session(scene.host)
    scene.operate(Drain())
    assert (scene.drain.tasks_left, len(scene.drain.blockers)) == (150, 100)


def test_tasks_of_a_removed_framework_block_a_drain_only_while_they_run() -> None:
    scene = Scene(graceful("t1", 60_000))
    scene.call(scene.session, calls.Teardown())
    scene.operate(Drain(1000))
    assert scene.killed()[-1] == ("t1", 1000, Reason.FRAMEWORK_REMOVED)
    scene.end_session(scene.host)
    scene.pass_time(100.0)
    assert scene.drain.is_done
    assert scene.drained() == 1


def test_an_unreachable_agent_can_be_drained() -> None:
    scene = Scene()
    scene.end_session(scene.host)
    scene.pass_time(100.0)
    assert scene.known.state.name == "unreachable"
    scene.operate(Drain())
    assert "its agent is unreachable; the task is killed" in scene.drain.blockers[0].reason
    scene.agent_back(make_task("t1"))
    assert scene.killed() == [("t1", None, Reason.AGENT_DRAINING)]


@pytest.mark.parametrize("grace_ms", [-1, 24 * 3600 * 1000 + 1, 2**63])
def test_grace_out_of_range_is_refused(grace_ms: int) -> None:
    scene = Scene()
    assert isinstance(scene.refused(Drain(grace_ms)), InvalidRequest)


# Deactivate and reactivate.


def test_deactivated_agent_is_withheld_and_its_tasks_run_on() -> None:
    scene = Scene()
    scene.operate(Deactivate())
    assert not scene.offers(scene.session)
    assert not scene.killed()
    scene.restart()
    scene.agent_back(make_task("t1"))
    scene.session = scene.framework(framework_id=scene.owner)
    assert not scene.offers(scene.session)
    scene.operate(Reactivate())
    assert len(scene.offers(scene.session)) == 1
    assert not scene.killed()


def test_reactivating_ends_a_drain() -> None:
    scene = Scene()
    scene.operate(Drain())
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    scene.operate(Reactivate())
    assert scene.known.record() == AgentRecord(scene.host_id, "host", total=Resources.parse(ALL))
    assert len(scene.offers(scene.session)) == 1
    scene.restart()
    scene.agent_back()
    scene.session = scene.framework(framework_id=scene.owner)
    assert len(scene.offers(scene.session)) == 1


def test_reactivate_withdraws_kills_that_were_not_ordered() -> None:
    scene = Scene(make_task("t1"), make_task("t2"))
    scene.end_session(scene.host)
    scene.operate(Drain())
    scene.call(scene.session, calls.Kill(TaskId("t2")))
    scene.operate(Reactivate())
    scene.agent_back(make_task("t1"), make_task("t2"))
    assert scene.killed() == [("t2", None, Reason.KILLED_BY_FRAMEWORK)]


def test_repeated_action_changes_nothing() -> None:
    scene = Scene()
    scene.operate(Reactivate())
    scene.operate(Deactivate())
    saved, facts = len(scene.saved), len(scene.facts)
    scene.operate(Deactivate())
    assert (len(scene.saved), len(scene.facts)) == (saved, facts)


# Names.


def test_agents_are_named_by_id_or_unique_hostname() -> None:
    scene = Scene()
    other = scene.agent_id(scene.agent(ALL, "h2"))
    for name in ("h2", short_id(other), other):
        found = scene.operate(Deactivate(), name)
        assert isinstance(found, AgentStatus)
        assert found.agent.agent_id == other
    third = scene.agent_id(scene.agent(ALL, "h2"))
    error = scene.refused(Drain(), "h2")
    assert isinstance(error, InvalidRequest)
    assert f"{other} (connected), {third} (connected)" in str(error)
    for name in ("unknown", "", "x" * 100_000):
        error = scene.refused(Drain(), name)
        assert isinstance(error, NotFound)
        assert len(str(error)) < 500


def test_an_id_comes_before_a_hostname() -> None:
    scene = Scene()
    scene.agent(ALL, scene.host_id)
    found = scene.operate(Deactivate())
    assert isinstance(found, AgentStatus)
    assert found.agent.agent_id == scene.host_id


def test_stopped_agent_leaves_no_drain() -> None:
    scene = Scene()
    scene.operate(Drain())
    scene.do(AgentStopped(scene.host, "bye"))
    assert scene.saved[-1] == ForgetAgent(scene.host_id)
    assert not scene.state.agents
