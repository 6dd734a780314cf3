"""Orders in which agents are visited."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Rules
from croupier.master.allocator.queue import ORDERS, make_queue
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from tests.harness.allocator_fixture import AllocatorFixture, amount

NONE: frozenset[str] = frozenset()


def dealing_in(order: str, seed: int = 0) -> AllocatorFixture:
    return AllocatorFixture(rules=Rules(hold_s=0, order=order, seed=seed))


def order_of(order: str, seed: int = 0) -> list[str]:
    """Return the order in which twenty equal agents are dealt whole."""
    fixture = dealing_in(order, seed)
    fixture.framework("f")
    for number in range(20):
        fixture.agent(f"m{number}", "cpus:1")
    return [str(grant.agent_id) for grant in fixture.deal()]


def test_random_order_depends_on_the_seed() -> None:
    assert order_of("random", 1) == order_of("random", 1)
    assert order_of("random", 1) != order_of("random", 2)
    assert sorted(order_of("random", 1)) == sorted(order_of("arrival"))


def test_counting_waiting_agents_draws_no_numbers() -> None:
    """Reading the state changes no decision."""

    def agents(watched: bool) -> list[str]:
        fixture = dealing_in("random")
        for number in range(10):
            fixture.agent(f"m{number}", "cpus:1")
        fixture.framework("f")
        if watched:
            assert fixture.allocator.dirty_agents == 10
        fixture.agent("late", "cpus:1")
        return [str(grant.agent_id) for grant in fixture.deal()]

    assert agents(watched=True) == agents(watched=False)


@pytest.mark.parametrize("order", ORDERS)
def test_the_end_of_a_sweep_keeps_the_order_of_the_agents_that_changed(order: str) -> None:
    def taken(*, is_ended: bool) -> list[AgentId | None]:
        queue = make_queue(order, 1, frozenset({"gpus"}))
        for number in range(8):
            scarce = f";gpus:{number % 2}" if number % 2 else ""
            queue.put(AgentId(f"m{number}"), amount(f"cpus:{number + 1}{scarce}"))
        changed = {AgentId(f"m{number}") for number in (1, 2, 5, 6)}
        if is_ended:
            queue.keep(changed)
            assert len(queue) == len(changed)
        found = iter(queue.take, None)
        return [each for each in found if each in changed]

    assert taken(is_ended=True) == taken(is_ended=False)


@pytest.mark.parametrize("order", ["pack", "spread"])
def test_sizes_are_compared_by_one_measure(order: str) -> None:
    """The largest agent is known only once all were added."""
    queue = make_queue(order, 0, NONE)
    sizes = {"m": "cpus:4", "tiny": "cpus:1", "huge": "cpus:400;mem:1GB", "big": "cpus:100"}
    for name, size in sizes.items():
        queue.put(AgentId(name), amount(size))
    taken = [queue.take() for _ in sizes]
    expected = ["tiny", "m", "big", "huge"]
    assert taken == (expected if order == "pack" else expected[::-1])


@pytest.mark.parametrize("order", ORDERS)
def test_agents_with_scarce_resources_come_last(order: str) -> None:
    queue = make_queue(order, 0, frozenset({"gpus"}))
    for name, size in (("g", "cpus:2;gpus:1"), ("a", "cpus:1"), ("z", "cpus:9")):
        queue.put(AgentId(name), amount(size))
    assert [queue.take() for _ in range(3)][2] == "g"


@pytest.mark.parametrize("order", ORDERS)
def test_an_agent_waits_once_and_can_be_discarded(order: str) -> None:
    queue = make_queue(order, 0, NONE)
    for _ in range(300):
        queue.put(AgentId("a"), amount("cpus:2"))
        queue.put(AgentId("b"), amount("cpus:1"))
    assert len(queue) == 2
    queue.discard(AgentId("a"))
    assert [queue.take(), queue.take()] == ["b", None]
    queue.put(AgentId("a"), amount("cpus:2"))
    queue.clear()
    assert len(queue) == 0
    assert queue.take() is None


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not an order of agents"):
        make_queue("by-name", 0, NONE)


@pytest.mark.parametrize("order", ORDERS)
def test_an_inactive_agent_is_not_dealt(order: str) -> None:
    fixture = dealing_in(order)
    fixture.agent("m", "cpus:1")
    fixture.framework("f")
    fixture.allocator.activate_agent(AgentId("m"), False)
    assert fixture.deal() == []
    fixture.allocator.activate_agent(AgentId("m"), True)
    assert fixture.takers() == ["f"]
