"""Callers kill and launch tasks as rules allow, and see no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.tasks import TaskSnapshot
from croupier.model.errors import Conflict, CroupierError, NotFound, PermissionDenied
from croupier.model.ids import TaskId
from croupier.model.isolation import Feature, Isolation
from tests.harness.tenants import Scene, as_user
from tests.harness.world import make_task


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("bob", NotFound),
        ("agent/a1", NotFound),
        ("vera", PermissionDenied),
        ("karl", TaskSnapshot),
        ("anna", TaskSnapshot),
        ("admin", TaskSnapshot),
    ],
)
def test_who_kills_a_task(by: str, expected: type) -> None:
    scene = Scene()
    for framework_id in ("", scene.annas):
        answer = scene.kill(by, framework_id)
        assert isinstance(answer, expected)
        if expected is NotFound:
            assert str(answer) == "no task 't1'"
    is_killed = scene.state.frameworks[scene.annas].tasks[TaskId("t1")].kill is not None
    assert is_killed == (expected is TaskSnapshot)


@pytest.mark.parametrize(
    ("by", "expected"),
    [("", NotFound), ("bob", NotFound), ("vera", Conflict), ("anna", Conflict), ("karl", Conflict)],
)
def test_who_learns_how_a_task_ended(by: str, expected: type[CroupierError]) -> None:
    scene = Scene()
    scene.finish(scene.host, scene.annas, "t1")
    assert isinstance(scene.kill(by), expected)
    (task,) = scene.state.frameworks[scene.annas].tasks.values()
    scene.acknowledge(scene.session, task)
    assert not scene.state.frameworks[scene.annas].tasks
    assert isinstance(scene.kill(by), expected)


def test_a_task_of_another_with_the_same_id_is_not_ambiguous() -> None:
    scene = Scene()
    scene.allow("agents2 client/bob run-as user:(agent)")
    scene.decline(scene.session, 1000.0)
    other = scene.owned("bob", "web")
    assert scene.accept(other, make_task("t1")).error is None
    answer = scene.kill("anna")
    assert isinstance(answer, TaskSnapshot)
    assert answer.framework_id == scene.annas


def test_a_task_runs_as_a_permitted_user_only() -> None:
    scene = Scene()
    tasks = (as_user("t2", "nobody"), as_user("t3", "root"), as_user("t4", "nobody"))
    verdict = scene.accept(scene.session, *tasks)
    assert verdict.error is None
    errors = [each.error for each in verdict.tasks]
    assert [type(each) for each in errors] == [type(None), PermissionDenied, type(None)]
    assert str(errors[1]) == "client/anna may not run-as user:root"


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


def test_the_agents_own_account_needs_permission() -> None:
    scene = Scene()
    scene.decline(scene.session, 1000.0)
    session = scene.owned("bob", "web")
    verdict = scene.accept(session, make_task("t2"))
    assert isinstance(verdict.tasks[0].error, PermissionDenied)


def test_a_withdrawn_permission_ends_no_framework_but_its_launches() -> None:
    scene = Scene()
    scene.allow("anna client/anna view role:ads")
    assert scene.error_of(scene.session) is None
    verdict = scene.accept(scene.session, make_task("t2"))
    assert isinstance(verdict.error, PermissionDenied)
    assert TaskId("t1") in scene.state.frameworks[scene.annas].tasks
    again = scene.owned("anna", "ads", framework_id=scene.annas)
    assert isinstance(scene.error_of(again), PermissionDenied)
