"""Problems of agents as operators see them; `scenarios/failover` tells what they do to offers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from croupier.master.allocator import Cause
from croupier.master.core.agent_status import agent_status
from croupier.master.core.events import AgentHealth
from croupier.master.core.facts import AgentHealthy, AgentUnhealthy
from croupier.master.metrics.counters import Metrics
from croupier.master.services.views import view_agent
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.health import MAX_PROBLEMS, Problem
from croupier.model.ids import AgentId
from croupier.model.limits import MAX_PER_REPORT
from croupier.v1 import agent_pb2 as pb
from tests.harness.explained import explained
from tests.harness.off_the_wire import report_from_wire
from tests.harness.restarting import Scene

FULL = Problem("disk", "it is full")
GONE = Problem("work-dir", "it was removed")


def test_problems_are_shown_to_operators() -> None:
    scene = Scene()
    scene.do(AgentHealth(scene.host, (FULL, GONE)))
    view = view_agent(agent_status(scene.state, scene.state.agents[scene.host_id], scene.now))
    shown = [(problem.part, problem.message) for problem in view.problems]
    assert shown == [("disk", "it is full"), ("work-dir", "it was removed")]
    for agent_id in (scene.host_id, AgentId("")):
        reasons = explained(scene.state, scene.owner, agent_id, scene.now).reasons
        (why,) = [each for each in reasons if each.cause == Cause.UNHEALTHY.value]
        assert why.about_agent_id == scene.host_id
        assert why.detail.endswith(": disk: it is full; work-dir: it was removed")


def test_problems_of_agents_are_no_reason_for_a_framework_that_wants_nothing() -> None:
    scene = Scene()
    scene.do(AgentHealth(scene.host, (FULL,)))
    reasons = explained(scene.state, scene.owner, AgentId(""), scene.now).reasons
    assert [each.cause for each in reasons] == ["no agents", "agent is unhealthy"]
    scene.state.allocator.suppress(scene.owner)
    reasons = explained(scene.state, scene.owner, AgentId(""), scene.now).reasons
    assert [each.cause for each in reasons] == ["demand is met"]


def test_health_report_before_register_is_refused() -> None:
    scene = Scene()
    scene.do(AgentHealth(scene.session, (FULL,)))
    assert isinstance(scene.closed[scene.session], ProtocolViolation)


def test_flapping_health_does_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(CollectorRegistry())
    for _ in range(500):
        metrics.happened(AgentUnhealthy(AgentId("A1"), "host", "disk: it is full"))
        metrics.happened(AgentHealthy(AgentId("A1"), "host"))
    assert capsys.readouterr().out.count("agent_unhealthy") in (1, 2)


def test_problem_texts_are_bounded_and_printable() -> None:
    scene = Scene()
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
