"""An agent speaks for itself only; callers need permission to operate it."""

from __future__ import annotations

import pytest

from croupier.master.core.agent_commands import Deactivate, MarkGone, OperateAgent
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.effects import Close, Deposed, SessionId
from croupier.master.core.events import AgentHealth, AgentTask, Claim, RefusedLaunch, Register
from croupier.master.core.facts import AgentRefused, UpdateHandled
from croupier.master.core.messages import AgentFailed
from croupier.master.core.step import step
from croupier.model.errors import NotFound, PermissionDenied, Unauthenticated
from croupier.model.ids import AgentId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from tests.harness.secured_world import ADMIN, SecuredWorld, caller
from tests.harness.tenants import Scene
from tests.harness.world import make_task


@pytest.mark.parametrize("by", ["agent/a2", "client/a1", "client/admin", "master/m1"])
@pytest.mark.parametrize("claim", [Claim.KNOWN, Claim.NEWER, Claim.UNPROVEN])
def test_no_other_registers_under_the_id_of_an_agent(by: str, claim: Claim) -> None:
    scene = Scene()
    before = len(scene.sent[scene.host])
    session = scene.register(by, claim=claim)
    assert isinstance(scene.error_of(session), PermissionDenied)
    assert any(isinstance(fact, AgentRefused) for fact in scene.facts)
    assert scene.error_of(scene.host) is None, "the living agent stays"
    assert scene.state.agents[AgentId("a1")].hostname == "host-a1"
    assert len(scene.sent[scene.host]) == before


def test_no_anonymous_agent_registers_or_deposes_the_master() -> None:
    scene = Scene()
    total = Resources.parse("cpus:9")
    later = Register(SessionId(900), AgentId("a9"), "h", total, {}, claim=Claim.NEWER)
    effects = step(scene.state, later, scene.now)
    assert not any(isinstance(effect, Deposed) for effect in effects)
    (close,) = [effect for effect in effects if isinstance(effect, Close)]
    assert isinstance(close.error, Unauthenticated)


@pytest.mark.parametrize("action", [MarkGone(), Deactivate()])
@pytest.mark.parametrize("agent", ["a1", "host-a1"])
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("anna", NotFound),
        ("agent/a1", NotFound),
        ("vera", PermissionDenied),
        ("olga", AgentStatus),
        ("admin", AgentStatus),
    ],
)
def test_who_operates_an_agent(
    by: str, agent: str, action: MarkGone | Deactivate, expected: type
) -> None:
    scene = Scene()
    answer = scene.ask(OperateAgent(1, agent, action, caller=caller(by)))
    assert isinstance(answer, expected)
    known = scene.state.agents.get(AgentId("a1"))
    assert (known is None or known.deactivated) == (expected is AgentStatus)


def test_hostnames_of_agents_that_the_caller_may_not_view_are_not_named() -> None:
    scene = Scene()
    scene.secured_agent("a2")
    for agent in ("a2", "host-a2"):
        answer = scene.ask(OperateAgent(1, agent, Deactivate(), caller=caller("olga")))
        assert isinstance(answer, NotFound)
    scene.ask(OperateAgent(1, "a2", MarkGone(), caller=ADMIN))
    answer = scene.ask(OperateAgent(1, "a2", Deactivate(), caller=caller("olga")))
    assert isinstance(answer, NotFound), "not that it is gone"


def test_an_agent_without_an_id_gets_the_one_that_it_has_proven() -> None:
    world = SecuredWorld()
    session = world.as_principal("agent/a7").agent("cpus:1")
    assert world.agent_id(session) == "a7"


def test_no_agent_reports_for_the_tasks_of_another() -> None:
    scene = Scene()
    other = scene.secured_agent("a2")
    framework_id, task_id = scene.annas, TaskId("t1")
    task = scene.state.frameworks[framework_id].tasks[task_id]
    scene.report(other, framework_id, task_id, TaskState.FINISHED, 1)
    assert task.state is TaskState.STAGING
    assert UpdateHandled("unknown") in scene.facts
    refusal = RefusedLaunch(framework_id, task_id, "no")
    scene.do(AgentHealth(other, (), (refusal,)))
    assert task.state is TaskState.STAGING
    scene.end_session(other)
    status = TaskStatus(framework_id, task_id, AgentId("a2"), TaskState.FINISHED, sequence=1)
    listed = AgentTask(framework_id, make_task("t1"), status, (status,), Role("ads"))
    scene.as_principal("agent/a2").agent("cpus:4", agent_id="a2", tasks=(listed,))
    assert task.state is TaskState.STAGING
    assert task.agent_id == "a1"


def test_an_agent_that_speaks_for_another_is_disconnected() -> None:
    scene = Scene()
    other = scene.secured_agent("a2")
    scene.report(other, scene.annas, "t1", TaskState.FINISHED, 1, agent_id="a1")
    assert scene.error_of(other) is not None
    assert scene.state.frameworks[scene.annas].tasks[TaskId("t1")].state is TaskState.STAGING


def test_who_learns_of_the_loss_of_an_agent() -> None:
    scene = Scene()
    scene.secured_agent("a2")
    bob = scene.owned("bob", "web")
    for agent_id in ("a1", "a2"):
        scene.ask(OperateAgent(1, agent_id, MarkGone(), caller=ADMIN))
    scene.allow("agents client/bob view agent:*")
    scene.secured_agent("a3")
    scene.ask(OperateAgent(1, "a3", MarkGone(), caller=ADMIN))
    lost = [
        [message.agent_id for message in scene.sent[each] if isinstance(message, AgentFailed)]
        for each in (scene.session, bob)
    ]
    assert lost == [["a1"], ["a3"]], "its tasks were there; it may view it"
