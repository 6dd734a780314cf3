"""Why: each cause, of all agents together and of one, in words and numbers."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, PassedOver, Rules
from croupier.master.allocator.agent_pool import Earmark
from croupier.master.allocator.policies import NAMES, make
from croupier.model.attributes import equals
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import Dealing, amount, role_of, want

F = FrameworkId("f")


def told(dealing: Dealing, agent: str | None = None) -> PassedOver:
    """What is said first of framework `f`."""
    agent_id = None if agent is None else AgentId(agent)
    return dealing.allocator.queries.explain(F, agent_id, dealing.now)[0]


@pytest.mark.parametrize("agent", [None, "m"])
class TestWhateverTheAgent:
    def make(self, *demands: object, **roles: object) -> Dealing:
        dealing = Dealing(roles=roles)  # type: ignore[arg-type]
        dealing.framework("f", *demands)  # type: ignore[arg-type]
        dealing.agent("m", "cpus:4")
        return dealing

    def test_it_is_not_connected(self, agent: str | None) -> None:
        dealing = self.make()
        dealing.allocator.connect(F, False)
        assert told(dealing, agent).cause is Cause.DISCONNECTED

    def test_it_is_suppressed(self, agent: str | None) -> None:
        dealing = self.make()
        dealing.allocator.suppress(F)
        assert told(dealing, agent).cause is Cause.SUPPRESSED
        assert told(dealing, agent).detail == "the framework asked for no offers"

    def test_its_demand_is_met(self, agent: str | None) -> None:
        dealing = self.make(want("cpus:1", 2))
        dealing.fill()
        case = told(dealing, agent)
        assert (case.cause, case.detail) == (Cause.NO_DEMAND, "it wants 0 <cpus:1>")

    def test_it_has_no_demand_in_this_role(self, agent: str | None) -> None:
        dealing = Dealing()
        dealing.framework("f", want("cpus:1"), roles=["a", "b"])
        dealing.agent("m", "cpus:4")
        agent_id = None if agent is None else AgentId(agent)
        cases = {case.role: case for case in dealing.allocator.queries.explain(F, agent_id)}
        assert cases[Role("b")].cause is Cause.NO_DEMAND
        assert cases[Role("b")].detail == "it wants nothing in this role"

    def test_a_limit_leaves_it_nothing(self, agent: str | None) -> None:
        dealing = self.make(want("cpus:1"), f=role_of(limit="mem:1GB;cpus:2"))
        dealing.fill()
        case = told(dealing, agent)
        assert (case.cause, case.about) == (Cause.LIMIT, "f")
        assert case.detail == "role f holds cpus:2 of its limit of 2"

    def test_the_limit_is_named_that_is_too_small_for_a_unit(self, agent: str | None) -> None:
        dealing = self.make(want("cpus:2"), f=role_of(limit="mem:1GB;cpus:3"))
        dealing.fill()
        assert told(dealing, agent).detail == "role f holds cpus:2 of its limit of 3"


def test_there_are_no_agents() -> None:
    dealing = Dealing()
    dealing.framework("f")
    assert told(dealing).cause is Cause.NO_AGENTS


def test_the_agent_is_away() -> None:
    dealing = Dealing()
    dealing.framework("f")
    dealing.agent("m", "cpus:4")
    dealing.allocator.activate_agent(AgentId("m"), False)
    assert told(dealing, "m").cause is Cause.AGENT_AWAY


def test_nothing_keeps_it_from_the_agent() -> None:
    dealing = Dealing()
    dealing.framework("f")
    dealing.agent("m", "cpus:4")
    case = told(dealing, "m")
    assert (case.cause, case.about) == (Cause.ELIGIBLE, "m")


def test_it_refused_the_agent_for_a_time() -> None:
    dealing = Dealing()
    dealing.framework("f")
    dealing.agent("m", "cpus:4")
    dealing.decline(dealing.deal()[0], 60.0)
    assert dealing.deal() == []
    dealing.wait(10.0)
    assert told(dealing).cause is told(dealing, "m").cause is Cause.FILTERED
    assert told(dealing, "m").detail == "the framework refused it for another 50.0 s"


def test_it_refused_the_agent_for_a_round() -> None:
    dealing = Dealing()
    dealing.framework("f")
    dealing.agent("m", "cpus:4")
    (grant,) = dealing.deal()
    dealing.framework("g", want("cpus:1", 1))
    dealing.decline(grant, 0.0)
    assert dealing.takers() == ["g"]
    case = told(dealing, "m")
    assert case.cause is told(dealing).cause is Cause.FILTERED
    assert case.detail == "the framework refused it, and others are asked first"


def test_a_shape_does_not_fit() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:8"))
    dealing.agent("m", "cpus:4")
    dealing.agent("n", "cpus:3")
    assert dealing.deal() == []
    case = told(dealing)
    assert (case.cause, case.agents) == (Cause.DOES_NOT_FIT, 2)
    assert case.detail == "agent n: needs cpus:8, but the agent has only cpus:3 in all"
    assert told(dealing, "m").cause is Cause.DOES_NOT_FIT


def test_what_is_left_is_not_useful() -> None:
    dealing = Dealing()
    dealing.framework("f")
    dealing.agent("m", "cpus:0.001;mem:1MB")
    assert dealing.deal() == []
    assert told(dealing).cause is told(dealing, "m").cause is Cause.NOT_USEFUL


def test_a_constraint_does_not_hold() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1", None, equals("zone", "a")))
    dealing.agent("m", "cpus:4", zone="b")
    assert dealing.deal() == []
    assert told(dealing).detail == "agent m: does not pass zone equals a"
    assert told(dealing, "m").cause is Cause.CONSTRAINT


def test_one_shape_is_at_a_limit_and_the_other_does_not_fit() -> None:
    dealing = Dealing(roles={"r": role_of(limit="cpus:0")})
    dealing.framework("f", want("cpus:1"), want("mem:1GB"), roles=["r"])
    dealing.agent("m", "cpus:4")
    assert dealing.deal() == []
    assert told(dealing, "m").cause is Cause.LIMIT
    assert told(dealing, "m").about == "r"


def test_others_came_first() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    dealing.agent("big", "cpus:6")
    dealing.fill()
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:4")
    assert dealing.takers() == ["g"]
    case = told(dealing)
    assert (case.cause, case.about) == (Cause.OUTRANKED, "g")
    assert case.detail == (
        "g in role g was dealt to last; it is entitled to 0.500 of the cluster and has 0.600;"
        " 1 stand before it"
    )


def test_others_came_first_to_an_agent_that_was_looked_at() -> None:
    dealing = Dealing()
    dealing.framework("g", want("cpus:1"))
    dealing.framework("f", want("cpus:5"))
    dealing.agent("m", "cpus:5")
    assert dealing.takers() == ["g"]
    assert told(dealing).cause is Cause.OUTRANKED
    assert told(dealing).detail == (
        "agent m: went to g in role g; share of role g 0.000, of role f 0.000"
    )


def test_a_guarantee_came_first() -> None:
    dealing = Dealing(roles={"g": role_of(guarantee="cpus:4")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"))
    dealing.agent("m", "cpus:4")
    dealing.deal()
    assert told(dealing).cause is Cause.GUARANTEE


def test_what_is_scarce_is_for_others() -> None:
    dealing = Dealing(rules=Rules(hold_s=0))
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("gpus:1;mem:1GB"))
    dealing.agent("m", "cpus:4;gpus:1;mem:1GB")
    dealing.allocator.charges.charge(FrameworkId("g"), Role("g"), AgentId("m"), amount("mem:1GB"))
    assert dealing.deal() == []
    assert told(dealing).cause is told(dealing, "m").cause is Cause.SCARCE


def test_room_was_made_for_another() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:8"))
    dealing.agent("m", "cpus:4")
    pool, leaf = dealing.agents, dealing.tree.leaves
    mark = Earmark(leaf[FrameworkId("g"), Role("g")], amount("cpus:4"), 60.0)
    pool.earmark(pool.agents[AgentId("m")], mark)
    assert dealing.deal() == []
    assert told(dealing).cause is told(dealing, "m").cause is Cause.EARMARKED
    assert told(dealing).about == "g"
    assert dealing.causes("g")[0] is Cause.MAKING_ROOM


def test_the_agent_is_kept_for_a_needier_framework() -> None:
    dealing = Dealing(rules=Rules(hold_s=30.0))
    dealing.framework("f", want("cpus:1"))
    dealing.agent("m", "cpus:20")
    (grant,) = dealing.fill()
    dealing.framework("g", want("cpus:8"))
    dealing.deal()
    dealing.finish(grant, "cpus:1")
    assert dealing.deal() == []
    assert told(dealing).cause is told(dealing, "m").cause is Cause.KEPT
    assert told(dealing, "m").detail == "kept for g, which holds less"
    dealing.now += 31.0
    assert told(dealing, "m").cause is Cause.ELIGIBLE


def test_its_offer_is_as_large_as_it_takes() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1", most=2))
    dealing.agent("m", "cpus:4")
    dealing.deal()
    dealing.tree.refresh()
    assert told(dealing).cause is Cause.IN_USE


def test_alone_and_all_in_use_nothing_is_free() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:1"))
    dealing.agent("m", "cpus:4")
    dealing.fill()
    assert told(dealing).detail.startswith("nothing is free; it is entitled to 1.000")


def test_to_ask_why_changes_nothing() -> None:
    def grants(asks: bool) -> list[str]:
        dealing = Dealing(rules=Rules(order="random", seed=5))
        for name in ("f", "g", "h"):
            dealing.framework(name, want("cpus:1;gpus:1", 3), want("cpus:2"))
        for number in range(5):
            dealing.agent(f"m{number}", "cpus:5;gpus:2")
        found = []
        for second in range(20):
            for grant in dealing.deal(budget=3):
                found.append(f"{grant.framework_id} {grant.agent_id} {grant.resources}")
                dealing.decline(grant, second % 3 * 2.0)
            for agent in [None, *(f"m{number}" for number in range(5))] if asks else ():
                for name in ("f", "g", "h"):
                    dealing.causes(name, agent)
            assert dealing.allocator.next_wakeup() is not None or second < 2
            dealing.wait(1.0)
        return found

    assert grants(asks=True) == grants(asks=False)


def test_what_is_known_does_not_grow_with_agents() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:8"))
    for number in range(300):
        dealing.agent(f"m{number}", "cpus:4")
    dealing.deal()
    (leaf,) = dealing.tree.leaves.values()
    assert len(leaf.reasons._cases) == 1
    assert told(dealing).agents == 300


def beaten(policy: str = "drf", **roles: RoleSettings) -> PassedOver:
    """What is told of `f`, which holds 2 of 9 cpus, when 2 of 3 go to `g`, which holds 4."""
    dealing = Dealing(make(policy, 1), roles=roles)
    dealing.framework("g", want("cpus:2"))
    dealing.agent("old", "cpus:4")
    dealing.fill()
    dealing.demand("g")
    dealing.allocator.suppress(FrameworkId("g"))
    dealing.framework("f", want("cpus:2"))
    dealing.agent("new", "cpus:2")
    dealing.fill()
    dealing.allocator.revive(FrameworkId("g"))
    dealing.demand("g", want("cpus:2"))
    dealing.agent("m", "cpus:3")
    assert dealing.takers() == ["g"]
    return told(dealing)


def test_weights_are_part_of_what_is_compared() -> None:
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
def test_no_entitlement_is_told_where_none_decides(policy: str) -> None:
    dealing = Dealing(make(policy, 1))
    dealing.framework("f", want("cpus:1"))
    dealing.agent("big", "cpus:6")
    dealing.fill()
    case = told(dealing)
    assert case.cause is Cause.IN_USE
    assert case.detail == "nothing is free; it is next"


def test_what_is_in_use_is_no_matter_of_size() -> None:
    dealing = Dealing()
    dealing.framework("g", want("cpus:3"))
    dealing.agent("m", "cpus:3;mem:4GB")
    dealing.fill()
    dealing.framework("f", want("cpus:2;mem:1GB"))
    assert dealing.deal() == []
    case = told(dealing)
    assert (case.cause, case.agents) == (Cause.IN_USE, 1)
    assert case.detail == "agent m: needs cpus:2;mem:1GB, but only cpus:0 is free"


def test_only_what_is_short_is_named() -> None:
    dealing = Dealing()
    dealing.framework("f", want("cpus:2;mem:8GB;ports:2"))
    dealing.agent("m", "cpus:3;mem:4GB;ports:[1-1]")
    assert dealing.deal() == []
    assert told(dealing).detail == (
        "agent m: needs cpus:2;mem:8GB;ports:2, but the agent has only mem:4GB, ports:[1] in all"
    )


def test_the_guarantee_that_came_first_is_named_with_its_role() -> None:
    dealing = Dealing(roles={"top": role_of(guarantee="cpus:4")})
    dealing.framework("f", want("cpus:1"))
    dealing.framework("g", want("cpus:1"), roles=["top/below"])
    dealing.agent("m", "cpus:4")
    dealing.deal()
    assert (told(dealing).cause, told(dealing).about) == (Cause.GUARANTEE, "top")


def test_a_limit_is_named_after_it_was_removed() -> None:
    dealing = Dealing(roles={"f": role_of(limit="mem:1GB")})
    dealing.framework("f", want("mem:2GB"))
    dealing.agent("m", "mem:4GB")
    dealing.deal()
    dealing.set_role("f", role_of())
    details = {each.detail for each in dealing.allocator.queries.explain(FrameworkId("f"))}
    assert "agent m: role f holds mem:0MB of its limit of 1GB" in details
