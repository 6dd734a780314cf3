"""False peers, and rules of images and roles; `scenarios/tenants.txt` tells who may do what."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from croupier.master.core.step import step
from croupier.model.errors import FailedOver, NotFound, PermissionDenied, Unauthenticated
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Feature, Isolation
from croupier.model.principal import ANONYMOUS
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from tests.harness.secured_world import SecuredWorld
from tests.harness.tenants import TENANTS, Scene, as_user
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


def test_an_impostor_with_an_old_client_id_learns_nothing() -> None:
    scene = Scene()
    scene.owned("anna", "ads", framework_id=scene.annas, client_id="c2")
    again = scene.owned("anna", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), FailedOver)
    again = scene.owned("bob", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), NotFound)


def test_no_anonymous_framework_subscribes() -> None:
    scene = Scene()
    event = Subscribe(SessionId(900), FrameworkId(""), "f", (Role("ads"),), "c")
    scene.as_principal("").do(event)
    assert isinstance(scene.error_of(SessionId(900)), Unauthenticated)


def test_a_task_runs_in_a_permitted_image_only() -> None:
    scene = Scene()
    scene.allow("boxes client/anna launch-image image:dir:/srv/*")
    (agent,) = scene.state.agents.values()
    agent.features = frozenset({Feature.IMAGES})
    allowed, denied = (
        replace(as_user(name, "nobody"), isolation=Isolation(image=image))
        for name, image in (("t2", "dir:/srv/a"), ("t3", "dir:/other"))
    )
    verdict = scene.accept(scene.session, allowed, denied)
    assert verdict.tasks[0].error is None
    assert str(verdict.tasks[1].error) == "client/anna may not launch-image image:dir:/other"


def test_a_claim_needs_permission_in_the_roles_of_all_tasks() -> None:
    world = SecuredWorld(*TENANTS, "both client/carl register role:**")
    listed = []
    for task_id, role in (("t1", "ads"), ("t2", "web")):
        place = (FrameworkId("F9"), TaskId(task_id), AgentId("a1"))
        status = TaskStatus(*place, TaskState.RUNNING, sequence=1)
        listed.append(
            AgentTask(FrameworkId("F9"), make_task(task_id), status, (status,), Role(role))
        )
    world.as_principal("agent/a1").agent("cpus:4;mem:4GB", agent_id="a1", tasks=tuple(listed))
    taken = world.owned("anna", "ads", framework_id="F9")
    assert isinstance(world.error_of(taken), NotFound)
    assert world.error_of(world.owned("carl", "ads", framework_id="F9")) is None


def test_with_authentication_off_nothing_of_it_is_recorded() -> None:
    world = SecuredWorld(is_on=False)
    world.principal = ANONYMOUS
    world.agent("cpus:4;mem:4GB", agent_id="a1")
    session = world.framework("ads")
    world.accept(session, as_user("t1", "root"))
    assert not any(getattr(each, "owner", "") for each in world.saved)
    assert not any(getattr(each, "is_authenticated", False) for each in world.saved)
