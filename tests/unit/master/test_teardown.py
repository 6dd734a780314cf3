"""Operators tear frameworks down."""

from __future__ import annotations

import pytest

from croupier.master.core.effects import Answer, Close, Save
from croupier.master.core.events import SessionEnded
from croupier.master.core.facts import FrameworkTornDown
from croupier.master.core.framework_commands import TeardownFramework, TornDown
from croupier.master.core.records import FrameworkRecord
from croupier.master.services.views import view_framework
from croupier.model.agent_orders import KillTask
from croupier.model.errors import CroupierError, NotFound, Removed
from croupier.model.ids import FrameworkId
from croupier.model.task import Reason, TaskState
from tests.harness.world import World, make_task


class Scene(World):
    """One agent, on which one framework runs `t1`."""

    def __init__(self) -> None:
        super().__init__()
        self.host = self.agent("cpus:4;mem:4GB")
        self.session = self.framework()
        self.owner = self.framework_id(self.session)
        assert self.accept(self.session, make_task("t1")).error is None

    def tear_down(self, framework_id: str) -> object:
        effects = self.do(TeardownFramework(7, FrameworkId(framework_id), "me"))
        (answer,) = [each for each in effects if isinstance(each, Answer)]
        assert answer.request == 7
        return answer.result


def test_disconnected_framework_is_torn_down_at_once() -> None:
    scene = Scene()
    scene.do(SessionEnded(scene.session, "it crashed"))
    effects = scene.do(TeardownFramework(7, scene.owner, "me"))
    (answer,) = [each for each in effects if isinstance(each, Answer)]
    assert answer.result == TornDown(scene.owner, "f", 1)
    saved = [effect.record for effect in effects if isinstance(effect, Save)]
    (framework,) = [record for record in saved if isinstance(record, FrameworkRecord)]
    assert framework.removed
    assert effects.index(answer) > max(map(effects.index, filter(is_save, effects)))
    kills = [each for each in scene.sent[scene.host] if isinstance(each, KillTask)]
    assert [(each.task_id, each.reason) for each in kills] == [("t1", Reason.FRAMEWORK_REMOVED)]
    assert FrameworkTornDown(scene.owner, "f", 1, "me") in scene.facts
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    assert scene.owner not in scene.state.frameworks
    assert scene.state.allocator.queries.free(scene.agent_id(scene.host))["cpus"] == 4000


def is_save(effect: object) -> bool:
    return isinstance(effect, Save)


def test_connected_framework_gets_an_error() -> None:
    scene = Scene()
    effects = scene.do(TeardownFramework(7, scene.owner, "me"))
    (close,) = [each for each in effects if isinstance(each, Close)]
    assert close.session == scene.session
    assert isinstance(close.error, Removed)
    assert "an operator has torn it down" in str(close.error)


def test_second_teardown_changes_nothing() -> None:
    scene = Scene()
    scene.tear_down(scene.owner)
    before = len(scene.saved), len(scene.facts)
    assert scene.tear_down(scene.owner) == TornDown(scene.owner, "f", 1), "its task still ends"
    scene.report(scene.host, scene.owner, "t1", TaskState.KILLED, 1)
    before = len(scene.saved), len(scene.facts)
    assert scene.tear_down(scene.owner) == TornDown(scene.owner, "", 0)
    assert (len(scene.saved), len(scene.facts)) == before


@pytest.mark.parametrize("framework_id", ["", "F99"])
def test_an_unknown_framework_is_refused(framework_id: str) -> None:
    scene = Scene()
    before = len(scene.saved), len(scene.facts)
    error = scene.tear_down(framework_id)
    assert isinstance(error, NotFound)
    assert isinstance(error, CroupierError)
    assert (len(scene.saved), len(scene.facts)) == before


def test_disconnected_framework_shows_its_removal_time() -> None:
    scene = Scene()
    (framework,) = scene.state.frameworks.values()
    view = view_framework(scene.state, framework, scene.now)
    assert not view.HasField("removed_in_ms")
    scene.do(SessionEnded(scene.session, "it crashed"))
    scene.pass_time(10.0)
    (framework,) = scene.state.frameworks.values()
    view = view_framework(scene.state, framework, scene.now)
    assert view.removed_in_ms == 590_000
