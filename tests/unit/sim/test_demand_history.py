"""Since when launched tasks were wanted, of demands that differ in constraints alone."""

from __future__ import annotations

from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.sim.replay.demand_history import Wanted, Wishes

ADS = Role("ads")
UNIT = Resources.parse("cpus:1")


def in_zone(zone: str, count: int | None) -> Demand:
    return Demand(UNIT, count, (equals("zone", zone),))


def test_a_task_was_wanted_where_its_agent_passes() -> None:
    wishes = Wishes(0.0)
    wishes.declare([in_zone("a", 2)], ADS, 1.0)
    both = [in_zone("a", 2), in_zone("b", 1)]
    wishes.declare(both, ADS, 2.0)
    assert wishes.launch(ADS, UNIT, {"zone": "b"}) == Wanted(2.0, both[1])
    assert wishes.launch(ADS, UNIT, {"zone": "b"}) == Wanted(1.0, both[0])
    assert [wish.units for wish in wishes] == [1, 0]


def test_what_is_launched_beyond_the_demand_was_wanted_at_no_time() -> None:
    wishes = Wishes(0.0)
    wanted = in_zone("a", 1)
    wishes.declare([wanted], ADS, 1.0)
    assert wishes.launch(ADS, UNIT, {}) == Wanted(1.0, wanted)
    assert wishes.launch(ADS, UNIT, {}) == Wanted(None, wanted)
    assert wishes.launch(Role("web"), UNIT, {}) == Wanted(None)


def test_without_end_is_without_end_in_its_own_zone_only() -> None:
    wishes = Wishes(0.0)
    finite, endless = in_zone("a", 1), in_zone("b", None)
    wishes.declare([finite, endless], ADS, 1.0)
    assert wishes.launch(ADS, UNIT, {"zone": "a"}) == Wanted(1.0, finite)
    assert wishes.launch(ADS, UNIT, {"zone": "b"}) == Wanted(None, endless)
