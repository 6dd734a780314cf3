"""What operators and masters both know of reservations of agents."""

from __future__ import annotations

from typing import Final

DAY_MS: Final = 24 * 3600 * 1000
# After which time a reservation may begin again, in milliseconds; 0: it does not.
PERIODS: Final = {"": 0, "day": DAY_MS, "week": 7 * DAY_MS}
# How long before a reservation begins it binds others, unless its maker says otherwise.
DEFAULT_NOTICE: Final = "1h"
