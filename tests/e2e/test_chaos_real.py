"""Faults against real processes: without a bug nothing is found, and each bug is.

`make chaos` does more of both; `python -m tests.chaos.real --mutant NAME` shows what is found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.menu import menu_of
from tests.chaos.real.mutants import MUTANTS
from tests.chaos.real.rounds import Rounds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SEED = 5
SECONDS = 2.5
# A bug may keep all from settling: for that nobody waits long.
SETTLE_S = 6.0
ROUNDS = 3


async def kinds_found(folder: Path, layout: Layout, fault: str, rounds: int) -> set[str]:
    """The kinds of violations that are found in so many rounds, or until there are some."""
    cluster = Cluster(folder, layout, SEED)
    found: set[str] = set()
    try:
        await cluster.start()
        series = Rounds(cluster, menu_of(cluster).only(fault), SEED, SECONDS, SETTLE_S)
        for number in range(rounds):
            report = await series.round(number)
            found |= {violation.kind for violation in report.violations}
            if found:
                break
    finally:
        await cluster.stop()
    return found


@pytest.mark.parametrize("name", list(MUTANTS))
async def test_each_bug_is_found(tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    words = mutant.words(name)
    layout = Layout(master=words) if mutant.daemon == "master" else Layout(agent=words)
    found = await kinds_found(tmp_path / "cluster", layout, mutant.fault, ROUNDS)
    assert found & set(mutant.seen_as), found
