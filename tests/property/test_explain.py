"""An explanation names a framework only if it exists, and comes first now."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Cause
from croupier.model.ids import FrameworkId
from tests.harness.effort import portion
from tests.harness.random_driver import RandomDriver

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
    for passed in allocator.queries.explain(framework_id, None, driver.now):
        if not passed.rival:
            continue
        assert passed.rival in driver.members, passed
        if passed.cause in (Cause.OUTRANKED, Cause.GUARANTEE):
            order = list(allocator._tree.in_order())
            mine = allocator._tree.leaves[framework_id, passed.role]
            ahead = {leaf.framework_id for leaf in order[: order.index(mine)]}
            assert passed.rival in ahead, passed
