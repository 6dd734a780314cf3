"""Scarce resources, earmarks and reservations: resources for some frameworks only."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.master.allocator.agent_pool import Earmark
from croupier.model.attributes import equals
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


def with_gpus() -> AllocatorFixture:
    """Return `m` with a gpu and 4 cpus; `c` demands cpus, and `g` may demand gpus."""
    fixture = AllocatorFixture(rules=Rules(hold_s=0))
    fixture.framework("c", want("cpus:1"))
    fixture.framework("g", want("cpus:1;gpus:1;mem:1GB"))
    fixture.agent("m", "cpus:4;gpus:1;mem:4GB")
    return fixture


class TestScarce:
    def test_a_framework_without_demand_for_it_waits_for_others(self) -> None:
        fixture = with_gpus()
        assert fixture.takers() == ["g", "c"]
        assert fixture.free("m") == "mem:3GB"

    def test_whole_remainders_do_not_demand_scarce_resources(self) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=0))
        fixture.framework("c")
        fixture.agent("m", "cpus:1;gpus:1")
        fixture.framework("g", want("gpus:2"))
        assert fixture.takers() == ["c"]

    def test_it_is_withheld_only_for_frameworks_that_could_use_the_agent(self) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=0))
        fixture.framework("c", want("cpus:1"))
        fixture.framework("large", want("gpus:2"))
        fixture.framework("elsewhere", want("gpus:1", None, equals("zone", "b")))
        fixture.agent("m", "cpus:1;gpus:1", zone="a")
        assert fixture.takers() == ["c"]

    def test_a_reservation_is_explained(self) -> None:
        fixture = with_gpus()
        place = (FrameworkId("g"), Role("g"), AgentId("m"))
        fixture.allocator.charges.charge(*place, amount("mem:4GB"))
        assert fixture.deal() == []
        assert fixture.causes("c") == fixture.causes("c", "m") == [Cause.SCARCE]
        assert fixture.why("c", "m") == "has gpus, which is withheld for frameworks that demand it"

    def test_no_resource_is_scarce_under_rules_without_scarce_resources(self) -> None:
        fixture = AllocatorFixture()
        fixture.framework("c", want("cpus:1"))
        fixture.framework("g", want("gpus:1;mem:9GB"))
        fixture.agent("m", "cpus:1;gpus:1;mem:9GB")
        assert fixture.takers()[0] == "c"


class TestScarceDemandEnds:
    """The demand for the scarce resource ends, and others are dealt the agent."""

    def make(self) -> AllocatorFixture:
        fixture = with_gpus()
        self.place = (FrameworkId("g"), Role("g"), AgentId("m"))
        fixture.allocator.charges.charge(*self.place, amount("mem:4GB"))
        assert fixture.deal() == []
        return fixture

    def used(self, fixture: AllocatorFixture) -> bool:
        fixture.fill()
        return fixture.free("m") == "gpus:1"

    def test_it_is_suppressed(self) -> None:
        fixture = self.make()
        fixture.allocator.suppress(FrameworkId("g"))
        assert self.used(fixture)

    def test_it_was_removed(self) -> None:
        fixture = self.make()
        fixture.allocator.connect(FrameworkId("g"), False)
        assert self.used(fixture)

    def test_it_demands_something_else(self) -> None:
        fixture = self.make()
        fixture.demand("g", want("mem:1GB"))
        assert self.used(fixture)

    def test_its_demand_for_it_is_met(self) -> None:
        fixture = self.make()
        fixture.demand("g", want("cpus:1;gpus:1;mem:1GB", 0), want("mem:1GB"))
        assert self.used(fixture)

    def test_its_demand_is_offered_on_another_agent(self) -> None:
        fixture = self.make()
        fixture.demand("g", want("cpus:1;gpus:1;mem:1GB", 1), want("mem:64GB"))
        fixture.agent("n", "cpus:1;gpus:1;mem:1GB")
        assert self.used(fixture)

    def test_it_left_the_role(self) -> None:
        fixture = self.make()
        fixture.allocator.set_roles(FrameworkId("g"), [Role("other")])
        fixture.demand("g", want("mem:1GB"))
        assert self.used(fixture)

    def test_its_role_is_at_a_limit(self) -> None:
        fixture = self.make()
        fixture.set_role("g", role_of(limit="mem:4GB"))
        assert self.used(fixture)

    def test_it_refused_the_agent(self) -> None:
        fixture = self.make()
        fixture.refuse(*self.place, amount("cpus:4;gpus:1;mem:4GB"), 100.0)
        fixture.allocator.charges.release(*self.place, amount("mem:1GB"))
        fixture.fill()
        assert fixture.free("m") == "mem:1GB;gpus:1"


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


class TestReservations:
    """An agent that is reserved for a framework with large units."""

    def make(self) -> AllocatorFixture:
        """Let `f` use all of `m` but one unit, while `g` needs eight such units."""
        fixture = AllocatorFixture(rules=Rules(hold_s=30.0))
        fixture.framework("f", want("cpus:1"))
        fixture.agent("m", "cpus:20")
        (grant,) = fixture.fill()
        fixture.framework("g", want("cpus:8"))
        fixture.agent("n", "mem:1GB")
        fixture.deal()
        fixture.finish(grant, "cpus:1")
        assert fixture.deal() == []
        assert fixture.causes("f")[0] is Cause.KEPT
        return fixture

    @pytest.mark.parametrize("how", ["suppressed", "gone", "changed", "removed", "elsewhere"])
    def test_the_reservation_ends_with_the_demand(self, how: str) -> None:
        fixture = self.make()
        g = FrameworkId("g")
        if how == "suppressed":
            fixture.allocator.suppress(g)
        elif how == "gone":
            fixture.allocator.connect(g, False)
        elif how == "changed":
            fixture.demand("g", want("mem:64GB"))
        elif how == "removed":
            fixture.allocator.remove_framework(g)
        else:
            # It is no longer far behind.
            fixture.agent("o", "cpus:16")
        assert fixture.takers()[-1] == "f"

    def test_nothing_is_reserved_for_a_framework_that_refused_the_agent(self) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=30.0))
        fixture.framework("g", want("cpus:8"))
        fixture.agent("m", "cpus:20")
        for grant in fixture.deal():
            fixture.decline(grant, 1000.0)
        fixture.framework("f", want("cpus:1"))
        (grant,) = fixture.fill()
        fixture.finish(grant, "cpus:1")
        assert fixture.takers() == ["f"]

    def test_nothing_is_reserved_for_a_framework_at_its_limit(self) -> None:
        fixture = AllocatorFixture(rules=Rules(hold_s=30.0), roles={"g": role_of(limit="cpus:4")})
        fixture.framework("g", want("cpus:8"), want("mem:64GB"))
        fixture.framework("f", want("cpus:1"))
        fixture.agent("m", "cpus:20;mem:64GB")
        grants = {grant.framework_id: grant for grant in fixture.fill()}
        fixture.finish(grants[FrameworkId("f")], "cpus:1")
        assert fixture.takers() == ["f"]


def test_one_of_two_shapes_with_scarce_resources_is_met() -> None:
    """The other could not use the agent."""
    fixture = AllocatorFixture(rules=Rules(hold_s=0))
    fixture.framework("g", want("gpus:2;mem:2GB", 1), want("gpus:1;mem:1GB", 1))
    fixture.framework("c", want("cpus:1"))
    fixture.agent("m", "cpus:1;gpus:1;mem:1GB")
    fixture.allocator.charges.charge(FrameworkId("g"), Role("g"), AgentId("m"), amount("mem:1GB"))
    assert fixture.deal() == []
    fixture.agent("n", "gpus:1;mem:1GB")
    assert fixture.dealt() == ["g n mem:1GB;gpus:1", "c m cpus:1"]


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
    fixture.allocator.charges.charge(*place, amount("cpus:2"))
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:2"), 50.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    fixture.wait(10.0)
    fixture.deal()
    fixture.wait(40.0)
    fixture.allocator.charges.release(*place, amount("cpus:2"))
    assert fixture.takers() == ["f"]
