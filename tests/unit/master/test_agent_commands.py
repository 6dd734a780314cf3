"""What operators do with agents is durable, reported and bounded; scenarios tell what it does."""

from __future__ import annotations

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.agent_status import (
    AgentStatus,
    DrainProgress,
    agent_status,
    drain_progress,
)
from croupier.master.core.agents import Agent
from croupier.master.core.effects import Answer
from croupier.master.core.events import AgentStopped
from croupier.master.core.facts import AgentDrained, AgentLeft, AgentOperated
from croupier.master.core.messages import AgentFailed, Rescinded
from croupier.master.core.records import AgentRecord, DrainRequest, ForgetAgent
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.leadership.recovery import agents_missing
from croupier.master.metrics.gauges import STATE as AGENTS
from croupier.model.agent_orders import KillTask
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Removed
from croupier.model.ids import TaskId, short_id
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState
from tests.harness.world import CLUSTER, World, make_task

ALL = "cpus:4;mem:4GB"
T1 = TaskId("t1")


class Scene(World):
    """One agent, on which one framework runs `t1` with a grace of 3 s."""

    def __init__(self, *tasks: TaskInfo, settings: Settings | None = None) -> None:
        super().__init__(state=State(f"{CLUSTER}-1", settings or Settings(), Allocator()))
        self.host = self.agent(ALL)
        self.host_id = self.agent_id(self.host)
        self.session = self.framework()
        self.owner = self.framework_id(self.session)
        verdict = self.accept(self.session, *(tasks or (make_task("t1"),)))
        assert verdict.error is None

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
    def known(self) -> Agent:
        return self.state.agents[self.host_id]

    @property
    def drain(self) -> DrainProgress:
        found = drain_progress(self.state, self.known, self.now)
        assert found is not None
        return found

    def killed(self) -> list[tuple[str, int | None, Reason]]:
        """Return the kills that were sent to the agent."""
        sent = self.sent.get(self.host, [])
        kills = [message for message in sent if isinstance(message, KillTask)]
        return [(kill.task_id, kill.grace_ms, kill.reason) for kill in kills]

    def drained(self) -> int:
        """Return how often a drain was reported as done."""
        return sum(isinstance(fact, AgentDrained) for fact in self.facts)


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


def test_drain_shows_missing_acknowledgements_without_waiting_for_them() -> None:
    scene = Scene()
    scene.operate(Drain())
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    assert scene.drain.is_done
    (blocker,) = scene.drain.blockers
    assert "its framework has not acknowledged that" in blocker.reason
    scene.end_session(scene.session)
    assert "its framework is disconnected" in scene.drain.blockers[0].reason


def test_blockers_are_bounded() -> None:
    small = [make_task(f"t{n}", "cpus:0.01;mem:1MB") for n in range(150)]
    scene = Scene(*small)
    scene.end_session(scene.host)
    scene.operate(Drain())
    assert (scene.drain.tasks_left, len(scene.drain.blockers)) == (150, 100)


# Deactivate and reactivate.


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


# Operators declare agents gone.


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
