"""What explanations hide from callers; `scenarios/lists.txt` tells what they see of lists."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, PassedOver
from croupier.master.services import explanations, lists
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.model.ids import FrameworkId, Role, short_id
from croupier.process.clock import SystemClock
from croupier.v1 import operator_pb2 as pb
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.world import World, make_task

WALL = WallTime(SystemClock())


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


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_an_item_that_may_no_longer_be_viewed_is_left_out_of_its_page() -> None:
    scene = Scene()
    listed = lists.all_frameworks(pb.ListFrameworksRequest(), WALL, caller("ada"))
    key = next(filter(None, listed.keys(scene.state)))
    scene.state.set_access(type(scene.state.access)(is_on=True))
    assert listed.view(scene.state, key) is None


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


def test_reasons_name_agents_and_rivals_before_their_ids() -> None:
    world = World()
    agent_id = world.agent_id(world.agent("cpus:1;mem:1GB", "host7"))
    rival = world.framework_id(world.framework(name="train"))
    own_id = world.framework_id(world.framework(name="web"))
    detail = f"agent {agent_id}: {rival} was dealt to last; agent a9: of {own_id} 1, of {own_id}9"
    reason = PassedOver(Cause.OUTRANKED, 1, detail, Role("*"), "*", rival)
    text = explanations.named_reason(world.state, reason, own_id).detail
    agent, first = f"host7 ({short_id(agent_id)})", f"train ({short_id(rival)})"
    own = f"web ({short_id(own_id)})"
    assert text == f"agent {agent}: {first} was dealt to last; agent a9: of {own} 1, of {own_id}9"


def test_a_rival_that_was_removed_has_its_short_id() -> None:
    reason = PassedOver(Cause.OUTRANKED, 1, "c1-2-F9 came first", Role("*"), "*", "c1-2-F9")
    text = explanations.named_reason(World().state, reason, FrameworkId("c1-2-F8")).detail
    assert text == f"{short_id('c1-2-F9')} came first"
