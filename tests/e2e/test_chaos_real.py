"""Faults against real processes reveal injected bugs.

`make chaos` shows that nothing is found without a bug; `python -m tests.chaos.real --mutants` runs
all bugs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.mutation_run import kinds_found

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


# The other bugs take longer to show.
@pytest.mark.parametrize("name", ["ledger", "updates"])
async def test_each_bug_is_found(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    found = await kinds_found(tmp_path / "cluster", name, mutant)
    assert found & set(mutant.seen_as), found
