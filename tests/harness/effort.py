"""How many random runs a test makes.

Numbers in tests are those of `make test-long`. `make test` makes a part of those runs, for every
minute of it is waited for; the runs are the first ones of the long test.
"""

from __future__ import annotations

import os

# Percent of the runs: TEST_EFFORT=100 makes all, and more makes further ones.
EFFORT = int(os.environ.get("TEST_EFFORT", "20"))


def portion(runs: int) -> int:
    """Return the part of `runs` to make, or of the checks to expect from them; at least 1."""
    return max(1, runs * EFFORT // 100)
