"""One round: faults while the workload runs; then heal, let everything settle, and check."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb
from tests.chaos.real.books import check_books, check_idle, read_books
from tests.chaos.real.checker import (
    Excuse,
    Violation,
    check_tasks,
    histories,
    unsettled,
)
from tests.chaos.real.cluster import AGENT_TIMEOUT_S, Cluster
from tests.chaos.real.faults import Fault
from tests.chaos.real.journal import Entry, read_entries
from tests.chaos.real.menu import Course, Menu
from tests.chaos.real.ran import read_ran
from tests.harness.cluster import processes_with
from tests.harness.eventually import eventually

SETTLE_S = 45.0
IDLE_S = 15.0
# Faults begin within this part of the time.
BEGIN_WITHIN = 0.7


@dataclass(slots=True)
class Report:
    """What one round did and found."""

    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0


class Rounds:
    """Rounds on one cluster, one after the other.

    Attributes:
        excuses: tasks that some fault of some round explains.
    """

    def __init__(self, cluster: Cluster, menu: Menu, seed: int, seconds: float) -> None:
        """Faults of each round last about `seconds`."""
        self._cluster, self._menu = cluster, menu
        self._seed, self._seconds = seed, seconds
        self._ended: set[str] = set()
        self.excuses: dict[str, Excuse] = {}

    async def round(self, number: int) -> Report:
        """Do round `number`; what happens in it follows from that and the seed."""
        began = time.monotonic()
        rng = random.Random(f"{self._seed}/round/{number}")
        report = Report()
        self._cluster.control("run")
        done = await self._do_harm(rng, number, report)
        await self._check(done, report)
        report.seconds = time.monotonic() - began
        return report

    async def _do_harm(self, rng: random.Random, number: int, report: Report) -> list[Fault]:
        """Have faults come and go; those that came."""
        done: list[Fault] = []
        busy: set[str] = set()
        async with asyncio.TaskGroup() as group:
            for course, at_s, for_s in self._draw(rng, number):
                group.create_task(self._fault(course, at_s, for_s, busy, done, rng))
        report.faults = [str(fault) for fault in done]
        report.kinds.update(fault.kind for fault in done)
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

    async def _check(self, done: list[Fault], report: Report) -> None:
        """Let everything settle, and look for what must not be."""
        cluster = self._cluster
        found = report.violations
        found += self._check_daemons(done)
        full = {agent for fault in done for agent in fault.full}
        for fault in done:
            self.excuses.update(fault.excuses)
        try:
            await cluster.whole(SETTLE_S)
            found += await self._until_clean(self._check_books, AGENT_TIMEOUT_S)
            cluster.control("drain")
            await eventually(lambda: not self._unsettled(), SETTLE_S, "all tasks have ended")
        except AssertionError as error:
            found.append(Violation("stuck", "cluster", str(error)))
            cluster.control("drain")
        await self._excuse_full(full)
        entries = self._entries()
        found += check_tasks(self._seed, entries, read_ran(cluster.folder / "ran"), self.excuses)
        found += await self._until_clean(self._check_idle, IDLE_S)
        found += await self._until_clean(self._check_processes, IDLE_S)
        self._count(entries, report)

    def _check_daemons(self, done: list[Fault]) -> list[Violation]:
        """That nothing ended by itself, and nothing tells of a bug."""
        full = {name for fault in done if fault.kind == "full-disk" for name in fault.touches}
        found = []
        for daemon in self._cluster.daemons().values():
            if not daemon.runs and daemon.name not in full:
                found.append(Violation("died", daemon.name, f"exit code {daemon.code}"))
                daemon.start()
            complaints = daemon.new_complaints()
            if daemon.name not in full:
                found += [Violation("bug", daemon.name, line[:2000]) for line in complaints]
        return found

    async def _until_clean(
        self, check: Callable[[], Awaitable[list[Violation]]], timeout_s: float
    ) -> list[Violation]:
        """What `check` still finds after it was given so long to find nothing."""
        found: list[Violation] = []

        async def is_clean() -> bool:
            found[:] = await check()
            return not found

        with suppress(AssertionError):
            await eventually(is_clean, timeout_s)
        return found

    async def _check_books(self) -> list[Violation]:
        try:
            books = await read_books(await self._cluster.operator())
        except (grpc.aio.AioRpcError, CroupierError) as error:
            return [Violation("stuck", "master", str(error))]
        if books is None:
            return [Violation("stuck", "books", "they never stand still")]
        return check_books(books)

    async def _check_idle(self) -> list[Violation]:
        try:
            books = await read_books(await self._cluster.operator())
        except (grpc.aio.AioRpcError, CroupierError) as error:
            return [Violation("stuck", "master", str(error))]
        if books is None:
            return [Violation("stuck", "books", "they never stand still")]
        return check_idle(books, self._cluster.total)

    async def _check_processes(self) -> list[Violation]:
        """That no process but the daemons is left."""
        known = self._cluster.pids()
        return [
            Violation("orphan", str(pid), _words(pid))
            for pid in processes_with(str(self._cluster.folder))
            if pid not in known and _words(pid)
        ]

    async def _excuse_full(self, agents: set[str]) -> None:
        """Tasks that ended in this round at an agent whose disk was full."""
        ids = set()
        if agents:
            operator = await self._cluster.operator()
            listed = await operator.ListAgents(pb.ListAgentsRequest(), timeout=10)
            ids = {v.agent.agent_id for v in listed.agents if v.agent.hostname in agents}
        for entries in self._entries().values():
            for task_id, history in histories(entries).items():
                ends = history.ends()
                if task_id in self._ended or not ends:
                    continue
                self._ended.add(task_id)
                if ends[0].agent_id in ids:
                    self.excuses.setdefault(task_id, Excuse.DISK_FULL)

    def _entries(self) -> dict[str, list[Entry]]:
        folder = self._cluster.folder
        return {name: read_entries(folder / f"{name}.journal") for name in self._cluster.frameworks}

    def _unsettled(self) -> list[str]:
        return [task for entries in self._entries().values() for task in unsettled(entries)]

    def _count(self, entries: dict[str, list[Entry]], report: Report) -> None:
        for written in entries.values():
            for history in histories(written).values():
                ends = history.ends()
                report.tasks[ends[0].state if ends else "refused"] += 1


def _words(pid: int) -> str:
    try:
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return told.replace(b"\0", b" ").decode(errors="replace")[:200]
