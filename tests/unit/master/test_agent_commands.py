"""Names of agents for operators, and bounds; `scenarios/failover/operators.txt` tells the rest."""

from __future__ import annotations

from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
)
from croupier.master.core.agent_status import AgentStatus, DrainProgress, drain_progress
from croupier.master.core.effects import Answer
from croupier.master.leadership.recovery import agents_missing
from croupier.master.metrics.gauges import STATE as AGENTS
from croupier.model.errors import CroupierError, NotFound
from croupier.model.ids import short_id
from tests.harness.restarting import ALL, Scene
from tests.harness.world import CLUSTER, make_task


class Operated(Scene):
    """A scene in which an operator commands agents."""

    def operate(self, action: AgentAction, agent: str | None = None) -> object:
        """Return the answer to the operator."""
        named = self.host_id if agent is None else agent
        event = OperateAgent(7, named, action, "me")
        (answer,) = [each for each in self.do(event) if isinstance(each, Answer)]
        assert answer.request == 7
        return answer.result

    def refused(self, action: AgentAction, agent: str | None = None) -> CroupierError:
        """Return the error in the operator's answer, and check that nothing changed."""
        before = len(self.saved), len(self.facts)
        error = self.operate(action, agent)
        assert isinstance(error, CroupierError)
        assert (len(self.saved), len(self.facts)) == before
        return error

    @property
    def drain(self) -> DrainProgress:
        found = drain_progress(self.state, self.state.agents[self.host_id], self.now)
        assert found is not None
        return found


def counted(scene: Operated) -> tuple[dict[str, float], int]:
    """Return the agents in each state, as alerts see them, and how many are missing."""
    (family,) = [each for each in AGENTS if each.name == "agents"]
    reading = family.read(scene.state)
    assert isinstance(reading, dict)
    return {name: number for name, number in reading.items() if number}, agents_missing(scene.state)


def test_an_agent_that_was_drained_and_stopped_raises_no_alert() -> None:
    scene = Operated()
    scene.launch()
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


def test_blockers_are_bounded() -> None:
    small = [make_task(f"t{n}", "cpus:0.01;mem:1MB") for n in range(150)]
    scene = Operated()
    scene.launch(*small)
    scene.end_session(scene.host)
    scene.operate(Drain())
    assert (scene.drain.tasks_left, len(scene.drain.blockers)) == (150, 100)


def test_an_agent_is_named_by_its_short_id() -> None:
    scene = Operated()
    other = scene.agent_id(scene.agent(ALL, "h2"))
    found = scene.operate(Deactivate(), short_id(other))
    assert isinstance(found, AgentStatus)
    assert found.agent.agent_id == other
    for name in ("", "x" * 100_000):
        error = scene.refused(Drain(), name)
        assert isinstance(error, NotFound)
        assert len(str(error)) < 500


def test_an_id_comes_before_a_hostname() -> None:
    scene = Operated()
    scene.agent(ALL, scene.host_id)
    found = scene.operate(Deactivate())
    assert isinstance(found, AgentStatus)
    assert found.agent.agent_id == scene.host_id


def test_gone_id_is_not_reused() -> None:
    scene = Operated()
    guessed = f"{CLUSTER}-1-A2"
    scene.agent(ALL, "liar", agent_id=guessed)
    scene.operate(MarkGone(), guessed)
    assert scene.agent_id(scene.agent(ALL, "next")) != guessed
