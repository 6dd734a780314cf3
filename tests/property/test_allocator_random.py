"""The allocator under random events: resources are conserved, no framework is overlooked.

The runs cover every policy and agent order, nested roles with limits, guarantees and weights, and
frameworks with several roles and shapes. Every invariant holds after every step. Once no agent is
dirty, no willing framework could use free resources of any agent.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from croupier.master.allocator import policies
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.filters import Filters
from croupier.master.allocator.limits import LimitWaiters
from croupier.master.allocator.queue import ORDERS
from tests.harness.allocator_invariants import check_allocator
from tests.harness.effort import portion
from tests.harness.random_driver import RandomDriver

COMBINATIONS = len(policies.NAMES) * len(ORDERS)
WORLDS = 12 * COMBINATIONS
# Finds broken parts that few worlds find; a wrong number only costs time.
FIRST_WORLD = 40


def drive(seed: int, steps: int = 200) -> RandomDriver:
    driver = RandomDriver(seed)
    for step in range(steps):
        driver.apply_random_event()
        check_allocator(driver.allocator)
        if step % 3 == 0:
            driver.settle()
            overlooked = list(driver.overlooked())
            assert not overlooked, (driver.name, step, overlooked)
    driver.finish()
    return driver


def drive_all() -> None:
    """Drive all worlds, first those that find broken parts soon."""
    for seed in (*range(FIRST_WORLD, WORLDS), *range(FIRST_WORLD)):
        drive(seed)


@pytest.mark.parametrize("part", range(7))
def test_resources_are_conserved_and_no_framework_is_overlooked(part: int) -> None:
    judged = grants = 0
    for seed in range(part, portion(12) * COMBINATIONS, 7):
        driver = drive(seed)
        judged, grants = judged + driver.judged, grants + driver.grants
    print(f"{grants} grants; {judged} times a framework could not use an agent that was clean")
    assert grants > portion(1000)
    assert judged > portion(5000)


def is_settled_at_once(_pool: AgentPool, _leaf: object) -> None:
    """Leave agents that were reserved for the leaf clean."""


def forgets(_filters: Filters, _leaf: object, _refused: object, _until: float) -> None:
    """Keep no refusal."""


@pytest.mark.parametrize(
    ("what", "name", "broken"),
    [
        (LimitWaiters, "_admit", lambda _waiters, _leaf: False),
        (AgentPool, "release_reservations", is_settled_at_once),
        (AgentPool, "recheck_scarce", is_settled_at_once),
        (AgentPool, "mark_all_dirty", lambda _pool, _leaf=None: None),
        (Filters, "add", forgets),
        (Eligibility, "_unmet", lambda _visit, _want: None),
    ],
)
def test_a_broken_part_is_detected(
    what: object, name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what, name, broken)
    with pytest.raises(AssertionError):
        drive_all()
