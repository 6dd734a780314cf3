"""Offenders one after the other beside an honest task, on an agent with default isolation."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.harness.neighbours import OFFENDERS, neighbourhood

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give tasks uids of their own"),
    pytest.mark.skipif(shutil.which("perl") is None, reason="the tasks are in Perl"),
]
# Tests share the machine. `python -m tests.bench.isolation neighbours` tells the loss.
LEAST = 0.6


async def test_an_honest_task_goes_on_beside_each_offender() -> None:
    async with neighbourhood() as neighbours:
        for offender in OFFENDERS:
            seen = await neighbours.beside(offender)
            print(f"{seen.name:<24} {seen.rate:5.2f}  {seen.message}")
            assert seen.rate >= LEAST, seen
