"""What callers see of lists, of the cluster and in explanations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from croupier.master.allocator import Cause, PassedOver
from croupier.master.services import explanations, lists, views
from croupier.master.services.paging import Listed
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.model.errors import NotFound
from croupier.model.ids import AgentId, FrameworkId, Role, short_id
from croupier.model.principal import ANONYMOUS, Principal
from croupier.process.clock import SystemClock
from croupier.v1 import operator_pb2 as pb
from tests.harness.explained import explained
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.world import World, make_task

WALL = WallTime(SystemClock())
NO_AGENT = AgentId("")


class Scene(SecuredWorld):
    """Anna has a framework in ads/prod, with a task, and one in ads/prod and web; bob one in web.

    Vera views everything, ada the role ads, and eve nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.allow(
            "anna client/anna register role:**",
            "bob client/bob register role:web",
            "users client/anna run-as user:(agent)",
            "vera client/vera view *",
            "ada client/ada view role:ads",
            "hugo client/hugo view agent:a1",
        )
        self.secured_agent("a1")
        session = self.owned("anna", "ads/prod")
        self.annas = self.framework_id(session)
        assert self.accept(session, make_task("t1")).error is None
        self.both = self.framework_id(self.owned("anna", roles=("ads/prod", "web")))
        self.bobs = self.framework_id(self.owned("bob", "web"))
        self.pass_time(6.0)

    def keys(self, listed: Listed[Any]) -> set[str]:
        """Return the keys of a list; each of its items can be viewed."""
        found = [key for key in listed.keys(self.state) if key]
        assert all(listed.view(self.state, key) is not None for key in found)
        return set(found)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_frameworks_are_listed_for_owners_and_viewers_of_a_role(scene: Scene) -> None:
    def seen(name: str) -> set[str]:
        return scene.keys(lists.all_frameworks(pb.ListFrameworksRequest(), WALL, caller(name)))

    everything = {scene.annas, scene.both, scene.bobs}
    assert seen("vera") == everything
    assert seen("anna") == {scene.annas, scene.both}
    assert seen("ada") == {scene.annas, scene.both}
    assert seen("bob") == {scene.bobs}
    assert seen("eve") == set()
    assert scene.keys(lists.all_frameworks(pb.ListFrameworksRequest(), WALL, ANONYMOUS)) == set()


def test_tasks_are_listed_for_owners_and_viewers_of_their_role(scene: Scene) -> None:
    def seen(name: str, framework_id: str = "") -> set[str]:
        request = pb.ListTasksRequest(framework_id=framework_id, with_commands=True)
        return scene.keys(lists.all_tasks(request, WALL, caller(name)))

    task = {f"a{scene.annas}/t1"}
    assert [seen(name) for name in ("vera", "anna", "ada")] == [task] * 3
    assert [seen(name, scene.annas) for name in ("bob", "eve", "hugo")] == [set()] * 3


def test_roles_are_listed_for_viewers_without_their_parents(scene: Scene) -> None:
    def seen(name: str) -> set[str]:
        found = scene.keys(lists.all_roles(pb.ListRolesRequest(), Counter(), caller(name)))
        return {key.replace("\0", "/") for key in found}

    assert seen("vera") == {"ads", "ads/prod", "web"}
    assert seen("ada") == {"ads", "ads/prod"}
    assert seen("anna") == set()


def test_agents_are_listed_for_viewers_of_agents(scene: Scene) -> None:
    def seen(name: str) -> set[str]:
        return scene.keys(lists.all_agents(pb.ListAgentsRequest(), WALL, caller(name)))

    assert [seen(name) for name in ("vera", "hugo", "ada", "anna")] == [
        {"a1"},
        {"a1"},
        set(),
        set(),
    ]


def test_an_item_that_may_no_longer_be_viewed_is_left_out_of_its_page() -> None:
    scene = Scene()
    listed = lists.all_frameworks(pb.ListFrameworksRequest(), WALL, caller("ada"))
    key = next(filter(None, listed.keys(scene.state)))
    scene.state.set_access(type(scene.state.access)(is_on=True))
    assert listed.view(scene.state, key) is None


def test_totals_of_the_cluster_are_for_its_viewers(scene: Scene) -> None:
    assert views.view_master(scene.state, 0.0, caller("vera")).HasField("total")
    for name in ("anna", "ada", "eve"):
        view = views.view_master(scene.state, 0.0, caller(name))
        assert (view.master_id, view.HasField("total")) == (scene.state.master_id, False)


def test_a_framework_shows_only_its_visible_roles(scene: Scene) -> None:
    framework = scene.state.frameworks[scene.both]

    def roles(name: str) -> list[str]:
        visible = Visibility(scene.state, caller(name))
        return list(views.view_framework(scene.state, framework, 0.0, visible).framework.roles)

    assert roles("vera") == roles("anna") == ["ads/prod", "web"]
    assert roles("ada") == ["ads/prod"]


def test_only_visible_frameworks_and_agents_are_explained(scene: Scene) -> None:
    for name, framework_id, agent_id in (
        ("bob", scene.annas, ""),
        ("eve", scene.annas, ""),
        ("anna", scene.annas, "a1"),
        ("vera", "missing", ""),
    ):
        with pytest.raises(NotFound, match=r"^no (framework|agent) "):
            explained(scene.state, FrameworkId(framework_id), AgentId(agent_id), 0.0, caller(name))


def test_an_explanation_for_an_owner_names_no_other(scene: Scene) -> None:
    for framework_id, name in ((scene.annas, "anna"), (scene.bobs, "bob")):
        answer = explained(scene.state, framework_id, NO_AGENT, scene.now, caller(name))
        others = {scene.annas, scene.both, scene.bobs, "a1"} - {framework_id}
        assert answer.reasons
        assert not [other for other in others if other in str(answer.reasons)]
        assert not answer.roles


@pytest.mark.parametrize(
    ("passed", "who", "text", "about"),
    [
        (Cause.OUTRANKED, "vera", "agent a1: went to F9 in role web", "web"),
        (Cause.OUTRANKED, "ada", "it went to another principal, which comes first", ""),
        (Cause.LIMIT, "eve", "a role is at its limit", ""),
        (Cause.UNHEALTHY, "ada", "agents are unhealthy", ""),
        (Cause.DOES_NOT_FIT, "ada", "an agent: needs cpus:9", ""),
        (Cause.DOES_NOT_FIT, "hugo", "agent a1: needs cpus:9", "a1"),
        (Cause.ELIGIBLE, "ada", "it can use the agent", ""),
    ],
)
def test_details_are_replaced_by_general_ones(
    scene: Scene, passed: Cause, who: str, text: str, about: str
) -> None:
    details = {
        Cause.OUTRANKED: ("agent a1: went to F9 in role web", "web"),
        Cause.LIMIT: ("agent a1: role web holds cpus:1 of its limit of 1", "web"),
        Cause.UNHEALTHY: ("agent a1: disk is full", "a1"),
        Cause.DOES_NOT_FIT: ("agent a1: needs cpus:9", "a1"),
        Cause.ELIGIBLE: ("it can use the agent; F9 in role web was dealt to last", "a1"),
    }
    detail, about_what = details[passed]
    rival = scene.bobs if passed is Cause.OUTRANKED else ""
    reason = PassedOver(passed, 1, detail, Role("ads/prod"), about_what, rival)
    visible = Visibility(scene.state, caller(who))
    found = reason if visible.has_all else explanations._redacted(reason, visible, caller(who))
    assert (found.detail, found.about) == (text, about)


@pytest.mark.parametrize(
    ("rival", "about", "text"),
    [
        ("both", "ads/prod", "went to F9; share of principal client/anna 0.5"),
        ("both", "web", "it went to another framework, which comes first"),
        ("bobs", "ads/prod", "it went to another principal, which comes first"),
    ],
)
def test_an_owner_sees_which_of_its_frameworks_came_first_in_a_role(
    scene: Scene, rival: str, about: str, text: str
) -> None:
    detail = "agent a1: went to F9; share of principal client/anna 0.5"
    role, first = Role("ads/prod"), getattr(scene, rival)
    reason = PassedOver(Cause.OUTRANKED, 1, detail, role, about, first)
    anna = caller("anna")
    found = explanations._redacted(reason, Visibility(scene.state, anna), anna)
    assert found.detail == text


def test_without_authentication_every_caller_sees_everything() -> None:
    scene = Scene()
    scene.state.set_access(type(scene.state.access)(is_on=False))
    nobody: Principal = ANONYMOUS
    assert len(scene.keys(lists.all_frameworks(pb.ListFrameworksRequest(), WALL, nobody))) == 3
    assert Visibility(scene.state, nobody).has_all


def test_reasons_name_agents_and_rivals_before_their_ids() -> None:
    world = World()
    agent_id = world.agent_id(world.agent("cpus:1;mem:1GB", "host7"))
    rival = world.framework_id(world.framework(name="train"))
    detail = f"agent {agent_id}: {rival} was dealt to last; agent a9: unknown"
    reason = PassedOver(Cause.OUTRANKED, 1, detail, Role("*"), "*", rival)
    text = explanations._named(world.state, reason).detail
    agent, first = f"host7 ({short_id(agent_id)})", f"train ({short_id(rival)})"
    assert text == f"agent {agent}: {first} was dealt to last; agent a9: unknown"
