"""Explanations: they count agents as they are, and name only frameworks that come first now."""

from __future__ import annotations

from collections import Counter

import pytest

from croupier.master.allocator import Cause
from croupier.model.ids import FrameworkId, Role
from tests.harness.effort import portion
from tests.harness.random_driver import RandomDriver
from tests.harness.reasons import reasons_of

WORLDS = 40
STEPS = 120


@pytest.mark.parametrize("seed", range(portion(WORLDS)))
def test_whoever_is_named_exists_and_is_ahead(seed: int) -> None:
    driver = RandomDriver(seed)
    for _ in range(4):
        driver.framework_comes()
    for _ in range(STEPS):
        driver.apply_random_event()
        driver.deal()
        for framework_id in driver.members:
            check(driver, framework_id)


def check(driver: RandomDriver, framework_id: FrameworkId) -> None:
    allocator = driver.allocator
    check_counts(driver, framework_id)
    for passed in reasons_of(allocator.queries, framework_id, None, driver.now):
        if not passed.rival:
            continue
        assert passed.rival in driver.members, passed
        if passed.cause in (Cause.OUTRANKED, Cause.GUARANTEE):
            order = list(allocator._tree.in_order())
            mine = allocator._tree.leaves[framework_id, passed.role]
            ahead = {leaf.framework_id for leaf in order[: order.index(mine)]}
            assert passed.rival in ahead, passed


def check_counts(driver: RandomDriver, framework_id: FrameworkId) -> None:
    """Check that no agent is counted twice, and each for the cause that is told of it alone."""
    queries, agents = driver.allocator.queries, driver.allocator._agents.agents
    alone = Counter(
        (each.role, each.cause)
        for agent_id, agent in agents.items()
        for each in reasons_of(queries, framework_id, agent_id, driver.now)
        # Room that is being made for it is told by itself.
        if agent.earmark is None
        or agent.earmark.leaf is not driver.allocator._tree.leaves.get((framework_id, each.role))
    )
    total = Counter[Role]()
    for each in reasons_of(queries, framework_id, None, driver.now):
        # One demand may fit nowhere, or have room made for it, while others wait for the agents.
        if "fits nowhere" not in each.detail and each.cause is not Cause.MAKING_ROOM:
            total[each.role] += each.agents
        if each.cause in (Cause.FILTERED, Cause.CONSTRAINT, Cause.KEPT, Cause.EARMARKED):
            assert each.agents == alone[each.role, each.cause], (each, alone)
    assert max(total.values(), default=0) <= len(agents)
