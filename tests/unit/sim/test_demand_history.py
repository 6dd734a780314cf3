"""Demand history for demands that differ in constraints alone."""

from __future__ import annotations

from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.sim.replay.demand_history import DemandedUnit, DemandHistory

ADS = Role("ads")
UNIT = Resources.parse("cpus:1")


def in_zone(zone: str, count: int | None) -> Demand:
    return Demand(UNIT, count, (equals("zone", zone),))


def test_a_task_counts_for_the_demand_whose_constraints_its_agent_passes() -> None:
    history = DemandHistory(0.0)
    history.declare([in_zone("a", 2)], ADS, 1.0)
    both = [in_zone("a", 2), in_zone("b", 1)]
    history.declare(both, ADS, 2.0)
    assert history.launch(ADS, UNIT, {"zone": "b"}) == DemandedUnit(2.0, both[1])
    assert history.launch(ADS, UNIT, {"zone": "b"}) == DemandedUnit(1.0, both[0])
    assert [tracked.units for tracked in history] == [1, 0]


def test_tasks_beyond_the_demand_have_no_time_of_demand() -> None:
    history = DemandHistory(0.0)
    wanted = in_zone("a", 1)
    history.declare([wanted], ADS, 1.0)
    assert history.launch(ADS, UNIT, {}) == DemandedUnit(1.0, wanted)
    assert history.launch(ADS, UNIT, {}) == DemandedUnit(None, wanted)
    assert history.launch(Role("web"), UNIT, {}) == DemandedUnit(None)


def test_endless_demand_is_endless_in_its_own_zone_only() -> None:
    history = DemandHistory(0.0)
    finite, endless = in_zone("a", 1), in_zone("b", None)
    history.declare([finite, endless], ADS, 1.0)
    assert history.launch(ADS, UNIT, {"zone": "a"}) == DemandedUnit(1.0, finite)
    assert history.launch(ADS, UNIT, {"zone": "b"}) == DemandedUnit(None, endless)
