"""What is scarce is kept for those who ask for it, and room that was made for whom it was made."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, Rules
from croupier.master.allocator.agent_pool import Earmark
from croupier.model.attributes import equals
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import Dealing, amount, role_of, want


def with_gpus() -> Dealing:
    """`m` has a gpu and 4 cpus; `c` uses cpus, `g` gpus, but not yet."""
    dealing = Dealing(rules=Rules(hold_s=0))
    dealing.framework("c", want("cpus:1"))
    dealing.framework("g", want("cpus:1;gpus:1;mem:1GB"))
    dealing.agent("m", "cpus:4;gpus:1;mem:4GB")
    return dealing


class TestScarce:
    def test_who_does_not_ask_for_it_waits_for_who_does(self) -> None:
        dealing = with_gpus()
        assert dealing.takers() == ["g", "c"]
        assert dealing.free("m") == "mem:3GB"

    def test_whole_remainders_do_not_ask_for_it(self) -> None:
        dealing = Dealing(rules=Rules(hold_s=0))
        dealing.framework("c")
        dealing.agent("m", "cpus:1;gpus:1")
        dealing.framework("g", want("gpus:2"))
        assert dealing.takers() == ["c"]

    def test_it_is_kept_only_for_who_could_use_the_agent(self) -> None:
        dealing = Dealing(rules=Rules(hold_s=0))
        dealing.framework("c", want("cpus:1"))
        dealing.framework("large", want("gpus:2"))
        dealing.framework("elsewhere", want("gpus:1", None, equals("zone", "b")))
        dealing.agent("m", "cpus:1;gpus:1", zone="a")
        assert dealing.takers() == ["c"]

    def test_why_it_is_kept(self) -> None:
        dealing = with_gpus()
        place = (FrameworkId("g"), Role("g"), AgentId("m"))
        dealing.allocator.charges.charge(*place, amount("mem:4GB"))
        assert dealing.deal() == []
        assert dealing.causes("c") == dealing.causes("c", "m") == [Cause.SCARCE]
        assert dealing.why("c", "m") == "has gpus, which is kept for those who ask for it"

    def test_nothing_is_scarce_if_the_rules_say_so(self) -> None:
        dealing = Dealing()
        dealing.framework("c", want("cpus:1"))
        dealing.framework("g", want("gpus:1;mem:9GB"))
        dealing.agent("m", "cpus:1;gpus:1;mem:9GB")
        assert dealing.takers()[0] == "c"


class TestScarceNoMore:
    """Whoever asked does so no more: the others are looked at again."""

    def make(self) -> Dealing:
        dealing = with_gpus()
        self.place = (FrameworkId("g"), Role("g"), AgentId("m"))
        dealing.allocator.charges.charge(*self.place, amount("mem:4GB"))
        assert dealing.deal() == []
        return dealing

    def used(self, dealing: Dealing) -> bool:
        dealing.fill()
        return dealing.free("m") == "gpus:1"

    def test_it_is_suppressed(self) -> None:
        dealing = self.make()
        dealing.allocator.suppress(FrameworkId("g"))
        assert self.used(dealing)

    def test_it_is_gone(self) -> None:
        dealing = self.make()
        dealing.allocator.connect(FrameworkId("g"), False)
        assert self.used(dealing)

    def test_it_wants_something_else(self) -> None:
        dealing = self.make()
        dealing.demand("g", want("mem:1GB"))
        assert self.used(dealing)

    def test_it_wants_no_more_of_that(self) -> None:
        dealing = self.make()
        dealing.demand("g", want("cpus:1;gpus:1;mem:1GB", 0), want("mem:1GB"))
        assert self.used(dealing)

    def test_it_has_what_it_wanted_elsewhere(self) -> None:
        dealing = self.make()
        dealing.demand("g", want("cpus:1;gpus:1;mem:1GB", 1), want("mem:64GB"))
        dealing.agent("n", "cpus:1;gpus:1;mem:1GB")
        assert self.used(dealing)

    def test_it_left_the_role(self) -> None:
        dealing = self.make()
        dealing.allocator.set_roles(FrameworkId("g"), [Role("other")])
        dealing.demand("g", want("mem:1GB"))
        assert self.used(dealing)

    def test_its_role_is_at_a_limit(self) -> None:
        dealing = self.make()
        dealing.set_role("g", role_of(limit="mem:4GB"))
        assert self.used(dealing)

    def test_it_refused_the_agent(self) -> None:
        dealing = self.make()
        dealing.refuse(*self.place, amount("cpus:4;gpus:1;mem:4GB"), 100.0)
        dealing.allocator.charges.release(*self.place, amount("mem:1GB"))
        dealing.fill()
        assert dealing.free("m") == "mem:1GB;gpus:1"


class TestEarmarks:
    def make(self) -> Dealing:
        """4 cpus of 10 are kept for `x`."""
        dealing = Dealing()
        dealing.framework("y", want("cpus:1"))
        dealing.framework("x", want("cpus:4", 1))
        dealing.agent("m", "cpus:10")
        self.leaf = dealing.tree.leaves[FrameworkId("x"), Role("x")]
        self.mark(dealing, "cpus:4")
        return dealing

    def mark(self, dealing: Dealing, room: str) -> None:
        pool = dealing.agents
        pool.earmark(pool.agents[AgentId("m")], Earmark(self.leaf, amount(room), 100.0))

    def test_nobody_else_is_dealt_it(self) -> None:
        dealing = self.make()
        dealing.set_role("y", role_of(guarantee="cpus:10"))
        assert dealing.takers() == ["y", "x"]

    def test_why_not(self) -> None:
        dealing = self.make()
        self.mark(dealing, "cpus:10")
        dealing.demand("x", want("cpus:11"))
        assert dealing.deal() == []
        assert dealing.causes("y", "m") == [Cause.EARMARKED]
        assert dealing.why("y", "m") == "cpus:10 was freed for x, which starved"

    def test_it_ends_with_its_time(self) -> None:
        dealing = self.make()
        self.mark(dealing, "cpus:10")
        dealing.demand("x", want("cpus:11"))
        assert dealing.deal() == []
        assert dealing.allocator.next_wakeup() == 100.0
        dealing.wait(100.0)
        assert dealing.dealt() == ["y m cpus:10"]

    def test_it_is_used_up_by_who_it_is_for(self) -> None:
        """Within one visit too: what is beyond it is for all."""
        dealing = self.make()
        dealing.fill()
        assert dealing.free("m") == ""
        assert dealing.agents.earmarks() == []

    @pytest.mark.parametrize("how", ["suppressed", "gone", "met", "removed", "declined"])
    def test_nothing_is_kept_for_who_does_not_want_it(self, how: str) -> None:
        dealing = self.make()
        self.mark(dealing, "cpus:10")
        dealing.demand("x", want("cpus:11"))
        assert dealing.deal() == []
        x = FrameworkId("x")
        if how == "suppressed":
            dealing.allocator.suppress(x)
        elif how == "gone":
            dealing.allocator.connect(x, False)
        elif how == "met":
            dealing.demand("x", want("cpus:11", 0))
        elif how == "removed":
            dealing.allocator.remove_framework(x)
        else:
            dealing.agents.forget_earmarks(self.leaf)
        assert dealing.dealt() == ["y m cpus:10"]

    def test_part_of_it_may_be_dealt(self) -> None:
        dealing = self.make()
        self.mark(dealing, "cpus:8")
        dealing.fill()
        assert dealing.allocator.queries.share(FrameworkId("y")) * 10 == 6


class TestKeeping:
    """An agent that is kept for a framework which needs a large room of it."""

    def make(self) -> Dealing:
        """`f` has all of `m` but for a unit; `g` needs eight of those."""
        dealing = Dealing(rules=Rules(hold_s=30.0))
        dealing.framework("f", want("cpus:1"))
        dealing.agent("m", "cpus:20")
        (grant,) = dealing.fill()
        dealing.framework("g", want("cpus:8"))
        dealing.agent("n", "mem:1GB")
        dealing.deal()
        dealing.finish(grant, "cpus:1")
        assert dealing.deal() == []
        assert dealing.causes("f")[0] is Cause.KEPT
        return dealing

    @pytest.mark.parametrize("how", ["suppressed", "gone", "changed", "removed", "elsewhere"])
    def test_it_is_let_go_when_that_needs_it_no_more(self, how: str) -> None:
        dealing = self.make()
        g = FrameworkId("g")
        if how == "suppressed":
            dealing.allocator.suppress(g)
        elif how == "gone":
            dealing.allocator.connect(g, False)
        elif how == "changed":
            dealing.demand("g", want("mem:64GB"))
        elif how == "removed":
            dealing.allocator.remove_framework(g)
        else:
            # So much that it is no longer far behind.
            dealing.agent("o", "cpus:16")
        assert dealing.takers()[-1] == "f"

    def test_nothing_is_kept_for_who_refused_the_agent(self) -> None:
        dealing = Dealing(rules=Rules(hold_s=30.0))
        dealing.framework("g", want("cpus:8"))
        dealing.agent("m", "cpus:20")
        for grant in dealing.deal():
            dealing.decline(grant, 1000.0)
        dealing.framework("f", want("cpus:1"))
        (grant,) = dealing.fill()
        dealing.finish(grant, "cpus:1")
        assert dealing.takers() == ["f"]

    def test_nothing_is_kept_for_whom_a_limit_leaves_nothing(self) -> None:
        dealing = Dealing(rules=Rules(hold_s=30.0), roles={"g": role_of(limit="cpus:4")})
        dealing.framework("g", want("cpus:8"), want("mem:64GB"))
        dealing.framework("f", want("cpus:1"))
        dealing.agent("m", "cpus:20;mem:64GB")
        grants = {grant.framework_id: grant for grant in dealing.fill()}
        dealing.finish(grants[FrameworkId("f")], "cpus:1")
        assert dealing.takers() == ["f"]


def test_one_of_two_shapes_that_ask_for_it_is_met() -> None:
    """The other could not use the agent."""
    dealing = Dealing(rules=Rules(hold_s=0))
    dealing.framework("g", want("gpus:2;mem:2GB", 1), want("gpus:1;mem:1GB", 1))
    dealing.framework("c", want("cpus:1"))
    dealing.agent("m", "cpus:1;gpus:1;mem:1GB")
    dealing.allocator.charges.charge(FrameworkId("g"), Role("g"), AgentId("m"), amount("mem:1GB"))
    assert dealing.deal() == []
    dealing.agent("n", "gpus:1;mem:1GB")
    assert dealing.dealt() == ["g n mem:1GB;gpus:1", "c m cpus:1"]


def test_an_earmark_ends_in_time_though_the_agent_was_woken_before() -> None:
    """When it was, it had nothing free that would have had it looked at."""
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:8"))
    dealing.agent("m", "cpus:2")
    pool, leaf = dealing.agents, dealing.tree.leaves
    for grant in dealing.deal():
        dealing.decline(grant, 10.0)
    place = (FrameworkId("f"), Role("f"), AgentId("m"))
    dealing.allocator.charges.charge(*place, amount("cpus:2"))
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:2"), 50.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    dealing.wait(10.0)
    dealing.deal()
    dealing.wait(40.0)
    dealing.allocator.charges.release(*place, amount("cpus:2"))
    assert dealing.takers() == ["f"]
