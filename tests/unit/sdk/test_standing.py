"""What a framework says of itself when it subscribes again."""

from __future__ import annotations

from croupier.model.demand import Demand
from croupier.model.resources import Resources
from croupier.sdk.core.standing import Standing

UNIT = Resources.parse("cpus:1")


def wanted(count: int | None) -> Demand:
    return Demand(UNIT, count)


class TestStanding:
    def test_a_demand_counts_from_the_moment_it_is_sent(self) -> None:
        standing = Standing("", wanted(1))
        standing.on_demand_sent(1, wanted(2))
        assert standing.demand == wanted(2)
        standing.on_demand_answered(1, True)
        assert standing.demand == wanted(2)
        standing.check()

    def test_a_refused_demand_gives_way_to_the_one_before(self) -> None:
        standing = Standing("", wanted(1))
        standing.on_demand_sent(1, wanted(2))
        standing.on_demand_sent(2, wanted(3))
        standing.on_demand_answered(1, False)
        assert standing.demand == wanted(3)
        standing.on_demand_answered(2, False)
        assert standing.demand == wanted(1)
        standing.check()

    def test_launched_tasks_are_counted_off(self) -> None:
        standing = Standing("", wanted(5))
        assert not standing.on_launched(1, 2, before=False)
        assert standing.demand == wanted(3)
        standing.on_launched(2, 9, before=False)
        assert standing.demand == wanted(0)

    def test_tasks_launched_before_a_demand_are_not_counted_off_it(self) -> None:
        standing = Standing("", wanted(5))
        standing.on_demand_sent(2, wanted(7))
        standing.on_demand_answered(2, True)
        standing.on_launched(1, 3, before=False)
        assert standing.demand == wanted(7)

    def test_a_demand_without_end_stays(self) -> None:
        standing = Standing("", wanted(None))
        assert not standing.on_launched(1, 2, before=True)
        assert standing.demand == wanted(None)

    def test_tasks_of_an_earlier_stream_call_for_the_demand_to_be_told_again(self) -> None:
        standing = Standing("", wanted(5))
        assert standing.on_launched(1, 2, before=True)
        assert not standing.on_launched(2, 0, before=True)

    def test_unless_a_newer_demand_is_under_way(self) -> None:
        standing = Standing("", wanted(5))
        standing.on_demand_sent(2, wanted(1))
        assert not standing.on_launched(1, 2, before=True)
        standing.check()
