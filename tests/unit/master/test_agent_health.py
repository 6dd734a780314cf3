"""Agents with problems are not offered, and the master records the launches that they refuse."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from croupier.master.allocator import Cause
from croupier.master.core.agent_commands import Deactivate, OperateAgent, Reactivate
from croupier.master.core.agent_status import agent_status
from croupier.master.core.events import AgentHealth, RefusedLaunch, Register
from croupier.master.core.facts import AgentHealthy, AgentUnhealthy
from croupier.master.core.messages import Rescinded
from croupier.master.core.records import TaskRecord
from croupier.master.metrics.counters import Metrics
from croupier.master.services.views import view_agent
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.health import MAX_PROBLEMS, Problem
from croupier.model.ids import AgentId
from croupier.model.limits import MAX_PER_REPORT
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState
from croupier.v1 import agent_pb2 as pb
from tests.harness.explained import explained
from tests.harness.off_the_wire import report_from_wire
from tests.harness.restarting import ALL, T1, Scene

FULL = Problem("disk", "it is full")
GONE = Problem("work-dir", "it was removed")


class Sick(Scene):
    """A scene with an agent that reports its health."""

    def report_health(self, *problems: Problem, refused: tuple[str, ...] = ()) -> None:
        names = (RefusedLaunch(self.owner, T1, f"no: {why}") for why in refused)
        self.do(AgentHealth(self.host, problems, tuple(names)))

    def returns(self, *problems: Problem) -> None:
        self.host = type(self.host)(next(self._sessions))
        total = Resources.parse(ALL)
        self.do(Register(self.host, self.host_id, "host", total, {}, problems=problems))

    def offered(self) -> int:
        return len(self.offers(self.session))


def test_unhealthy_agent_is_withheld_until_it_is_healthy() -> None:
    scene = Sick()
    (offer,) = scene.offers(scene.session)
    scene.report_health(FULL)
    assert (
        Rescinded(offer.offer_id, "its agent cannot launch tasks now") in scene.sent[scene.session]
    )
    assert scene.offered() == 0
    assert AgentUnhealthy(scene.host_id, "host", "disk: it is full") in scene.facts
    scene.pass_time(30.0)
    assert scene.offered() == 0
    scene.report_health()
    assert scene.offered() == 1
    assert AgentHealthy(scene.host_id, "host") in scene.facts


def test_repeated_health_report_changes_nothing() -> None:
    scene = Sick()
    scene.report_health(FULL)
    facts = len(scene.facts)
    scene.report_health(FULL)
    assert len(scene.facts) == facts
    scene.report_health(FULL, GONE)
    assert len(scene.facts) == facts + 1
    assert scene.offered() == 0


def test_tasks_of_unhealthy_agent_stay_charged() -> None:
    scene = Sick()
    scene.launch()
    scene.report(scene.host, scene.owner, "t1", TaskState.RUNNING, 1)
    scene.report_health(GONE)
    agent = scene.state.agents[scene.host_id]
    assert scene.state.used(agent) == Resources.parse("cpus:1;mem:1GB")
    scene.report(scene.host, scene.owner, "t1", TaskState.FINISHED, 2)
    assert scene.task_updates()[-1].state is TaskState.FINISHED
    assert scene.offered() == 0


def test_problems_survive_reconnect_and_failover() -> None:
    scene = Sick()
    scene.report_health(FULL)
    scene.end_session(scene.host)
    scene.returns(FULL)
    assert scene.offered() == 0
    scene.restart()
    scene.framework_back()
    scene.returns(FULL)
    assert scene.offered() == 0
    scene.end_session(scene.host)
    scene.returns()
    assert scene.offered() == 1


def test_reactivate_does_not_override_problems() -> None:
    scene = Sick()
    scene.report_health(FULL)
    for action in (Deactivate(), Reactivate()):
        scene.do(OperateAgent(1, scene.host_id, action))
        assert scene.offered() == 0
    scene.do(OperateAgent(1, scene.host_id, Deactivate()))
    scene.report_health()
    assert scene.offered() == 0
    scene.do(OperateAgent(1, scene.host_id, Reactivate()))
    assert scene.offered() == 1


def test_suspect_agent_with_problem_stays_withheld_after_heartbeat() -> None:
    scene = Sick()
    scene.report_health(FULL)
    scene.pass_time(40.0)
    assert scene.state.agents[scene.host_id].state_name == "suspect"
    scene.report_health(FULL)
    assert scene.state.agents[scene.host_id].state_name == "connected"
    assert scene.offered() == 0


class TestARefusedLaunch:
    def test_is_recorded_and_sent_by_the_master(self) -> None:
        scene = Sick()
        scene.launch()
        scene.report_health(FULL, refused=("it is full",))
        (update,) = scene.task_updates()
        assert (update.state, update.reason, update.message, update.sequence) == (
            TaskState.DROPPED,
            Reason.CONTAINER_LAUNCH_FAILED,
            "no: it is full",
            MASTER_SEQUENCE,
        )
        record = scene.saved[-1]
        assert isinstance(record, TaskRecord)
        assert record.master_status is not None
        assert record.master_status.state is TaskState.DROPPED
        assert not scene.state.used(scene.state.agents[scene.host_id])

    def test_stays_ended_after_master_and_agent_restart(self) -> None:
        scene = Sick()
        scene.launch()
        scene.report_health(FULL, refused=("it is full",))
        scene.restart()
        scene.framework_back()
        scene.returns()
        assert not scene.launches(scene.host)
        assert [status.state for status in scene.task_updates()] == [TaskState.DROPPED]

    def test_is_ordered_again_if_the_refusal_was_lost(self) -> None:
        scene = Sick()
        scene.launch()
        scene.end_session(scene.host)
        scene.returns()
        assert [task.task_id for task in scene.launches(scene.host)] == [T1]

    def test_is_ignored_for_a_task_with_updates(self) -> None:
        scene = Sick()
        scene.launch()
        scene.report(scene.host, scene.owner, "t1", TaskState.RUNNING, 1)
        scene.report_health(FULL, refused=("it is full",))
        assert [status.state for status in scene.task_updates()] == [TaskState.RUNNING]
        scene.do(AgentHealth(scene.host, (), (RefusedLaunch(scene.owner, T1, ""),) * 3))


def test_problems_are_shown_to_operators() -> None:
    scene = Sick()
    scene.report_health(FULL, GONE)
    view = view_agent(agent_status(scene.state, scene.state.agents[scene.host_id], scene.now))
    shown = [(problem.part, problem.message) for problem in view.problems]
    assert shown == [("disk", "it is full"), ("work-dir", "it was removed")]
    for agent_id in (scene.host_id, AgentId("")):
        reasons = explained(scene.state, scene.owner, agent_id, scene.now).reasons
        (why,) = [each for each in reasons if each.cause == Cause.UNHEALTHY.value]
        assert why.about_agent_id == scene.host_id
        assert why.detail.endswith(": disk: it is full; work-dir: it was removed")


def test_problems_of_agents_are_no_reason_for_a_framework_that_wants_nothing() -> None:
    scene = Sick()
    scene.report_health(FULL)
    reasons = explained(scene.state, scene.owner, AgentId(""), scene.now).reasons
    assert [each.cause for each in reasons] == ["no agents", "agent is unhealthy"]
    scene.state.allocator.suppress(scene.owner)
    reasons = explained(scene.state, scene.owner, AgentId(""), scene.now).reasons
    assert [each.cause for each in reasons] == ["demand is met"]


def test_health_report_before_register_is_refused() -> None:
    scene = Sick()
    scene.do(AgentHealth(scene.session, (FULL,)))
    assert isinstance(scene.closed[scene.session], ProtocolViolation)


def test_flapping_health_does_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(CollectorRegistry())
    for _ in range(500):
        metrics.happened(AgentUnhealthy(AgentId("A1"), "host", "disk: it is full"))
        metrics.happened(AgentHealthy(AgentId("A1"), "host"))
    assert capsys.readouterr().out.count("agent_unhealthy") in (1, 2)


def test_problem_texts_are_bounded_and_printable() -> None:
    scene = Sick()
    wire = pb.AgentHealth()
    for _ in range(1000):
        wire.problems.add(part="x" * 1000, message="\x1b[31m" + "y" * 10_000)
    event = report_from_wire(scene.host, pb.Report(health=wire))
    assert isinstance(event, AgentHealth)
    assert len(event.problems) == MAX_PROBLEMS
    (problem, *_) = event.problems
    assert (len(problem.part), len(problem.message)) == (32, 300)
    assert problem.message.startswith("?[31m")
    for _ in range(MAX_PER_REPORT + 1):
        wire.refused.add(framework_id="F", task_id="t")
    with pytest.raises(InvalidRequest, match="more than 200 refused launches"):
        report_from_wire(scene.host, pb.Report(health=wire))
