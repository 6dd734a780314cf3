"""kill -9 of the only master under load.

`python -m tests.bench.master_killed` does it with 1,000 tasks and 100 ACCEPTs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.master_killed import measure

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

# About 2 s on an idle machine: half of it is the start of the master, 1 s of processor time, and
# half the pause of the agent before its next attempt. Beside other tests the start takes many times
# as long, and pauses grow with the outage, up to 10 s.
OFFERING_S = 30.0


async def test_every_answered_call_took_effect_once(tmp_path: Path) -> None:
    """Every ACCEPT that was answered before the kill took effect once, for a plain framework."""
    outcome = await measure(tmp_path / "cluster", tasks=150, accepts=50)
    assert outcome.violations == []
    assert (outcome.ran, outcome.twice) == (200, 0)
    assert outcome.last_second > 0
    assert outcome.offering < OFFERING_S
