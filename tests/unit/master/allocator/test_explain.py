"""Explanations: each cause, for all agents together and for one."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, PassedOver, Rules
from croupier.master.allocator.agent_pool import Earmark
from croupier.master.allocator.policies import NAMES, make
from croupier.model.attributes import equals
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want

F = FrameworkId("f")


def first_reason(fixture: AllocatorFixture, agent: str | None = None) -> PassedOver:
    agent_id = None if agent is None else AgentId(agent)
    return fixture.allocator.queries.explain(F, agent_id, fixture.now)[0]


@pytest.mark.parametrize("agent", [None, "m"])
class TestCausesForAnyAgent:
    def make(self, *demands: object, **roles: object) -> AllocatorFixture:
        fixture = AllocatorFixture(roles=roles)  # type: ignore[arg-type]
        fixture.framework("f", *demands)  # type: ignore[arg-type]
        fixture.agent("m", "cpus:4")
        return fixture

    def test_it_is_not_connected(self, agent: str | None) -> None:
        fixture = self.make()
        fixture.allocator.connect(F, False)
        assert first_reason(fixture, agent).cause is Cause.DISCONNECTED

    def test_it_is_suppressed(self, agent: str | None) -> None:
        fixture = self.make(want("cpus:1", 2))
        fixture.allocator.suppress(F)
        case = first_reason(fixture, agent)
        assert case.cause is Cause.SUPPRESSED
        assert case.detail == "the framework suppressed offers, though it wants 2 <cpus:1>"

    def test_it_suppressed_offers_and_wants_nothing_more(self, agent: str | None) -> None:
        fixture = self.make()
        fixture.allocator.suppress(F)
        case = first_reason(fixture, agent)
        assert case.cause is Cause.NO_DEMAND
        assert case.detail == "no task that it submitted waits, and it suppressed offers"

    def test_its_demand_is_met(self, agent: str | None) -> None:
        fixture = self.make(want("cpus:1", 2))
        fixture.fill()
        case = first_reason(fixture, agent)
        assert (case.cause, case.detail) == (Cause.NO_DEMAND, "it wants nothing more")

    def test_it_has_no_demand_in_this_role(self, agent: str | None) -> None:
        fixture = AllocatorFixture()
        fixture.framework("f", want("cpus:1"), roles=["a", "b"])
        fixture.agent("m", "cpus:4")
        agent_id = None if agent is None else AgentId(agent)
        cases = {case.role: case for case in fixture.allocator.queries.explain(F, agent_id)}
        assert cases[Role("b")].cause is Cause.NO_DEMAND
        assert cases[Role("b")].detail == "it wants nothing in this role"

    def test_a_limit_leaves_no_headroom(self, agent: str | None) -> None:
        fixture = self.make(want("cpus:1"), f=role_of(limit="mem:1GB;cpus:2"))
        fixture.fill()
        case = first_reason(fixture, agent)
        assert (case.cause, case.about) == (Cause.LIMIT, "f")
        assert case.detail == "role f holds cpus:2 of its limit of 2"

    def test_a_limit_with_less_headroom_than_a_unit_is_named(self, agent: str | None) -> None:
        fixture = self.make(want("cpus:2"), f=role_of(limit="mem:1GB;cpus:3"))
        fixture.fill()
        assert first_reason(fixture, agent).detail == "role f holds cpus:2 of its limit of 3"


def test_there_are_no_agents() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    assert first_reason(fixture).cause is Cause.NO_AGENTS


def test_the_agent_is_not_connected() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    fixture.agent("m", "cpus:4")
    fixture.allocator.activate_agent(AgentId("m"), False)
    assert first_reason(fixture, "m").cause is Cause.AGENT_AWAY


def test_an_agent_that_it_can_use_is_eligible() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    fixture.agent("m", "cpus:4")
    case = first_reason(fixture, "m")
    assert (case.cause, case.about) == (Cause.ELIGIBLE, "m")


def test_its_filter_lasts_for_a_time() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    fixture.agent("m", "cpus:4")
    fixture.decline(fixture.deal()[0], 60.0)
    assert fixture.deal() == []
    fixture.wait(10.0)
    assert first_reason(fixture).cause is first_reason(fixture, "m").cause is Cause.FILTERED
    assert first_reason(fixture, "m").detail == "the framework refused it for another 50.0 s"


def test_its_filter_lasts_for_a_round() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    fixture.agent("m", "cpus:4")
    (grant,) = fixture.deal()
    fixture.framework("g", want("cpus:1", 1))
    fixture.decline(grant, 0.0)
    assert fixture.takers() == ["g"]
    case = first_reason(fixture, "m")
    assert case.cause is first_reason(fixture).cause is Cause.FILTERED
    assert case.detail == "the framework refused it; others are offered it first"


def test_a_shape_does_not_fit() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:8"))
    fixture.agent("m", "cpus:4")
    fixture.agent("n", "cpus:3")
    assert fixture.deal() == []
    case = first_reason(fixture)
    assert (case.cause, case.agents) == (Cause.DOES_NOT_FIT, 2)
    assert case.detail == "needs cpus:8, which fits nowhere: agent m, the largest, has only cpus:4"
    assert first_reason(fixture, "m").cause is Cause.DOES_NOT_FIT


def test_the_remainder_is_not_useful() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f")
    fixture.agent("m", "cpus:0.001;mem:1MB")
    assert fixture.deal() == []
    assert first_reason(fixture).cause is first_reason(fixture, "m").cause is Cause.NOT_USEFUL


def test_a_constraint_does_not_hold() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1", None, equals("zone", "a")))
    fixture.agent("m", "cpus:4", zone="b")
    assert fixture.deal() == []
    assert first_reason(fixture).detail == "agent m: does not pass zone equals a"
    assert first_reason(fixture, "m").cause is Cause.CONSTRAINT


def test_one_shape_is_at_a_limit_and_the_other_does_not_fit() -> None:
    fixture = AllocatorFixture(roles={"r": role_of(limit="cpus:0")})
    fixture.framework("f", want("cpus:1"), want("mem:1GB"), roles=["r"])
    fixture.agent("m", "cpus:4")
    assert fixture.deal() == []
    assert first_reason(fixture, "m").cause is Cause.LIMIT
    assert first_reason(fixture, "m").about == "r"


def test_it_is_outranked() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.agent("big", "cpus:6")
    fixture.fill()
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:4")
    assert fixture.takers() == ["g"]
    case = first_reason(fixture)
    assert (case.cause, case.about) == (Cause.OUTRANKED, "g")
    assert case.detail == (
        "g in role g was dealt to last; it is entitled to 0.500 of the cluster and has 0.600;"
        " it is number 2 in order"
    )


def test_a_visited_agent_went_to_a_framework_ahead_of_it() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.agent("own", "cpus:5")
    fixture.fill()
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:2")
    assert fixture.takers() == ["g"]
    assert first_reason(fixture).cause is Cause.OUTRANKED
    assert first_reason(fixture).detail == (
        "g in role g was dealt to last; it is entitled to 0.500 of the cluster and has 0.714;"
        " it is number 2 in order"
    )


def test_a_framework_that_has_left_is_not_named() -> None:
    fixture = AllocatorFixture()
    fixture.framework("g", want("cpus:1"))
    fixture.framework("f", want("cpus:2"))
    fixture.agent("m", "cpus:6")
    taken = fixture.fill()
    assert first_reason(fixture).rival == "g"
    for grant in taken:
        if grant.framework_id == "g":
            for _ in range(grant.units[0][1]):
                fixture.finish(grant, "cpus:1")
    fixture.allocator.connect(FrameworkId("g"), False)
    fixture.allocator.remove_framework(FrameworkId("g"))
    fixture.fill()
    case = first_reason(fixture)
    assert (case.cause, case.rival) == (Cause.IN_USE, "")
    assert case.detail.startswith("it holds all of cpus:6: it waits for its own tasks to end; ")


def test_a_framework_that_is_alone_waits_for_its_own_tasks() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:2"))
    fixture.framework("g")
    fixture.allocator.suppress(FrameworkId("g"))
    fixture.agent("m", "cpus:5;gpus:1")
    fixture.fill()
    assert fixture.allocator.queries.explain(F)[0].rival == ""
    (leaf,) = [leaf for leaf in fixture.tree.leaves.values() if leaf.name == "f"]
    leaf.reasons.clear(fixture.allocator._profiles.visits)
    assert first_reason(fixture).detail.startswith(
        "it holds cpus:4, and no other framework holds any: it waits for its own tasks to end; "
    )


def test_withheld_agents_do_not_count_as_in_use() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:2"))
    for name in ("m", "drained"):
        fixture.agent(name, "cpus:2")
    fixture.allocator.activate_agent(AgentId("drained"), False)
    fixture.fill()
    (leaf,) = fixture.tree.leaves.values()
    leaf.reasons.clear(fixture.allocator._profiles.visits)
    case = first_reason(fixture)
    assert (case.cause, case.agents) == (Cause.IN_USE, 1)


def test_a_guarantee_came_first() -> None:
    fixture = AllocatorFixture(roles={"g": role_of(guarantee="cpus:6")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"))
    fixture.agent("m", "cpus:4")
    fixture.deal()
    assert first_reason(fixture).cause is Cause.GUARANTEE
    fixture.set_role("g", role_of(guarantee="cpus:4"))
    assert first_reason(fixture).cause is Cause.IN_USE, "the guarantee is met now"


def test_scarce_resources_are_for_others() -> None:
    fixture = AllocatorFixture(rules=Rules(hold_s=0))
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("gpus:1;mem:1GB"))
    fixture.agent("m", "cpus:4;gpus:1;mem:1GB")
    fixture.allocator.charges.charge(FrameworkId("g"), Role("g"), AgentId("m"), amount("mem:1GB"))
    assert fixture.deal() == []
    assert first_reason(fixture).cause is first_reason(fixture, "m").cause is Cause.SCARCE


def test_resources_are_earmarked_for_another() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:8"))
    fixture.agent("m", "cpus:4")
    pool, leaf = fixture.agents, fixture.tree.leaves
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:4"), 60.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    assert fixture.deal() == []
    assert first_reason(fixture).cause is first_reason(fixture, "m").cause is Cause.EARMARKED
    assert first_reason(fixture).about == "g"
    assert fixture.causes("g")[0] is Cause.MAKING_ROOM


def test_the_agent_is_reserved_for_a_needier_framework() -> None:
    fixture = AllocatorFixture(rules=Rules(hold_s=30.0))
    fixture.framework("f", want("cpus:1"))
    fixture.agent("m", "cpus:20")
    (grant,) = fixture.fill()
    fixture.framework("g", want("cpus:8"))
    fixture.deal()
    fixture.finish(grant, "cpus:1")
    assert fixture.deal() == []
    assert first_reason(fixture).cause is first_reason(fixture, "m").cause is Cause.KEPT
    assert first_reason(fixture, "m").detail == "reserved for g, which holds less"
    fixture.now += 31.0
    assert first_reason(fixture, "m").cause is Cause.ELIGIBLE


def test_its_offer_has_the_maximum_of_units() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1", most=2))
    fixture.agent("m", "cpus:4")
    fixture.deal()
    fixture.tree.refresh()
    assert first_reason(fixture).cause is Cause.IN_USE


def test_a_lone_framework_that_uses_everything_finds_nothing_free() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:1"))
    fixture.agent("m", "cpus:4")
    fixture.fill()
    assert first_reason(fixture).detail == (
        "it holds all of cpus:4: it waits for its own tasks to end;"
        " it is entitled to 1.000 of the cluster and has 1.000; it is next"
    )


def test_explaining_changes_nothing() -> None:
    def grants(asks: bool) -> list[str]:
        fixture = AllocatorFixture(rules=Rules(order="random", seed=5))
        for name in ("f", "g", "h"):
            fixture.framework(name, want("cpus:1;gpus:1", 3), want("cpus:2"))
        for number in range(5):
            fixture.agent(f"m{number}", "cpus:5;gpus:2")
        found = []
        for second in range(20):
            for grant in fixture.deal(budget=3):
                found.append(f"{grant.framework_id} {grant.agent_id} {grant.resources}")
                fixture.decline(grant, second % 3 * 2.0)
            for agent in [None, *(f"m{number}" for number in range(5))] if asks else ():
                for name in ("f", "g", "h"):
                    fixture.causes(name, agent)
            assert fixture.allocator.next_wakeup() is not None or second < 2
            fixture.wait(1.0)
        return found

    assert grants(asks=True) == grants(asks=False)


def test_reasons_do_not_grow_with_agents() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:8"))
    for number in range(300):
        fixture.agent(f"m{number}", "cpus:4")
    fixture.deal()
    (leaf,) = fixture.tree.leaves.values()
    assert not leaf.reasons._cases
    assert len(fixture.allocator._profiles) == 1
    assert first_reason(fixture).agents == 300


def beaten(policy: str = "drf", **roles: RoleSettings) -> PassedOver:
    """Return why `f`, with 2 of 9 cpus, lost 2 of 3 free cpus to `g`, which holds 4."""
    fixture = AllocatorFixture(make(policy, 1), roles=roles)
    fixture.framework("g", want("cpus:2"))
    fixture.agent("old", "cpus:4")
    fixture.fill()
    fixture.demand("g")
    fixture.allocator.suppress(FrameworkId("g"))
    fixture.framework("f", want("cpus:2"))
    fixture.agent("new", "cpus:2")
    fixture.fill()
    fixture.allocator.revive(FrameworkId("g"))
    fixture.demand("g", want("cpus:2"))
    fixture.agent("m", "cpus:3")
    assert fixture.takers() == ["g"]
    return first_reason(fixture)


def test_the_comparison_shows_weights() -> None:
    case = beaten(g=role_of(4))
    assert (case.cause, case.role, case.about) == (Cause.OUTRANKED, "f", "g")
    assert case.detail == (
        "agent m: went to g in role g; share over weight of role g 0.111 (weight 4),"
        " of role f 0.222 (weight 1)"
    )


def test_first_come_first_served_compares_no_shares() -> None:
    case = beaten("fifo")
    assert case.detail == "agent m: went to g in role g, which came first"


def test_other_measures_are_named() -> None:
    assert beaten("slots", g=role_of(4)).detail == (
        "agent m: went to g in role g; number of slots over weight of role g 0.500 (weight 4),"
        " of role f 1.000 (weight 1)"
    )
    assert "number of cpus over weight of role g 1.000" in (
        beaten("single-resource", g=role_of(4)).detail
    )


@pytest.mark.parametrize("policy", [name for name in NAMES if name != "drf"])
def test_entitlements_are_shown_only_where_they_decide(policy: str) -> None:
    fixture = AllocatorFixture(make(policy, 1))
    fixture.framework("f", want("cpus:1"))
    fixture.agent("big", "cpus:6")
    fixture.fill()
    case = first_reason(fixture)
    assert case.cause is Cause.IN_USE
    assert case.detail == "it holds all of cpus:6: it waits for its own tasks to end; it is next"


def test_resources_in_use_are_reported_as_in_use() -> None:
    fixture = AllocatorFixture()
    fixture.framework("g", want("cpus:3"))
    fixture.agent("m", "cpus:3;mem:4GB")
    fixture.fill()
    fixture.framework("f", want("cpus:2;mem:1GB"))
    assert fixture.deal() == []
    case = first_reason(fixture)
    assert (case.cause, case.agents) == (Cause.IN_USE, 1)
    assert case.detail == "agent m: needs cpus:2;mem:1GB, but only cpus:0 is free"


def test_only_resources_that_are_short_are_named() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:2;mem:8GB;ports:2"))
    fixture.agent("m", "cpus:3;mem:4GB;ports:[1-1]")
    assert fixture.deal() == []
    only = "mem:4GB, ports:[1]"
    assert first_reason(fixture).detail == (
        f"needs cpus:2;mem:8GB;ports:2, which fits nowhere: agent m, the largest, has only {only}"
    )
    fixture.agent("n", "cpus:2;mem:9GB;ports:[1-4]")
    fixture.deal()
    detail = f"needs cpus:2;mem:8GB;ports:2, but the agent has only {only} in all"
    assert fixture.allocator.queries.explain(F, AgentId("m"))[0].detail == detail


def test_agents_alike_are_counted_whenever_they_came() -> None:
    fixture = AllocatorFixture()
    fixture.agent("big", "cpus:8")
    fixture.framework("g", want("cpus:8", 1))
    assert fixture.takers() == ["g"]
    fixture.framework("f", want("cpus:8"))
    for name in ("m", "n", "o"):
        fixture.agent(name, "cpus:4")
        assert fixture.deal() == []
    cases = {each.cause: each.agents for each in fixture.allocator.queries.explain(F)}
    assert cases[Cause.DOES_NOT_FIT] == 3


def test_the_guarantee_that_came_first_is_named_with_its_role() -> None:
    fixture = AllocatorFixture(roles={"top": role_of(guarantee="cpus:6")})
    fixture.framework("f", want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=["top/below"])
    fixture.agent("m", "cpus:4")
    fixture.deal()
    assert (first_reason(fixture).cause, first_reason(fixture).about) == (Cause.GUARANTEE, "top")


def test_a_limit_is_named_after_it_was_removed() -> None:
    fixture = AllocatorFixture(roles={"f": role_of(limit="mem:1GB")})
    fixture.framework("f", want("mem:2GB"))
    fixture.agent("m", "mem:4GB")
    fixture.deal()
    fixture.set_role("f", role_of())
    details = {each.detail for each in fixture.allocator.queries.explain(FrameworkId("f"))}
    assert "agent m: role f holds mem:0MB of its limit of 1GB" in details
