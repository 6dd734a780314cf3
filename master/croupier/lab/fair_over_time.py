"""Rules that remember usage, on the engine: a half-life, Slurm's fair tree, and Karma.

Each rule is about roles of one level and equal weight. Every five minutes it learns what each role
used since the last time. Within a role the engine's order holds.
"""

from __future__ import annotations

from typing import Final

from croupier.lab.week_runs import STEP_MS, Rule, Used
from croupier.lab.weeks import DAY_S
from croupier.master.allocator import Allocator
from croupier.master.allocator.node import Level, Node, RoleNode
from croupier.master.allocator.past_use import WHOLE
from croupier.master.allocator.policies import Drf, Key
from croupier.master.core.past_use import past_use, weight_of_age
from croupier.master.core.usage_buckets import (
    HOUR_MS,
    Account,
    Amounts,
    Sums,
    UsageHistory,
    dominant_ms,
)
from croupier.model.roles import RoleSettings

# After this time, the rules that forget have forgotten half of the past use.
HALF_LIFE_MS: Final = DAY_S * 1000


class HalfLife(Rule):
    """The engine with a half-life: past use changes the weights; see `allocator.past_use`."""

    name = "half-life"

    def __init__(self) -> None:
        super().__init__()
        self.settings = RoleSettings(half_life_ms=HALF_LIFE_MS)
        self._history = UsageHistory()

    def learn(self, allocator: Allocator, used: Used, now_ms: int, /) -> None:
        """See `Rule`."""
        bucket = self._history.bucket(now_ms - STEP_MS // 2, HOUR_MS)
        for role, amounts in used.items():
            bucket.add(Account(role, role), Sums(dict(amounts)))
        bucket.add_capacity(_capacity(allocator), STEP_MS)
        allocator.set_past(past_use(self._history, allocator.queries, now_ms))


class _ByRank(Drf):
    """Roles by a rank, which changes once in a step; equal ones, and all else, as in DRF."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[str, int] = {}

    def key(self, node: Node, level: Level) -> Key:
        """Put the rank first."""
        rank = self.ranks.get(node.name, 0) if isinstance(node, RoleNode) else 0
        return (self.tier(node), rank, *super().key(node, level))

    def tier(self, _node: Node) -> int:
        """Return 0 for a node that comes before all of tier 1, whatever their ranks."""
        return 1


class FairTree(Rule):
    """`PriorityFlags=FAIR_TREE` of Slurm: the role with the least decayed use comes first.

    What a role holds counts once it is accounted, so one role at a time gets all that is free.
    """

    name = "fair tree"

    def __init__(self) -> None:
        super().__init__()
        self.policy = self._order = _ByRank()
        self._kept = weight_of_age(STEP_MS, HALF_LIFE_MS)

    def learn(self, allocator: Allocator, used: Used, _now_ms: int, /) -> None:
        """See `Rule`."""
        ranks, capacity = self._order.ranks, _capacity(allocator)
        for role, amounts in used.items():
            ms = dominant_ms(amounts, capacity, STEP_MS)
            ranks[role] = ranks.get(role, 0) * self._kept // WHOLE + ms
            allocator.set_role(role, self.settings)


class _ByCredits(_ByRank):
    def __init__(self) -> None:
        super().__init__()
        self.guaranteed_ppm = 0

    def tier(self, node: Node) -> int:
        """Put roles first that hold less than they are guaranteed."""
        if not isinstance(node, RoleNode):
            return 1
        return int(self._totals.share(node.held) * 1_000_000 >= self.guaranteed_ppm)


class Karma(Rule):
    """Credits (Vuppalapati et al., OSDI 2023): those who leave resources to others come first.

    Half of its equal share is guaranteed to each role. A role earns a credit for each part of it
    that others borrow, and all divide those for the other half. It pays one for each part that it
    uses beyond its guarantee. Of the roles beyond theirs, the one with most credits comes first.
    """

    name = "Karma"

    def __init__(self) -> None:
        super().__init__()
        self.policy = self._order = _ByCredits()

    def learn(self, allocator: Allocator, used: Used, _now_ms: int, /) -> None:
        """See `Rule`."""
        ranks, capacity = self._order.ranks, _capacity(allocator)
        guaranteed = STEP_MS // (2 * len(used))
        self._order.guaranteed_ppm = 500_000 // len(used)
        parts = {role: dominant_ms(amounts, capacity, STEP_MS) for role, amounts in used.items()}
        given = {role: max(0, guaranteed - part) for role, part in parts.items()}
        borrowed = {role: max(0, part - guaranteed) for role, part in parts.items()}
        # What nobody guarantees is borrowed last, so that lenders earn first.
        lent = min(sum(given.values()), sum(borrowed.values()))
        for role in used:
            earned = lent * given[role] // max(sum(given.values()), 1)
            ranks[role] = ranks.get(role, 0) + borrowed[role] - earned - guaranteed
            allocator.set_role(role, self.settings)


RULES: Final = (Rule, HalfLife, FairTree, Karma)


def _capacity(allocator: Allocator) -> Amounts:
    return {name: milli * STEP_MS for name, milli in allocator.queries.total.items()}
