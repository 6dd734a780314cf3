"""Submitted tasks survive kill -9 of the only master, and each runs once.

`python -m tests.bench.submissions_killed` does it with 1,000 tasks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.submissions_killed import measure

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TASKS = 300


async def test_every_submitted_task_runs_once(tmp_path: Path) -> None:
    outcome = await measure(tmp_path / "cluster", TASKS)
    assert outcome.violations == []
    assert (outcome.ran, outcome.twice) == (TASKS, 0)
    # Most were queued only.
    assert outcome.before < TASKS
