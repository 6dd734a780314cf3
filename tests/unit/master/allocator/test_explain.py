"""Explanations: each cause, for all agents together and for one."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause, PassedOver, Rules
from croupier.master.allocator.policies import NAMES, make
from croupier.master.allocator.pooled_agent import Earmark
from croupier.model.ids import AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, want
from tests.harness.reasons import reasons_of

F = FrameworkId("f")


def first_reason(fixture: AllocatorFixture, agent: str | None = None) -> PassedOver:
    agent_id = None if agent is None else AgentId(agent)
    return reasons_of(fixture.allocator.queries, F, agent_id, fixture.now)[0]


def test_explanations_change_no_reservation() -> None:
    """One reservation has ended, and no pass has dropped it yet."""
    fixture = AllocatorFixture(rules=Rules(hold_s=30.0, scarce=frozenset()))
    fixture.framework("f", want("cpus:1"), roles=("*",))
    fixture.framework("large", want("cpus:4"), roles=("*",))
    agents = [AgentId(f"a{number}") for number in range(8)]
    for agent_id in agents:
        fixture.agent(agent_id, "cpus:4;mem:4GB")
        fixture.allocator.charges.charge(agent_id, [(F, Role("*"), amount("cpus:2"))])
        fixture.allocator.activate_agent(agent_id, False)
    for agent_id in agents[:2]:
        fixture.allocator.activate_agent(agent_id, True)
        assert not fixture.deal()
        fixture.now += 20.0
    reserved = fixture.tree.leaves[FrameworkId("large"), Role("*")].reservations._own
    before = dict(reserved.until), dict(reserved.resting)
    assert [until <= fixture.now for until in before[0].values()] == [True, False]
    assert Cause.KEPT in [
        each.cause for each in reasons_of(fixture.allocator.queries, F, None, 40.0)
    ]
    reasons_of(fixture.allocator.queries, F, agents[1], 40.0)
    assert (reserved.until, reserved.resting) == before


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


def test_agents_are_counted() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:8"))
    for number in range(300):
        fixture.agent(f"m{number}", "cpus:4")
    fixture.deal()
    assert len(fixture.allocator._profiles) == 1
    assert first_reason(fixture).agents == 300


def test_an_explanation_of_many_agents_lets_other_work_run() -> None:
    fixture = AllocatorFixture()
    fixture.framework("f", want("cpus:8"))
    for number in range(1200):
        fixture.agent(f"m{number}", "cpus:4")
    found = list(fixture.allocator.queries.explaining(F, None, fixture.now))
    assert found.count(None) == 2
    assert [each.agents for each in found if each is not None] == [1200]


@pytest.mark.parametrize("policy", [name for name in NAMES if name != "drf"])
def test_entitlements_are_shown_only_where_they_decide(policy: str) -> None:
    fixture = AllocatorFixture(make(policy, 1))
    fixture.framework("f", want("cpus:1"))
    fixture.agent("big", "cpus:6")
    fixture.fill()
    case = first_reason(fixture)
    assert case.cause is Cause.IN_USE
    assert case.detail == "it holds all of cpus:6: it waits for its own tasks to end; it is next"


def test_agents_alike_are_counted_whenever_they_came() -> None:
    fixture = AllocatorFixture()
    fixture.agent("big", "cpus:8")
    fixture.framework("g", want("cpus:8", 1))
    assert fixture.takers() == ["g"]
    fixture.framework("f", want("cpus:8"))
    for name in ("m", "n", "o"):
        fixture.agent(name, "cpus:4")
        assert fixture.deal() == []
    cases = {each.cause: each.agents for each in reasons_of(fixture.allocator.queries, F)}
    assert cases[Cause.DOES_NOT_FIT] == 3
