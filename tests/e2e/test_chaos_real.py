"""Faults against real processes: bugs that are put in are found.

That nothing is found without them is for `make chaos`; `python -m tests.chaos.real --mutants`
goes through all bugs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.mutation_run import kinds_found

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


# The others take longer to be noticed, by nature.
@pytest.mark.parametrize("name", ["ledger", "updates"])
async def test_each_bug_is_found(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    found = await kinds_found(tmp_path / "cluster", name, mutant)
    assert found & set(mutant.seen_as), found
