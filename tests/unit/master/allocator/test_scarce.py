"""Scarce resources, earmarks and reservations: resources for some frameworks only."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause
from croupier.master.allocator.agent_pool import Earmark
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


class TestEarmarks:
    def make(self) -> AllocatorFixture:
        """Earmark 4 cpus of 10 for `x`."""
        fixture = AllocatorFixture()
        fixture.framework("y", want("cpus:1"))
        fixture.framework("x", want("cpus:4", 1))
        fixture.agent("m", "cpus:10")
        self.leaf = fixture.tree.leaves[FrameworkId("x"), Role("x")]
        self.mark(fixture, "cpus:4")
        return fixture

    def mark(self, fixture: AllocatorFixture, room: str) -> None:
        pool = fixture.agents
        pool.earmark(pool.agents[AgentId("m")], Earmark(self.leaf, amount(room), 100.0))

    def test_no_other_framework_is_dealt_it(self) -> None:
        fixture = self.make()
        fixture.set_role("y", role_of(guarantee="cpus:10"))
        assert fixture.takers() == ["y", "x"]

    def test_each_cause_is_explained(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        assert fixture.causes("y", "m") == [Cause.EARMARKED]
        assert fixture.why("y", "m") == "cpus:10 was freed for x, which was starving"

    def test_it_ends_at_its_deadline(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        assert fixture.allocator.next_wakeup() == 100.0
        fixture.wait(100.0)
        assert fixture.dealt() == ["y m cpus:10"]

    def test_the_earmark_is_used_up_by_its_framework(self) -> None:
        """The rest beyond the earmark is for all, within one visit too."""
        fixture = self.make()
        fixture.fill()
        assert fixture.free("m") == ""
        assert fixture.agents.earmarks() == []

    @pytest.mark.parametrize("how", ["suppressed", "gone", "met", "removed", "declined"])
    def test_nothing_is_earmarked_for_a_framework_without_demand(self, how: str) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:10")
        fixture.demand("x", want("cpus:11"))
        assert fixture.deal() == []
        x = FrameworkId("x")
        if how == "suppressed":
            fixture.allocator.suppress(x)
        elif how == "gone":
            fixture.allocator.connect(x, False)
        elif how == "met":
            fixture.demand("x", want("cpus:11", 0))
        elif how == "removed":
            fixture.allocator.remove_framework(x)
        else:
            fixture.agents.forget_earmarks(self.leaf)
        assert fixture.dealt() == ["y m cpus:10"]

    def test_part_of_it_may_be_dealt(self) -> None:
        fixture = self.make()
        self.mark(fixture, "cpus:8")
        fixture.fill()
        assert fixture.allocator.queries.share(FrameworkId("y")) * 10 == 6


def test_an_earmark_ends_on_time_after_an_earlier_wake_up() -> None:
    """Nothing was free on the agent when the earmark ended."""
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:8"))
    fixture.agent("m", "cpus:2")
    pool, leaf = fixture.agents, fixture.tree.leaves
    for grant in fixture.deal():
        fixture.decline(grant, 10.0)
    place = (FrameworkId("f"), Role("f"), AgentId("m"))
    fixture.allocator.charges.charge(AgentId("m"), [(*place[:2], amount("cpus:2"))])
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:2"), 50.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    fixture.wait(10.0)
    fixture.deal()
    fixture.wait(40.0)
    fixture.allocator.charges.release(*place, amount("cpus:2"))
    assert fixture.takers() == ["f"]
