"""One round: inject faults while the workload runs, heal, settle, and check."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster
from tests.chaos.real.fault_catalogue import FaultCatalogue, Kind
from tests.chaos.real.faults import Fault
from tests.chaos.real.judge import SETTLE_S, Judge

# Faults begin within this fraction of the round.
BEGIN_WITHIN = 0.7


@dataclass(slots=True)
class Report:
    """The result of one round.

    Attributes:
        tasks: tasks of this and earlier rounds on the same cluster, by how they ended.
        others: holds and messages of these rounds.
        lines: what became of lined-up tasks in these rounds, by the masters that are alive.
    """

    faults: list[Fault] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0


class Rounds:
    """Rounds on one cluster, in sequence."""

    def __init__(
        self,
        cluster: Cluster,
        catalogue: FaultCatalogue,
        seed: int,
        seconds: float,
        settle_s: float = SETTLE_S,
    ) -> None:
        """Inject faults for about `seconds` in each round, then allow `settle_s` to settle."""
        self._cluster, self._menu = cluster, catalogue
        self._seed, self._seconds = seed, seconds
        self._judge = Judge(cluster, seed, settle_s)

    async def round(self, number: int) -> Report:
        """Run round `number`; its faults follow from the number and the seed."""
        began = time.monotonic()
        self._cluster.control("run")
        random_of = f"{self._seed}/reservations/{number}"
        keeping = asyncio.create_task(self._judge.reservations.keep(random.Random(random_of)))
        try:
            faults = await self._do_harm(random.Random(f"{self._seed}/round/{number}"), number)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
        violations = await self._judge.judge(faults)
        judge = self._judge
        lines = sum(judge.lines.values(), Counter[str]())
        tasks, others = judge.tasks.copy(), judge.others
        return Report(faults, tasks, others, lines, violations, time.monotonic() - began)

    async def _do_harm(self, rng: random.Random, number: int) -> list[Fault]:
        """Begin and end faults; return those that began."""
        done: list[Fault] = []
        busy: set[str] = set()
        async with asyncio.TaskGroup() as group:
            for kind, at_s, for_s in self._draw(rng, number):
                group.create_task(self._fault(kind, at_s, for_s, busy, done, rng))
        return done

    def _draw(self, rng: random.Random, number: int) -> list[tuple[Kind, float, float]]:
        """Draw faults, their times and durations: every kind in turn, others at random."""
        kinds = list(self._menu.kinds)
        cycle, place = divmod(number, len(kinds))
        random.Random(f"{self._seed}/cycle/{cycle}").shuffle(kinds)
        chosen = [kinds[place], *rng.choices(kinds, k=rng.randint(0, 3))]
        if self._menu.always:
            chosen.append(rng.choice(self._menu.always))
        latest = self._seconds * BEGIN_WITHIN
        return [
            (kind, rng.uniform(0.2, latest), rng.uniform(kind.least_s, kind.most_s))
            for kind in chosen
        ]

    async def _fault(
        self, kind: Kind, at_s: float, for_s: float, busy: set[str], done: list[Fault],
        rng: random.Random,
    ) -> None:  # fmt: skip
        await asyncio.sleep(at_s)
        leader = await self._cluster.leader() or rng.choice(list(self._cluster.masters))
        fault = kind.make(self._cluster, rng, leader)
        if busy & set(fault.touches):
            return
        busy |= set(fault.touches)
        done.append(fault)
        try:
            fault.begin()
            await asyncio.sleep(for_s)
        finally:
            fault.end()
            busy -= set(fault.touches)
