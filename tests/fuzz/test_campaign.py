"""A short run against real daemons; `make fuzz` runs longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import Campaign
from tests.fuzz.contract import all_methods

SEED, SECONDS = 12, 3.0
# Another process may have the processor: `make fuzz` judges steps and latencies.
LONGEST_STEP_S = 0.5

pytestmark = pytest.mark.e2e


async def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, SEED, SECONDS, longest_step_s=LONGEST_STEP_S)
    report = await campaign.run(judges_latency=False)
    assert [str(finding) for finding in report.findings] == []
    # Each attack has sent something, and the honest framework has worked meanwhile.
    assert {method.path for method in all_methods()} <= report.sent.keys()
    assert all(report.sent.values())
    assert report.tasks > 0
