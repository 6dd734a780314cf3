"""Whether the bug of a mutant is found, and as what."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.real.cluster import Cluster, Layout
from tests.chaos.real.fault_catalogue import menu_of
from tests.chaos.real.mutants import Mutant
from tests.chaos.real.rounds import Rounds

SEED = 5
SECONDS = 2.5
ROUNDS = 3
# A bug may keep all from settling: for that nobody waits long.
SETTLE_S = 5.0


async def kinds_found(folder: Path, name: str, mutant: Mutant) -> set[str]:
    """The kinds of violations of the first round that has any, of three."""
    words = mutant.words(name)
    layout = Layout(master=words) if mutant.daemon == "master" else Layout(agent=words)
    cluster = Cluster(folder, layout, SEED)
    try:
        await cluster.start()
        series = Rounds(cluster, menu_of(cluster).only(mutant.fault), SEED, SECONDS, SETTLE_S)
        for number in range(ROUNDS):
            report = await series.round(number)
            if report.violations:
                return {violation.kind for violation in report.violations}
    finally:
        await cluster.stop()
    return set()
