"""The owner of a framework is durable, claimed once, and bounded in frameworks and tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.events import AgentTask
from croupier.master.core.framework_commands import TeardownFramework
from croupier.master.core.records import FrameworkRecord
from croupier.master.core.settings import Settings
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.errors import Conflict, NotFound, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import ANONYMOUS
from croupier.model.task import TaskState, TaskStatus
from tests.harness.secured_world import ADMIN, SecuredWorld
from tests.harness.tenants import TENANTS, Scene, as_user
from tests.harness.world import CLUSTER, make_task


def test_the_owner_is_recorded_and_survives_a_failover() -> None:
    scene = Scene()
    (record,) = [each for each in scene.saved if isinstance(each, FrameworkRecord)]
    assert record.owner == "client/anna"
    scene.restart()
    taken = scene.owned("bob", "web", framework_id=scene.annas)
    assert isinstance(scene.error_of(taken), NotFound)
    assert scene.error_of(scene.owned("anna", "ads", framework_id=scene.annas)) is None


def test_a_removed_framework_keeps_its_owner_while_its_tasks_end() -> None:
    scene = Scene()
    scene.ask(TeardownFramework(1, scene.annas, caller=ADMIN))
    scene.restart()
    assert scene.state.frameworks[scene.annas].owner == "client/anna"
    assert isinstance(scene.kill("bob"), NotFound)
    assert isinstance(scene.kill("anna"), TaskSnapshot)


def unowned(role: str = "ads") -> tuple[SecuredWorld, FrameworkId]:
    """Return a world with a framework of before authentication."""
    world = SecuredWorld(is_on=False)
    framework_id = world.framework_id(world.framework(role))
    world.allow(*TENANTS)
    world.state.settings = replace(world.state.settings, auth=True)
    world.restart()
    return world, framework_id


def test_a_framework_without_owner_is_claimed_once() -> None:
    world, framework_id = unowned()
    assert isinstance(
        world.error_of(world.owned("bob", "web", framework_id=framework_id)), NotFound
    )
    claimed = world.owned("anna", "ads", framework_id=framework_id)
    assert world.error_of(claimed) is None
    saved = [each for each in world.saved if isinstance(each, FrameworkRecord)]
    assert saved[-1].owner == "client/anna"
    world.restart()
    world.allow("more client/bob register role:ads")
    taken = world.owned("bob", "ads", framework_id=framework_id)
    assert isinstance(world.error_of(taken), NotFound)


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


@pytest.mark.parametrize("framework_id", ["F9", f"{CLUSTER}-1-F77", f"{CLUSTER}-2-F1"])
def test_nobody_owns_an_id_before_it_is_assigned(framework_id: str) -> None:
    """Else agents that return after a loss of records would give it the tasks of another."""
    scene = Scene()
    taken, others = (
        scene.owned("bob", "web", framework_id=each) for each in (framework_id, scene.annas)
    )
    assert str(scene.error_of(taken)) == f"no framework {framework_id}"
    assert isinstance(scene.error_of(taken), type(scene.error_of(others)))
    assert FrameworkId(framework_id) not in scene.state.frameworks


def test_without_authentication_an_owner_is_ignored_and_kept() -> None:
    scene = Scene()
    scene.state.settings = replace(scene.state.settings, auth=False)
    scene.restart()
    session = scene.owned("", "ads", framework_id=scene.annas)
    assert scene.error_of(session) is None
    assert scene.state.frameworks[scene.annas].owner == "client/anna"


def test_frameworks_of_one_owner_are_bounded() -> None:
    scene = Scene(Settings(owner_frameworks=2))
    assert scene.error_of(scene.owned("anna", "ads")) is None
    assert isinstance(scene.error_of(scene.owned("anna", "ads")), Unavailable)
    assert scene.error_of(scene.owned("bob", "web")) is None
    # A known one may always return.
    again = scene.owned("anna", "ads", framework_id=scene.annas)
    assert scene.error_of(again) is None


def test_tasks_of_one_owner_are_bounded() -> None:
    scene = Scene(Settings(owner_tasks=2))
    verdict = scene.accept(scene.session, make_task("t2"), make_task("t3"))
    assert [type(each.error) for each in verdict.tasks] == [type(None), Conflict]
    scene.finish(scene.host, scene.annas, "t2")
    scene.acknowledge(scene.session, scene.state.frameworks[scene.annas].tasks[TaskId("t2")])
    assert scene.accept(scene.session, make_task("t4")).tasks[0].error is None


def test_with_authentication_off_nothing_of_it_is_recorded() -> None:
    world = SecuredWorld(is_on=False)
    world.principal = ANONYMOUS
    world.agent("cpus:4;mem:4GB", agent_id="a1")
    session = world.framework("ads")
    world.accept(session, as_user("t1", "root"))
    assert not any(getattr(each, "owner", "") for each in world.saved)
    assert not any(getattr(each, "is_authenticated", False) for each in world.saved)
