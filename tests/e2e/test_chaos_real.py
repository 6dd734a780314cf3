"""Faults against real processes reveal an injected bug.

`make chaos` shows that nothing is found without a bug; `python -m tests.chaos.real --mutants` runs
all bugs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.real.host_network import why_not
from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.mutation_run import kinds_found
from tests.harness.debian import NoProgram, unavailable

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


async def test_a_bug_is_found(tmp_path: Path) -> None:
    """The other bugs take longer to show."""
    name = "ledger"
    mutant = MUTANTS[name]
    found = await kinds_found(tmp_path / "cluster", name, mutant)
    assert found & set(mutant.seen_as), found


def test_hosts_that_are_cut_off_from_each_other() -> None:
    if reason := why_not():
        unavailable(NoProgram(reason))
    command = [sys.executable, "-m", "tests.chaos.real", "--partitions", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cut" in done.stdout
    assert "skipped" not in done.stdout
