"""A pass gives way: no visit goes on for long, whoever stands in line."""

from __future__ import annotations

from croupier.model.ids import FrameworkId
from tests.harness.allocator_fixture import Dealing, want


def test_a_line_of_those_who_do_not_fit_does_not_hold_up_the_loop() -> None:
    """Each deal passes over all of them; the visit ends after some, and goes on later."""
    dealing = Dealing()
    for number in range(1000):
        dealing.framework(f"large{number}", want("cpus:100"), roles=["r"])
    dealing.framework("small", want("cpus:0.001"), roles=["r"])
    dealing.agent("m", "cpus:1")
    slices = []
    while dealing.allocator.has_dirty_agents:
        slices.append(sum(len(grant.deals) for grant in dealing.allocator.run(0.0, budget=1)))
    dealing.allocator.check()
    assert sum(slices) == 1000
    assert max(slices) < 150


def test_a_slice_deals_something_however_small_it_is() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    for number in range(20):
        dealing.agent(f"m{number}", "cpus:1")
    slices = 0
    while dealing.allocator.has_dirty_agents:
        assert len(dealing.allocator.run(0.0, budget=1)) == 1
        slices += 1
    assert slices == 20
    assert dealing.allocator.passes == 1


def test_a_change_during_a_pass_is_part_of_it() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    for number in range(3):
        dealing.agent(f"m{number}", "cpus:1")
    (first,) = dealing.deal(budget=1)
    dealing.decline(first)
    dealing.allocator.suppress(FrameworkId("f"))
    dealing.framework("g", want("cpus:1"))
    assert set(dealing.takers()) == {"g"}
    assert not dealing.allocator.has_dirty_agents
