"""The whole allocator in the hands of chance: nothing is lost, and nobody overlooked.

Every policy and order of agents; roles within roles with limits, guarantees and weights;
several roles and shapes for a framework. Every invariant holds after every step; when
nothing is left to look at, no willing framework could use what any agent has free.
"""

from __future__ import annotations

import pytest

from croupier.master.allocator import policies
from croupier.master.allocator.queue import ORDERS
from tests.harness.tossing import Tossing

WORLDS = 5 * len(policies.NAMES) * len(ORDERS)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_nothing_is_lost_and_nobody_overlooked(seed: int) -> None:
    tossing = Tossing(seed)
    for step in range(200):
        tossing.toss()
        tossing.allocator.check()
        if step % 3 == 0:
            tossing.settle()
            overlooked = list(tossing.overlooked())
            assert not overlooked, (tossing.name, step, overlooked)
    tossing.finish()
