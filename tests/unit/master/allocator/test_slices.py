"""Slices of a pass: each visit is bounded, however many frameworks there are."""

from __future__ import annotations

from croupier.model.ids import FrameworkId
from tests.harness.allocator_fixture import AllocatorFixture, want
from tests.harness.allocator_invariants import check_allocator


def test_many_frameworks_that_do_not_fit_do_not_block_the_loop() -> None:
    """Each deal passes over all of them; the visit ends after some, and continues later."""
    fixture = AllocatorFixture(remembers=False)
    for number in range(1000):
        fixture.framework(f"large{number}", want("cpus:100"), roles=["r"])
    fixture.framework("small", want("cpus:0.001"), roles=["r"])
    fixture.agent("m", "cpus:1")
    slices = []
    while fixture.allocator.has_dirty_agents:
        slices.append(sum(len(grant.deals) for grant in fixture.allocator.run(0.0, budget=1)))
    check_allocator(fixture.allocator)
    assert sum(slices) == 1000
    assert max(slices) < 150


def test_misfits_take_nothing_of_a_visit() -> None:
    fixture = AllocatorFixture()
    for number in range(100):
        fixture.framework(f"large{number}", want("cpus:100"), roles=["r"])
    fixture.framework("small", want("cpus:0.001"), roles=["r"])
    fixture.agent("m", "cpus:1")
    slices = [fixture.allocator.run(0.0, budget=1) for _ in range(2)]
    assert [len(grant.deals) for grants in slices for grant in grants] == [500, 500]


def test_a_slice_deals_something_however_small_it_is() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    for number in range(20):
        fixture.agent(f"m{number}", "cpus:1")
    slices = 0
    while fixture.allocator.has_dirty_agents:
        assert len(fixture.allocator.run(0.0, budget=1)) == 1
        slices += 1
    assert slices == 20
    assert fixture.allocator.passes == 1


def test_a_change_during_a_pass_is_part_of_it() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    for number in range(3):
        fixture.agent(f"m{number}", "cpus:1")
    (first,) = fixture.deal(budget=1)
    fixture.decline(first)
    fixture.allocator.suppress(FrameworkId("f"))
    fixture.framework("g", want("cpus:1"))
    assert set(fixture.takers()) == {"g"}
    assert not fixture.allocator.has_dirty_agents
