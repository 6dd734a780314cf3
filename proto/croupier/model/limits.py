"""Limits and defaults of the protocols that several packages use.

The limits of one noun stand beside it: in task_checks.py, ids.py and demand.py.
"""

from __future__ import annotations

from typing import Final

MAX_OFFERS_PER_CALL: Final = 1_000
MAX_TASKS_PER_ACCEPT: Final = 1_000
MAX_TASKS_PER_SUBMIT: Final = 1_000
# Tasks that one RECONCILE or ACKNOWLEDGE names, and holds that one RELEASE names.
MAX_NAMED: Final = 10_000
# Characters of a DECLINE's reason.
MAX_REASON: Final = 256
# Status updates, or refused launches, in one report.
MAX_PER_REPORT: Final = 200

# The longest filter, failover timeout and offer lease that a framework may ask for.
MAX_WAIT_S: Final = 365 * 24 * 3600.0
DEFAULT_REFUSE_S: Final = 5.0
DEFAULT_FAILOVER_TIMEOUT_S: Final = 600.0

MIB: Final = 1024 * 1024
