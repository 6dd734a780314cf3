"""What callers may do with agents, frameworks and roles, and what they see of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.agent_commands import Deactivate, MarkGone, OperateAgent
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.effects import Close, Deposed, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentTask,
    Claim,
    RefusedLaunch,
    Register,
    Subscribe,
)
from croupier.master.core.facts import AgentRefused, UpdateHandled
from croupier.master.core.framework_commands import TeardownFramework, TornDown
from croupier.master.core.messages import AgentFailed
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.step import step
from croupier.model.errors import FailedOver, NotFound, PermissionDenied, Unauthenticated
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
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


# Frameworks subscribe in permitted roles only; other principals need permission to end them.


@pytest.mark.parametrize("by", ["bob", "admin", "oidc/anna", "agent/a1"])
def test_no_other_takes_over_a_framework(by: str) -> None:
    scene = Scene()
    for client_id in ("c1", "c2"):
        taken = scene.owned(by, "ads", framework_id=scene.annas, client_id=client_id)
        error = scene.error_of(taken)
        assert isinstance(error, NotFound)
        assert str(error) == f"no framework {scene.annas}"
    assert scene.error_of(scene.session) is None


def test_an_impostor_with_an_old_client_id_learns_nothing() -> None:
    scene = Scene()
    scene.owned("anna", "ads", framework_id=scene.annas, client_id="c2")
    again = scene.owned("anna", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), FailedOver)
    again = scene.owned("bob", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), NotFound)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("bob", NotFound),
        ("vera", PermissionDenied),
        ("karl", TornDown),
        ("anna", TornDown),
        ("admin", TornDown),
    ],
)
def test_who_tears_down_a_framework(by: str, expected: type) -> None:
    scene = Scene()
    answer = scene.ask(TeardownFramework(1, scene.annas, caller=caller(by)))
    assert isinstance(answer, expected)
    assert scene.state.frameworks[scene.annas].is_removed == (expected is TornDown)


def test_permission_is_needed_in_all_roles_of_a_framework() -> None:
    scene = Scene()
    scene.allow("more client/anna register role:web")
    session = scene.owned("anna", roles=("ads", "web"))
    command = TeardownFramework(1, scene.framework_id(session), caller=caller("karl"))
    assert isinstance(scene.ask(command), PermissionDenied)


def test_who_learns_that_a_framework_was_removed() -> None:
    scene = Scene()
    scene.finish(scene.host, scene.annas, "t1")
    command = TeardownFramework(1, scene.annas, caller=ADMIN)
    scene.ask(command)
    assert scene.annas not in scene.state.frameworks
    for by, expected in (("anna", TornDown), ("karl", TornDown), ("vera", NotFound)):
        assert isinstance(scene.ask(replace(command, caller=caller(by))), expected)


@pytest.mark.parametrize(
    ("by", "role", "error"),
    [
        ("anna", "ads", None),
        ("anna", "ads/x/y", None),
        ("anna", "*", PermissionDenied),
        ("anna", "web", PermissionDenied),
        ("vera", "ads", PermissionDenied),
        ("agent/a1", "ads", PermissionDenied),
    ],
)
def test_who_subscribes_in_a_role(by: str, role: str, error: type | None) -> None:
    scene = Scene()
    found = scene.error_of(scene.owned(by, role))
    assert found is None if error is None else isinstance(found, error)
    assert len(scene.state.frameworks) == (2 if error is None else 1)


def test_all_roles_of_a_framework_need_permission() -> None:
    scene = Scene()
    assert isinstance(scene.error_of(scene.owned("anna", roles=("ads", "web"))), PermissionDenied)


def test_no_anonymous_framework_subscribes() -> None:
    scene = Scene()
    event = Subscribe(SessionId(900), FrameworkId(""), "f", (Role("ads"),), "c")
    scene.as_principal("").do(event)
    assert isinstance(scene.error_of(SessionId(900)), Unauthenticated)


# Callers change permitted roles only, and see no others.


def weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (RolePart.WEIGHT,))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("anna", NotFound),
        ("wim", NotFound),
        ("vera", PermissionDenied),
        ("admin", RolesMoved),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_who_changes_a_role(by: str, expected: type, dry_run: bool) -> None:
    scene = Scene()
    changes = (weight("web"), weight("ads"))
    answer = scene.ask(UpdateRoles(1, changes, dry_run, caller=caller(by)))
    assert isinstance(answer, expected)
    is_set = Role("ads") in scene.state.allocator.queries.roles()
    assert is_set == (expected is RolesMoved and not dry_run)


def test_a_change_shows_only_roles_that_the_caller_may_view() -> None:
    scene = Scene()
    scene.owned("bob", "web")
    moved = [
        [after.role for _, after in answer.others]
        for by in ("wim", "admin")
        if isinstance(
            answer := scene.ask(UpdateRoles(1, (weight("web"),), True, caller=caller(by))),
            RolesMoved,
        )
    ]
    assert moved[0] == []
    assert "ads" in moved[1]
