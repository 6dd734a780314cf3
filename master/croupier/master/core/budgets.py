"""Budgets of roles: how much of each is used, and what follows from that.

Rule: the part that is used, and so the turn of a role, follows from its settings and the closed
steps of the usage ledger. The next master finds the same, so nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from croupier.master.allocator.node import Turn
from croupier.master.core.effects import Happened
from croupier.master.core.facts import BudgetReached
from croupier.master.core.state import State
from croupier.master.core.usage_buckets import Amounts, add_to
from croupier.model.budget import Budget, BudgetAction
from croupier.model.ids import Role

# The parts of a budget, in percent, at which there is an event.
LEVELS: Final = (100, 80)
_TURNS: Final = {
    BudgetAction.WARN: Turn.USUAL,
    BudgetAction.LOWEST: Turn.LAST,
    BudgetAction.BLOCK: Turn.NEVER,
}


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How much of a budget is used in its present period.

    Attributes:
        used_ppm: millionths, of the resource of which most is used.
        begin_ms: the begin of the period, in milliseconds since the epoch.
    """

    budget: Budget
    used_ppm: int
    begin_ms: int

    @property
    def level(self) -> int:
        """The highest of `LEVELS` that is reached; 0 if none is."""
        return next((level for level in LEVELS if self.used_ppm >= level * 10_000), 0)

    @property
    def turn(self) -> Turn:
        """When the role has its turn."""
        return _TURNS[self.budget.action] if self.level == LEVELS[0] else Turn.USUAL


def budget_status(state: State, role: Role, budget: Budget) -> BudgetStatus:
    """Return how much of a role's budget was used up to the last accounting step. O(buckets)."""
    begin_ms = budget.period.begin_ms(state.usage.closed_ms or 0)
    used: Amounts = {}
    for bucket in state.usage.history:
        if bucket.start_ms >= begin_ms:
            add_to(used, bucket.by_role.get(role, {}))
    return BudgetStatus(budget, budget.used_ppm(used), begin_ms)


def review_budgets(state: State) -> Iterator[Happened]:
    """Set the turns of all roles with budgets, and report the levels that they have reached."""
    known = state.allocator.queries.roles()
    for role in [each for each in state.budgets if each not in known or not known[each].budget]:
        del state.budgets[role]
        state.allocator.set_turn(role, Turn.USUAL)
    for role, settings in known.items():
        if settings.budget is None:
            continue
        before, status = state.budgets.get(role), budget_status(state, role, settings.budget)
        state.budgets[role] = status
        state.allocator.set_turn(role, status.turn, _told(role, status))
        is_same = before is not None and before.begin_ms == status.begin_ms
        if status.level > (before.level if before is not None and is_same else 0):
            yield Happened(BudgetReached(role, status.level, status.used_ppm, str(settings.budget)))


def _told(role: Role, status: BudgetStatus) -> str:
    period = status.budget.period.value
    return f"role {role} has used up its budget of {status.budget} for this {period}"
