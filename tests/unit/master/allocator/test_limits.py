"""Limits: no role holds more, and frameworks that wait for headroom are dealt to in time."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause
from croupier.master.allocator.pending_demand import Shape
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.placement import ANYWHERE
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


def test_a_limit_binds_the_subtree_of_its_role() -> None:
    fixture = AllocatorFixture(roles={"a": role_of(limit="cpus:5")})
    fixture.framework("f", want("cpus:1"), roles=["a/b/c"])
    fixture.framework("g", want("cpus:1"), roles=["a/d"])
    fixture.framework("h", want("cpus:1"), roles=["a"])
    fixture.agent("m", "cpus:9")
    fixture.fill()
    assert fixture.free("m") == "cpus:4"


def test_the_nearest_and_the_farthest_limit_both_bind() -> None:
    fixture = AllocatorFixture(
        roles={"a": role_of(limit="cpus:5"), "a/b": role_of(limit="cpus:2;mem:1GB")}
    )
    fixture.framework("f", want("cpus:1"), roles=["a/b"])
    fixture.framework("g", want("cpus:1"), roles=["a/c"])
    fixture.agent("m", "cpus:9")
    fixture.fill()
    shares = [fixture.allocator.queries.share(FrameworkId(name)) * 9 for name in "fg"]
    assert shares == [2, 3]


def test_whole_remainders_are_trimmed() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:3")})
    fixture.framework("f", roles=["r"])
    fixture.agent("m", "cpus:8;mem:8GB")
    assert fixture.dealt() == ["f m cpus:3;mem:8GB"]


def test_a_limit_that_is_used_up_stops_whole_remainders() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:8")})
    fixture.framework("f", roles=["r"])
    fixture.agent("m", "cpus:8;mem:8GB")
    fixture.deal()
    fixture.agent("n", "cpus:8;mem:8GB")
    assert fixture.dealt() == []
    assert fixture.causes("f") == [Cause.LIMIT]


def test_a_limit_of_zero_blocks_only_that_resource() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="gpus:0")})
    fixture.framework("f", roles=["r"])
    fixture.agent("m", "cpus:8;gpus:2")
    assert fixture.dealt() == ["f m cpus:8"]


def test_a_limit_of_zero_blocks_units_with_that_resource() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="gpus:0")})
    fixture.framework("f", want("cpus:1;gpus:1"), want("cpus:2", 1), roles=["r"])
    fixture.agent("m", "cpus:8;gpus:2")
    assert fixture.dealt() == ["f m cpus:2"]


def test_a_task_that_ends_makes_headroom() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2")})
    fixture.framework("f", want("cpus:1"), roles=["r"])
    fixture.framework("g", want("cpus:1"), roles=["r/x"])
    fixture.agent("m", "cpus:9")
    grants = fixture.fill()
    fixture.finish(next(each for each in grants if each.framework_id == "f"), "cpus:1")
    assert fixture.takers() == ["f"]


def test_headroom_is_also_for_another_framework_of_the_role() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2")})
    fixture.framework("f", want("cpus:1", 2), roles=["r"])
    fixture.agent("m", "cpus:9")
    (grant,) = fixture.fill()
    fixture.framework("g", want("cpus:1"), roles=["r/x"])
    assert fixture.deal() == []
    fixture.finish(grant, "cpus:1")
    assert fixture.takers() == ["g"]


@pytest.mark.parametrize("settings", [role_of(), role_of(limit="cpus:4"), role_of(limit="mem:1GB")])
def test_raising_a_limit_makes_headroom(settings: object) -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2")})
    fixture.framework("f", want("cpus:1"), roles=["r/x"])
    fixture.agent("m", "cpus:9")
    fixture.fill()
    fixture.set_role("r", settings)  # type: ignore[arg-type]
    assert fixture.takers() == ["f"]


def test_lowering_a_limit_takes_nothing_back() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:4")})
    fixture.framework("f", want("cpus:1"), roles=["r"])
    fixture.agent("m", "cpus:9")
    (grant,) = fixture.fill()
    fixture.set_role("r", role_of(limit="cpus:2"))
    for _ in range(2):
        fixture.finish(grant, "cpus:1")
        assert fixture.deal() == []
    fixture.finish(grant, "cpus:1")
    assert fixture.takers() == ["f"]


def test_headroom_under_a_second_limit_is_used() -> None:
    """It waits for its own role first, and then for the role above."""
    fixture = AllocatorFixture(
        roles={"a": role_of(limit="cpus:10"), "a/b": role_of(limit="cpus:4")}
    )
    fixture.framework("l", want("cpus:1"), roles=["a/b"])
    fixture.framework("m", want("cpus:1", 6), roles=["a/c"])
    fixture.agent("x", "cpus:20")
    taken = {grant.framework_id: grant for grant in fixture.fill()}
    fixture.set_role("a", role_of(limit="cpus:5"))
    for _ in range(4):
        fixture.finish(taken[FrameworkId("l")], "cpus:1")
    assert fixture.deal() == []
    for _ in range(2):
        fixture.finish(taken[FrameworkId("m")], "cpus:1")
    assert fixture.takers() == ["l"]


def test_headroom_for_one_of_two_shapes_is_used() -> None:
    """The other shape keeps the framework in order: it is not parked, and its agent is clean."""
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2")})
    fixture.framework("f", want("cpus:1"), want("mem:8GB"), roles=["r"])
    fixture.agent("x", "cpus:2;mem:1GB")
    (grant,) = fixture.fill()
    fixture.agent("y", "cpus:2;mem:1GB")
    assert fixture.deal() == []
    fixture.allocator.activate_agent(AgentId("x"), False)
    fixture.finish(grant, "cpus:1")
    assert fixture.dealt() == ["f y cpus:1"]


def test_headroom_is_used_when_limits_left_less_than_an_offer() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2;mem:16MB")})
    fixture.framework("f", roles=["r"])
    fixture.agent("x", "cpus:1.995;mem:8MB")
    (grant,) = fixture.deal()
    fixture.accept(grant)
    fixture.agent("y", "cpus:2;mem:1GB")
    assert fixture.deal() == []
    fixture.allocator.activate_agent(AgentId("x"), False)
    fixture.finish(grant, "cpus:1")
    assert fixture.dealt() == ["f y cpus:1.005;mem:8MB"]


def test_a_shape_demanded_again_is_dealt_while_the_other_is_blocked() -> None:
    """The framework was parked, as all its demand within the limit was offered; it declines."""
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:1")})
    fixture.framework("f", want("mem:1GB", 1), want("cpus:1"), roles=["r"])
    fixture.agent("m", "cpus:1;mem:1GB")
    (both,) = fixture.deal()
    fixture.accept(both, "cpus:1")
    (mem,) = fixture.deal()
    fixture.agent("n", "cpus:4")
    assert fixture.deal() == []
    fixture.decline(mem)
    assert fixture.dealt() == ["f m mem:1GB"]


class TestOffersBeyondDemand:
    """Offers count toward limits up to the demand."""

    def make(self) -> AllocatorFixture:
        """Offer `x` 4 cpus of a limit of 4, while `y` demands some."""
        fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:4")})
        fixture.framework("x", want("cpus:1", 4), roles=["r"])
        fixture.agent("m", "cpus:8")
        self.offer = fixture.deal()[0]
        fixture.framework("y", want("cpus:1", 4), roles=["r/sub"])
        assert fixture.deal() == []
        return fixture

    def test_offers_count(self) -> None:
        fixture = self.make()
        assert fixture.causes("y") == [Cause.LIMIT]

    def test_dropped_demand_makes_headroom_for_others(self) -> None:
        fixture = self.make()
        fixture.demand("x", want("cpus:1", 1))
        assert fixture.dealt() == ["y m cpus:3"]

    def test_an_offer_without_demand_counts_toward_no_limit(self) -> None:
        fixture = self.make()
        fixture.demand("x", want("cpus:1", 0))
        assert fixture.dealt() == ["y m cpus:4"]

    def test_all_offers_count_under_demand_without_a_count(self) -> None:
        fixture = self.make()
        fixture.demand("x", want("cpus:1"))
        assert fixture.deal() == []

    def test_a_launch_beyond_the_demand_goes_over_the_limit(self) -> None:
        fixture = self.make()
        fixture.demand("x", want("cpus:1", 1))
        fixture.accept(fixture.deal()[0])
        place = (FrameworkId("x"), Role("r"))
        assert fixture.allocator.queries.excess(*place, amount("cpus:1")) == ""
        reason = fixture.allocator.queries.excess(*place, amount("cpus:2"))
        assert reason == "role r uses cpus:3 of its limit of 4"

    def test_a_role_that_is_left_counts_no_offers(self) -> None:
        fixture = self.make()
        fixture.allocator.set_roles(FrameworkId("x"), [Role("elsewhere")])
        fixture.demand("x", want("cpus:1", 1))
        assert fixture.dealt() == ["y m cpus:4"]

    def test_a_limit_that_is_set_later_counts_the_same(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("x", want("cpus:1", 5), roles=["r"])
        fixture.agent("m", "cpus:8")
        fixture.deal()
        fixture.demand("x", want("cpus:1", 2))
        fixture.set_role("r", role_of(limit="cpus:3"))
        fixture.framework("y", want("cpus:1"), roles=["r"])
        assert fixture.dealt() == ["y m cpus:1"]

    def test_an_offer_of_another_shape_is_counted_by_what_it_takes(self) -> None:
        fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:10")})
        fixture.framework("x", want("cpus:1", 5), roles=["r"])
        fixture.agent("m", "cpus:5")
        fixture.deal()
        fixture.demand("x", want("cpus:2", 2))
        fixture.agent("n", "cpus:8")
        assert fixture.dealt() == ["x n cpus:4"]


def test_nothing_exceeds_a_missing_limit() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    assert fixture.allocator.queries.excess(FrameworkId("f"), Role("f"), amount("cpus:1000")) == ""


def test_tasks_of_returning_agents_are_charged_past_limits() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:1")})
    fixture.framework("f", want("cpus:1"), roles=["r"])
    fixture.agent("m", "cpus:4")
    place = (FrameworkId("f"), Role("r"), AgentId("m"))
    fixture.allocator.charges.charge(*place, amount("cpus:3"))
    assert fixture.deal() == []
    fixture.allocator.charges.release(*place, amount("cpus:3"))
    assert fixture.dealt() == ["f m cpus:1"]


def test_a_parked_framework_stays_parked_when_it_declares_demand_again() -> None:
    """Demand declared again with other units per offer; no agent was visited for it."""
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:2")})
    fixture.framework("f", want("cpus:1", 9), roles=["r"])
    fixture.agent("m", "cpus:2")
    fixture.agent("n", "cpus:2")
    (grant,) = fixture.fill()
    fixture.demand("f", want("cpus:1", 7, most=2))
    assert fixture.deal() == []
    fixture.allocator.activate_agent(grant.agent_id, False)
    fixture.finish(grant, "cpus:1")
    assert fixture.dealt() == ["f n cpus:1"]


def test_an_offer_from_before_a_submission_counts_once_it_is_used() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:4")})
    fixture.framework("f", roles=["r"])
    fixture.agent("m", "cpus:4")
    (grant,) = fixture.deal()
    fixture.allocator.queue(FrameworkId("f"), Role("r"), Shape(amount("cpus:1"), ANYWHERE), 1)
    fixture.accept(grant, "cpus:4")
    fixture.agent("n", "cpus:4")
    assert fixture.deal() == []
