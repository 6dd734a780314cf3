"""Run a mutant and see which violations reveal it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.fault_catalogue import catalogue_of
from tests.chaos.real.mutants import Mutant
from tests.chaos.real.rounds import Rounds

SEED = 5
SECONDS = 2.5
ROUNDS = 3
# A bug may prevent the cluster from settling, so the wait is short; without a bug it is enough.
SETTLE_S = 20.0


async def kinds_found(folder: Path, name: str, mutant: Mutant) -> set[str]:
    """Return the kinds of violations of the first of three rounds that has any."""
    words = mutant.words(name)
    commands: dict[str, Any] = {mutant.daemon: words}
    layout = Layout(**commands, is_preloaded=mutant.is_preloaded)
    cluster = Cluster(folder, layout, SEED)
    try:
        await cluster.start()
        series = Rounds(cluster, catalogue_of(cluster).only(mutant.fault), SEED, SECONDS, SETTLE_S)
        for number in range(ROUNDS):
            report = await series.round(number)
            if report.violations:
                return {violation.kind for violation in report.violations}
    finally:
        await cluster.stop()
    return set()
