"""One round: faults while the workload runs; then heal, let everything settle, and judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.chaos.real.checker import Violation
from tests.chaos.real.cluster import Cluster
from tests.chaos.real.fault_catalogue import Course, Menu
from tests.chaos.real.faults import Fault
from tests.chaos.real.judge import SETTLE_S, Judge

# Faults begin within this part of the time.
BEGIN_WITHIN = 0.7


@dataclass(slots=True)
class Report:
    """What one round did and found.

    Attributes:
        tasks: of this round and those before it on the same cluster, by how they ended.
    """

    faults: list[Fault] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0


class Rounds:
    """Rounds on one cluster, one after the other."""

    def __init__(
        self, cluster: Cluster, menu: Menu, seed: int, seconds: float, settle_s: float = SETTLE_S
    ) -> None:
        """Faults of each round last about `seconds`, and then all has `settle_s` to settle."""
        self._cluster, self._menu = cluster, menu
        self._seed, self._seconds = seed, seconds
        self._judge = Judge(cluster, seed, settle_s)

    async def round(self, number: int) -> Report:
        """Do round `number`; which faults it has follows from that and the seed."""
        began = time.monotonic()
        self._cluster.control("run")
        faults = await self._do_harm(random.Random(f"{self._seed}/round/{number}"), number)
        violations = await self._judge.judge(faults)
        return Report(faults, self._judge.tasks.copy(), violations, time.monotonic() - began)

    async def _do_harm(self, rng: random.Random, number: int) -> list[Fault]:
        """Have faults come and go; those that came."""
        done: list[Fault] = []
        busy: set[str] = set()
        async with asyncio.TaskGroup() as group:
            for course, at_s, for_s in self._draw(rng, number):
                group.create_task(self._fault(course, at_s, for_s, busy, done, rng))
        return done

    def _draw(self, rng: random.Random, number: int) -> list[tuple[Course, float, float]]:
        """Which faults, when, for how long: every kind comes in turn, and others at random."""
        courses = list(self._menu.courses)
        cycle, place = divmod(number, len(courses))
        random.Random(f"{self._seed}/cycle/{cycle}").shuffle(courses)
        chosen = [courses[place], *rng.choices(courses, k=rng.randint(0, 3))]
        latest = self._seconds * BEGIN_WITHIN
        return [
            (course, rng.uniform(0.2, latest), rng.uniform(course.least_s, course.most_s))
            for course in chosen
        ]

    async def _fault(
        self, course: Course, at_s: float, for_s: float, busy: set[str], done: list[Fault],
        rng: random.Random,
    ) -> None:  # fmt: skip
        await asyncio.sleep(at_s)
        leader = await self._cluster.leader() or rng.choice(list(self._cluster.masters))
        fault = course.make(self._cluster, rng, leader)
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
