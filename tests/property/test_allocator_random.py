"""The whole allocator in the hands of chance: nothing is lost, and nobody overlooked.

Every policy and order of agents; roles within roles with limits, guarantees and weights;
several roles and shapes for a framework. Every invariant holds after every step; when
nothing is left to look at, no willing framework could use what any agent has free.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from croupier.master.allocator import policies
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.filters import Filters
from croupier.master.allocator.limit_waiters import LimitWaiters
from croupier.master.allocator.queue import ORDERS
from tests.harness.random_driver import Tossing

WORLDS = 12 * len(policies.NAMES) * len(ORDERS)


def toss(seed: int, steps: int = 200) -> Tossing:
    tossing = Tossing(seed)
    for step in range(steps):
        tossing.toss()
        tossing.allocator.check()
        if step % 3 == 0:
            tossing.settle()
            overlooked = list(tossing.overlooked())
            assert not overlooked, (tossing.name, step, overlooked)
    tossing.finish()
    return tossing


def toss_all() -> None:
    for seed in range(WORLDS):
        toss(seed)


@pytest.mark.parametrize("part", range(7))
def test_nothing_is_lost_and_nobody_overlooked(part: int) -> None:
    judged = grants = 0
    for seed in range(part, WORLDS, 7):
        tossing = toss(seed)
        judged, grants = judged + tossing.judged, grants + tossing.grants
    print(f"{grants} grants; {judged} times somebody could not use an agent that was settled")
    assert grants > 1000
    assert judged > 5000


def is_settled_at_once(_pool: AgentPool, _leaf: object) -> None:
    """Whatever was kept for the leaf stays unlooked at."""


def forgets(_filters: Filters, _leaf: object, _refused: object, _until: float) -> None:
    """No refusal is kept."""


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
def test_what_is_broken_is_found(
    what: object, name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what, name, broken)
    with pytest.raises(AssertionError):
        toss_all()
