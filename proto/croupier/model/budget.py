"""A budget of a role: resources times hours in a period, and what happens once it is used up.

`AMOUNTS/PERIOD/ACTION`, such as `cpus:1000;mem:2TB/month/block`, is its text: 1000 hours of a cpu
and of 2 TB together, in each month.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.resources import check_names, check_spelling, in_order
from croupier.model.scalar import check_milli, format_scalar, parse_pairs, parse_scalar

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
# The most that is told of a budget, which may be tiny: messages have 64 bits for it.
MAX_PPM: Final = 2**53
# The first Monday since the epoch was its fifth day.
_MONDAY_MS: Final = 4 * DAY_MS


class BudgetPeriod(Enum):
    """The period in which a budget counts; all begin at their time in UTC, and weeks on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def begin_ms(self, at_ms: int) -> int:
        """Return the begin of the period of a time, in milliseconds since the epoch."""
        match self:
            case BudgetPeriod.HOUR:
                return at_ms // HOUR_MS * HOUR_MS
            case BudgetPeriod.DAY:
                return at_ms // DAY_MS * DAY_MS
            case BudgetPeriod.WEEK:
                length_ms = 7 * DAY_MS
                return (at_ms - _MONDAY_MS) // length_ms * length_ms + _MONDAY_MS
            case BudgetPeriod.MONTH:
                day = at_ms // DAY_MS
                return (day - _day_of_month(day)) * DAY_MS


class BudgetAction(Enum):
    """What happens once a budget is used up.

    WARN: there is an event, as for each action. LOWEST: the role is served only what no other
    role wants. BLOCK: the role is dealt nothing. Running tasks run on in any case.
    """

    WARN = "warn"
    LOWEST = "lowest"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget of a role and of all roles below it.

    `amounts`: thousandths of each scalar, times hours.
    """

    amounts: Mapping[str, int] = field(default_factory=dict)
    period: BudgetPeriod = BudgetPeriod.MONTH
    action: BudgetAction = BudgetAction.WARN

    def check(self) -> None:
        """Raise InvalidRequest if it has no amount, or an illegal name or amount."""
        if not self.amounts or not all(self.amounts.values()):
            raise InvalidRequest("a budget needs amounts above 0, such as cpus:1000")
        check_names(list(self.amounts))
        for name, milli in self.amounts.items():
            check_milli(name, milli)

    def used_ppm(self, used: Mapping[str, int]) -> int:
        """Return the used part in millionths, of the resource of which most is used.

        `used` are thousandths of each scalar, times milliseconds. At most `MAX_PPM`.
        """
        parts = (
            used.get(name, 0) * 1_000_000 // (milli * HOUR_MS)
            for name, milli in self.amounts.items()
        )
        return min(max(parts, default=0), MAX_PPM)

    def __str__(self) -> str:
        amounts = ";".join(
            f"{name}:{format_scalar(name, self.amounts[name])}" for name in in_order(self.amounts)
        )
        return f"{amounts}/{self.period.value}/{self.action.value}"


def _day_of_month(day: int) -> int:
    """Return the day of the month, from 0, of a day since the epoch.

    Years are counted from March, so that a leap day is the last of its year: see Hinnant,
    "chrono-compatible low-level date algorithms".
    """
    of_era = (day + 719_468) % 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return of_year - (153 * month + 2) // 5


def parse_budget(text: str) -> Budget | None:
    """Read `AMOUNTS/PERIOD/ACTION`; without an action it is `warn`, and `none` is no budget.

    Raises InvalidRequest if `text` has another form.
    """
    if text == "none":
        return None
    amounts, _, rest = text.partition("/")
    period, _, action = rest.partition("/")
    pairs = parse_pairs(amounts, "NAME:AMOUNT (example: cpus:1000;mem:2TB)")
    check_spelling(pairs)
    try:
        budget = Budget(
            {name: parse_scalar(name, value) for name, value in pairs.items()},
            BudgetPeriod(period),
            BudgetAction(action or "warn"),
        )
    except ValueError:
        raise InvalidRequest(
            f"{text[:80]!r} is no budget: AMOUNTS/PERIOD/ACTION, with a period of hour, day, week"
            " or month and the action warn, lowest or block (example: cpus:1000/month/block)"
        ) from None
    budget.check()
    return budget
