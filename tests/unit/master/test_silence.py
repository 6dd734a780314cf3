"""Silent agents: suspected, unreachable, returned; and what RECONCILE answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import agent_status, calls
from croupier.master.core.agent_commands import Drain, OperateAgent
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Received, Register
from croupier.master.core.settings import Settings
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, Source, TaskState, TaskStatus
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import World, make_task


def test_removals_are_rate_limited() -> None:
    settings = replace(Settings(), removals=2, removal_window_s=60.0)
    world = World(settings=settings)
    for number in range(5):
        session = world.agent(ALL, f"h{number}")
        world.end_session(session)

    def unreachable() -> int:
        states = [agent.state_name for agent in world.state.agents.values()]
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
    assert scene.state.agents[scene.host_id].state_name == "unreachable"
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
def test_next_master_resends_unreachable(away: bool) -> None:
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
def test_next_master_resends_status_of_a_returned_agent(terms: int) -> None:
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


# RECONCILE answers the latest status, and no live status follows an end.


LIFE = (TaskState.STARTING, TaskState.RUNNING, TaskState.FAILED)


class Away(Scene):
    """`t1` ran and failed while its framework was disconnected; the framework is back."""

    def __init__(self, *states: TaskState) -> None:
        super().__init__()
        self.launch()
        self.end_session(self.session)
        common = (self.owner, T1, self.host_id)
        self.statuses = tuple(
            TaskStatus(*common, state, Source.EXECUTOR, sequence=number)
            for number, state in enumerate(states or LIFE, 1)
        )
        if not states:
            last = {"reason": Reason.EXECUTOR_TERMINATED, "message": "over 1GB", "signal": 9}
            self.statuses = (*self.statuses[:-1], replace(self.statuses[-1], **last))  # type: ignore[arg-type]
        self.send_again()
        self.framework_back()

    def send_again(self) -> None:
        """Resend what was not acknowledged."""
        self.do(AgentReported(self.host, self.statuses))

    def reconcile(self, seq: int = 2) -> TaskStatus:
        self.call(self.session, calls.Reconcile((T1,)), seq)
        return self.task_updates()[-1]


def test_answer_is_the_latest_status() -> None:
    scene = Away()
    assert scene.reconcile() == replace(scene.statuses[-1], is_reconciled=True)
    assert scene.task_updates() == [replace(scene.statuses[-1], is_reconciled=True)]


def test_no_live_status_follows_an_end_in_one_session() -> None:
    scene = Away()
    scene.reconcile()
    scene.send_again()
    assert [status.state for status in scene.task_updates()] == [TaskState.FAILED, TaskState.FAILED]
    # A new session may have missed the end, and is sent all updates in order.
    scene.end_session(scene.session)
    scene.framework_back()
    scene.send_again()
    assert [status.state for status in scene.task_updates()] == list(LIFE)


def test_reconciled_end_is_acknowledged_as_the_update() -> None:
    scene = Away()
    scene.acknowledge(scene.reconcile().sequence, 3)
    assert T1 not in scene.state.frameworks[scene.owner].tasks
    message = AcknowledgeUpdate(scene.owner, T1, 3)
    assert scene.sent[scene.host][-1] == message
    sent = len(scene.task_updates())
    scene.send_again()
    assert len(scene.task_updates()) == sent
    assert scene.sent[scene.host][-1] == message


def test_update_after_a_reconciled_live_status_is_sent() -> None:
    scene = Away(*LIFE[:2])
    assert scene.reconcile() == replace(scene.statuses[-1], is_reconciled=True)
    scene.report(scene.host, scene.owner, "t1", TaskState.FINISHED, 3)
    assert [status.sequence for status in scene.task_updates()] == [2, 3]


def test_end_made_by_the_master_keeps_its_number() -> None:
    scene = Away(TaskState.STARTING)
    scene.end_session(scene.host)
    scene.agent_back(incomplete=True)
    answer = scene.reconcile()
    assert (answer.state, answer.reason) == (TaskState.GONE, Reason.AGENT_RESTARTED)
    assert (answer.sequence, answer.is_reconciled) == (MASTER_SEQUENCE, True)


def test_end_with_a_later_number_is_sent_without_earlier_updates() -> None:
    """An agent that lost records resends all, with numbers above the lost ones."""
    scene = Away()
    scene.reconcile()
    scene.end_session(scene.host)
    later = tuple(replace(each, sequence=1000 + each.sequence) for each in scene.statuses[1:])
    task = AgentTask(scene.owner, make_task("t1"), later[-1], later)
    scene.host = SessionId(next(scene._sessions))
    total = Resources.parse(ALL)
    scene.do(Register(scene.host, scene.host_id, "host", total, {}, tasks=(task,), incomplete=True))
    assert [status.sequence for status in scene.task_updates()] == [3, 1003]
    scene.acknowledge(1003, 3)
    assert T1 not in scene.state.frameworks[scene.owner].tasks
