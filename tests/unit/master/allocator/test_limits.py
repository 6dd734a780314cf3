"""Limits: no role holds more, with all that is below it; who waits for room is not forgotten."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import Dealing, amount, role_of, want


def test_a_limit_binds_all_that_is_below_the_role() -> None:
    dealing = Dealing(roles={"a": role_of(limit="cpus:5")})
    dealing.framework("f", want("cpus:1"), roles=["a/b/c"])
    dealing.framework("g", want("cpus:1"), roles=["a/d"])
    dealing.framework("h", want("cpus:1"), roles=["a"])
    dealing.agent("m", "cpus:9")
    dealing.fill()
    assert dealing.free("m") == "cpus:4"


def test_the_nearest_and_the_farthest_limit_both_bind() -> None:
    dealing = Dealing(roles={"a": role_of(limit="cpus:5"), "a/b": role_of(limit="cpus:2;mem:1GB")})
    dealing.framework("f", want("cpus:1"), roles=["a/b"])
    dealing.framework("g", want("cpus:1"), roles=["a/c"])
    dealing.agent("m", "cpus:9")
    dealing.fill()
    shares = [dealing.allocator.queries.share(FrameworkId(name)) * 9 for name in "fg"]
    assert shares == [2, 3]


def test_whole_remainders_are_trimmed() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:3")})
    dealing.framework("f", roles=["r"])
    dealing.agent("m", "cpus:8;mem:8GB")
    assert dealing.dealt() == ["f m cpus:3;mem:8GB"]


def test_a_limit_that_is_used_up_stops_whole_remainders() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:8")})
    dealing.framework("f", roles=["r"])
    dealing.agent("m", "cpus:8;mem:8GB")
    dealing.deal()
    dealing.agent("n", "cpus:8;mem:8GB")
    assert dealing.dealt() == []
    assert dealing.causes("f") == [Cause.LIMIT]


def test_a_limit_of_nothing_bars_that_resource_alone() -> None:
    dealing = Dealing(roles={"r": role_of(limit="gpus:0")})
    dealing.framework("f", roles=["r"])
    dealing.agent("m", "cpus:8;gpus:2")
    assert dealing.dealt() == ["f m cpus:8"]


def test_a_limit_of_nothing_bars_units_that_have_any_of_it() -> None:
    dealing = Dealing(roles={"r": role_of(limit="gpus:0")})
    dealing.framework("f", want("cpus:1;gpus:1"), want("cpus:2", 1), roles=["r"])
    dealing.agent("m", "cpus:8;gpus:2")
    assert dealing.dealt() == ["f m cpus:2"]


def test_a_task_that_ends_makes_room() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:2")})
    dealing.framework("f", want("cpus:1"), roles=["r"])
    dealing.framework("g", want("cpus:1"), roles=["r/x"])
    dealing.agent("m", "cpus:9")
    grants = dealing.fill()
    dealing.finish(next(each for each in grants if each.framework_id == "f"), "cpus:1")
    assert dealing.takers() == ["f"]


def test_room_is_for_another_framework_of_the_role_too() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:2")})
    dealing.framework("f", want("cpus:1", 2), roles=["r"])
    dealing.agent("m", "cpus:9")
    (grant,) = dealing.fill()
    dealing.framework("g", want("cpus:1"), roles=["r/x"])
    assert dealing.deal() == []
    dealing.finish(grant, "cpus:1")
    assert dealing.takers() == ["g"]


@pytest.mark.parametrize("settings", [role_of(), role_of(limit="cpus:4"), role_of(limit="mem:1GB")])
def test_a_limit_that_is_raised_makes_room(settings: object) -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:2")})
    dealing.framework("f", want("cpus:1"), roles=["r/x"])
    dealing.agent("m", "cpus:9")
    dealing.fill()
    dealing.set_role("r", settings)  # type: ignore[arg-type]
    assert dealing.takers() == ["f"]


def test_a_limit_that_is_lowered_takes_nothing_back() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:4")})
    dealing.framework("f", want("cpus:1"), roles=["r"])
    dealing.agent("m", "cpus:9")
    (grant,) = dealing.fill()
    dealing.set_role("r", role_of(limit="cpus:2"))
    for _ in range(2):
        dealing.finish(grant, "cpus:1")
        assert dealing.deal() == []
    dealing.finish(grant, "cpus:1")
    assert dealing.takers() == ["f"]


def test_room_under_another_limit_than_the_one_that_was_short_is_seen() -> None:
    """It waits for its own role first, and then for the role above."""
    dealing = Dealing(roles={"a": role_of(limit="cpus:10"), "a/b": role_of(limit="cpus:4")})
    dealing.framework("l", want("cpus:1"), roles=["a/b"])
    dealing.framework("m", want("cpus:1", 6), roles=["a/c"])
    dealing.agent("x", "cpus:20")
    taken = {grant.framework_id: grant for grant in dealing.fill()}
    dealing.set_role("a", role_of(limit="cpus:5"))
    for _ in range(4):
        dealing.finish(taken[FrameworkId("l")], "cpus:1")
    assert dealing.deal() == []
    for _ in range(2):
        dealing.finish(taken[FrameworkId("m")], "cpus:1")
    assert dealing.takers() == ["l"]


def test_room_for_one_of_two_shapes_is_seen() -> None:
    """The other shape keeps the framework in line: it is not parked, and its agent is settled."""
    dealing = Dealing(roles={"r": role_of(limit="cpus:2")})
    dealing.framework("f", want("cpus:1"), want("mem:8GB"), roles=["r"])
    dealing.agent("x", "cpus:2;mem:1GB")
    (grant,) = dealing.fill()
    dealing.agent("y", "cpus:2;mem:1GB")
    assert dealing.deal() == []
    dealing.allocator.activate_agent(AgentId("x"), False)
    dealing.finish(grant, "cpus:1")
    assert dealing.dealt() == ["f y cpus:1"]


def test_room_is_seen_when_the_limits_left_too_little_for_an_offer() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:2;mem:16MB")})
    dealing.framework("f", roles=["r"])
    dealing.agent("x", "cpus:1.995;mem:8MB")
    (grant,) = dealing.deal()
    dealing.accept(grant)
    dealing.agent("y", "cpus:2;mem:1GB")
    assert dealing.deal() == []
    dealing.allocator.activate_agent(AgentId("x"), False)
    dealing.finish(grant, "cpus:1")
    assert dealing.dealt() == ["f y cpus:1.005;mem:8MB"]


def test_a_shape_that_is_wanted_again_is_not_forgotten_while_the_other_is_barred() -> None:
    """All that it wanted beyond the limit was on offer, so it was parked; it declines that."""
    dealing = Dealing(roles={"r": role_of(limit="cpus:1")})
    dealing.framework("f", want("mem:1GB", 1), want("cpus:1"), roles=["r"])
    dealing.agent("m", "cpus:1;mem:1GB")
    (both,) = dealing.deal()
    dealing.accept(both, "cpus:1")
    (mem,) = dealing.deal()
    dealing.agent("n", "cpus:4")
    assert dealing.deal() == []
    dealing.decline(mem)
    assert dealing.dealt() == ["f m mem:1GB"]


class TestOffersBeyondDemand:
    """What is on offer counts toward limits, but no more of it than is wanted."""

    def make(self) -> Dealing:
        """`x` is offered 4 cpus of a limit of 4; `y` would like some."""
        dealing = Dealing(roles={"r": role_of(limit="cpus:4")})
        dealing.framework("x", want("cpus:1", 4), roles=["r"])
        dealing.agent("m", "cpus:8")
        self.offer = dealing.deal()[0]
        dealing.framework("y", want("cpus:1", 4), roles=["r/sub"])
        assert dealing.deal() == []
        return dealing

    def test_offers_count(self) -> None:
        dealing = self.make()
        assert dealing.causes("y") == [Cause.LIMIT]

    def test_what_is_wanted_no_more_makes_room_for_others(self) -> None:
        dealing = self.make()
        dealing.demand("x", want("cpus:1", 1))
        assert dealing.dealt() == ["y m cpus:3"]

    def test_nothing_counts_of_an_offer_to_who_wants_nothing(self) -> None:
        dealing = self.make()
        dealing.demand("x", want("cpus:1", 0))
        assert dealing.dealt() == ["y m cpus:4"]

    def test_all_counts_where_there_is_no_end_of_demand(self) -> None:
        dealing = self.make()
        dealing.demand("x", want("cpus:1"))
        assert dealing.deal() == []

    def test_a_launch_beyond_the_demand_goes_over_the_limit(self) -> None:
        dealing = self.make()
        dealing.demand("x", want("cpus:1", 1))
        dealing.accept(dealing.deal()[0])
        place = (FrameworkId("x"), Role("r"))
        assert dealing.allocator.queries.excess(*place, amount("cpus:1")) == ""
        told = dealing.allocator.queries.excess(*place, amount("cpus:2"))
        assert told == "role r uses cpus:3 of its limit of 4"

    def test_a_role_that_is_left_counts_no_offers(self) -> None:
        dealing = self.make()
        dealing.allocator.set_roles(FrameworkId("x"), [Role("elsewhere")])
        dealing.demand("x", want("cpus:1", 1))
        assert dealing.dealt() == ["y m cpus:4"]

    def test_a_limit_that_is_set_later_counts_the_same(self) -> None:
        dealing = Dealing()
        dealing.framework("x", want("cpus:1", 5), roles=["r"])
        dealing.agent("m", "cpus:8")
        dealing.deal()
        dealing.demand("x", want("cpus:1", 2))
        dealing.set_role("r", role_of(limit="cpus:3"))
        dealing.framework("y", want("cpus:1"), roles=["r"])
        assert dealing.dealt() == ["y m cpus:1"]

    def test_an_offer_of_another_shape_is_counted_by_what_it_takes(self) -> None:
        dealing = Dealing(roles={"r": role_of(limit="cpus:10")})
        dealing.framework("x", want("cpus:1", 5), roles=["r"])
        dealing.agent("m", "cpus:5")
        dealing.deal()
        dealing.demand("x", want("cpus:2", 2))
        dealing.agent("n", "cpus:8")
        assert dealing.dealt() == ["x n cpus:4"]


def test_excess_without_limits_is_nothing() -> None:
    dealing = Dealing()
    dealing.framework("f")
    assert dealing.allocator.queries.excess(FrameworkId("f"), Role("f"), amount("cpus:1000")) == ""


def test_tasks_that_are_found_are_charged_whatever_the_limit() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:1")})
    dealing.framework("f", want("cpus:1"), roles=["r"])
    dealing.agent("m", "cpus:4")
    place = (FrameworkId("f"), Role("r"), AgentId("m"))
    dealing.allocator.charges.charge(*place, amount("cpus:3"))
    assert dealing.deal() == []
    dealing.allocator.charges.release(*place, amount("cpus:3"))
    assert dealing.dealt() == ["f m cpus:1"]


def test_who_waits_for_room_does_so_whatever_is_told_of_its_demand() -> None:
    """Told the same but for the portions, it was in line without being looked at."""
    dealing = Dealing(roles={"r": role_of(limit="cpus:2")})
    dealing.framework("f", want("cpus:1", 9), roles=["r"])
    dealing.agent("m", "cpus:2")
    dealing.agent("n", "cpus:2")
    (grant,) = dealing.fill()
    dealing.demand("f", want("cpus:1", 7, most=2))
    assert dealing.deal() == []
    dealing.allocator.activate_agent(grant.agent_id, False)
    dealing.finish(grant, "cpus:1")
    assert dealing.dealt() == ["f n cpus:1"]
