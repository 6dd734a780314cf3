"""Limits and defaults of the protocols that more than one package goes by.

A limit of one noun stands beside it: of tasks in task.py, of ids in ids.py, of demands in
demand.py.
"""

from __future__ import annotations

from typing import Final

MAX_OFFERS_PER_CALL: Final = 1_000
MAX_TASKS_PER_ACCEPT: Final = 1_000
# Of a DECLINE, in characters.
MAX_REASON: Final = 256
# Of status updates, and of refused launches.
MAX_PER_REPORT: Final = 200

# The longest filter, failover timeout and offer lease that a framework may ask for.
MAX_WAIT_S: Final = 365 * 24 * 3600.0
DEFAULT_REFUSE_S: Final = 5.0
DEFAULT_FAILOVER_TIMEOUT_S: Final = 600.0

MIB: Final = 1024 * 1024
