"""Check a healed cluster: it settles, and all its reports agree."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc.aio

from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb
from tests.chaos.real.checker import Excuse, Violation, check_tasks, histories, unsettled
from tests.chaos.real.cluster import Cluster
from tests.chaos.real.faults import Fault, Renewal
from tests.chaos.real.hold_checks import (
    check_holds,
    check_listed,
    check_messages,
    counts,
    hold_history,
)
from tests.chaos.real.journal import Entry, read_entries
from tests.chaos.real.ledger import read_ledger
from tests.chaos.real.leftovers import check_agent
from tests.chaos.real.master_accounts import (
    MasterAccounts,
    check_accounts,
    check_idle,
    read_accounts,
)
from tests.chaos.real.minute_checks import check_minutes, count_minutes
from tests.chaos.real.reservation_keeper import ReservationKeeper
from tests.chaos.real.usage_checks import UsageWitness, Used, check_used, read_used
from tests.chaos.real.volume_checks import check_volumes
from tests.chaos.real.witness import read_witnesses
from tests.chaos.real.work import hold_named, work_named
from tests.harness.eventually import eventually

# Time for daemons to reconnect, tasks to end and acknowledgements to arrive.
SETTLE_S = 45.0
CLEAN_S = 10.0


class Judge:
    """Checks one cluster, round after round.

    Attributes:
        excuses: tasks whose ends a fault of some round excuses.
        tasks: number of tasks by how they ended, so far.
        others: number of holds and messages, so far.
        lines: what masters count of lined-up tasks, by the pid of the master; none of one that was
            killed later in its first round.
    """

    def __init__(self, cluster: Cluster, seed: int, settle_s: float = SETTLE_S) -> None:
        """Check `cluster`, whose workload has `seed`. Tasks have `settle_s` seconds to end after
        the faults."""
        self._cluster, self._seed, self._settle_s = cluster, seed, settle_s
        self._ended: set[str] = set()
        self.excuses: dict[str, Excuse] = {}
        self.tasks: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.lines: dict[int, Counter[str]] = {}
        self.reservations = ReservationKeeper(cluster)
        self._witness = UsageWitness(partial(work_named, seed))
        self._used: Used | None = None
        self._is_clock_true = True

    async def judge(self, faults: Iterable[Fault] = ()) -> list[Violation]:
        """Wait until the cluster settles after `faults`; return the violations."""
        done = list(faults)
        cluster = self._cluster
        for fault in done:
            self.excuses.update(fault.excuses)
        self._is_clock_true &= all(fault.kind != "clock-jump" for fault in done)
        found = [*self._check_daemons(done), *lost_streams(done)]
        try:
            await cluster.whole(self._settle_s)
            found += await until_clean(self._check_accounts(check_accounts, is_quiet=False))
            found += await self.reservations.settle(self._is_clock_true)
            cluster.control("drain")
            await eventually(self._is_settled, self._settle_s, "all tasks have ended")
            # Only holds are left.
            found += await until_clean(self._check_accounts(check_accounts, is_quiet=True))
            found += await self._check_listed()
        except AssertionError as error:
            found.append(Violation("stuck", "cluster", str(error)))
            cluster.control("drain")
        cluster.control("release")
        entries = await asyncio.to_thread(self.entries)
        await self._excuse_full(entries, {name for fault in done for name in fault.full})
        found += await asyncio.to_thread(self._check_tasks, entries)
        if cluster.network is not None:
            found += await asyncio.to_thread(lambda: read_witnesses(cluster.folder).check())
        idle = self._check_accounts(
            lambda accounts: check_idle(accounts, cluster.total), is_quiet=True
        )
        for check in (idle, self._check_processes, self._check_agents):
            # After a first violation the rest is checked without waiting.
            found += await until_clean(check, 1.0 if found else CLEAN_S)
        found += await self._check_usage(entries, done)
        self._count(entries)
        with suppress(OSError, grpc.aio.AioRpcError, CroupierError):
            await self._count_lines()
        return found

    def entries(self) -> dict[str, list[Entry]]:
        """Return the journal of each framework."""
        folder = self._cluster.folder
        return {name: read_entries(folder / f"{name}.journal") for name in self._cluster.frameworks}

    async def _check_listed(self) -> list[Violation]:
        """Check that the master lists the holds that it should."""
        before = await asyncio.to_thread(self.entries)
        try:
            operator = await self._cluster.operator()
            listed = await operator.ListHolds(pb.ListHoldsRequest(), timeout=10)
        except (grpc.aio.AioRpcError, CroupierError) as error:
            return [Violation("stuck", "holds", str(error))]
        after = await asyncio.to_thread(self.entries)
        ids = {view.hold_id for view in listed.holds}
        return check_listed(partial(hold_named, self._seed), before, ids, after)

    async def _check_usage(
        self, entries: dict[str, list[Entry]], done: list[Fault]
    ) -> list[Violation]:
        """Compare what the master has counted since the last round with the journals."""
        witnessed = {name: self._witness.witness(each) for name, each in entries.items()}
        before = self._used
        try:
            self._used = await read_used(await self._cluster.operator())
        except (grpc.aio.AioRpcError, CroupierError) as error:
            return [Violation("stuck", "usage", str(error))]
        if before is None:
            return []
        cluster = self._cluster
        touched = {name for fault in done for name in fault.touches}
        is_reached = not touched & {*cluster.masters, *cluster.agents} and cluster.network is None
        return list(
            check_used(
                before,
                self._used,
                witnessed,
                began_s=cluster.began_s,
                is_clock_true=self._is_clock_true,
                is_reached=is_reached,
            )
        )

    def _check_daemons(self, done: list[Fault]) -> list[Violation]:
        """Check that no daemon exited and none logged a traceback."""
        full = {name for fault in done if fault.kind == "full-disk" for name in fault.touches}
        found = []
        for daemon in self._cluster.daemons().values():
            complaints = daemon.new_complaints()
            if daemon.name not in full:
                found += [Violation("bug", daemon.name, line[:2000]) for line in complaints]
            if not daemon.runs:
                if daemon.name not in full:
                    found.append(Violation("died", daemon.name, f"exit code {daemon.code}"))
                daemon.start()
        return found

    def _check_accounts(
        self, check: Callable[[MasterAccounts], list[Violation]], is_quiet: bool
    ) -> Callable[[], Awaitable[list[Violation]]]:
        async def look() -> list[Violation]:
            try:
                accounts = await read_accounts(await self._cluster.operator())
            except (grpc.aio.AioRpcError, CroupierError) as error:
                return [Violation("stuck", "master", str(error))]
            if accounts is None:
                # They change while they are read, as long as the cluster is busy.
                return [Violation("stuck", "accounts", "they change")] if is_quiet else []
            return check(accounts)

        return look

    async def _check_processes(self) -> list[Violation]:
        """Check that no process but the daemons is left."""
        strays = ((pid, _words(pid)) for pid in self._cluster.strays())
        return [Violation("orphan", str(pid), words) for pid, words in strays if words]

    async def _check_agents(self) -> list[Violation]:
        """Check that agents keep nothing of ended tasks."""
        folder = self._cluster.folder
        found = []
        for name, address in (await self._cluster.agent_addresses()).items():
            try:
                metrics = await asyncio.to_thread(self._cluster.fetch, address, "/metrics")
            except OSError as error:
                found.append(Violation("stuck", name, f"no metrics: {error}"))
            else:
                found += check_agent(name, folder / name, metrics)
        return found

    async def _excuse_full(self, entries: dict[str, list[Entry]], agents: set[str]) -> None:
        """Excuse tasks that ended since the last check on an agent whose disk was full."""
        ids = set()
        if agents:
            operator = await self._cluster.operator()
            listed = await operator.ListAgents(pb.ListAgentsRequest(), timeout=10)
            ids = {v.agent.agent_id for v in listed.agents if v.agent.hostname in agents}
        for written in entries.values():
            for task_id, history in histories(written).items():
                ends = history.ends()
                if ends and task_id not in self._ended:
                    self._ended.add(task_id)
                    if ends[0].agent_id in ids:
                        self.excuses.setdefault(task_id, Excuse.DISK_FULL)

    async def _is_settled(self) -> bool:
        # Long journals take seconds to read; the cluster's proxies must run meanwhile.
        return not await asyncio.to_thread(self._unsettled)

    def _unsettled(self) -> list[str]:
        return [
            name
            for written in self.entries().values()
            for name in (*unsettled(written), *hold_history(written).unsettled())
        ]

    def _check_tasks(self, entries: dict[str, list[Entry]]) -> list[Violation]:
        works = partial(work_named, self._seed)
        ran = read_ledger(self._cluster.folder / "ran")
        self.others = counts(entries, ran) + count_minutes(ran) + self.reservations.seen
        return [
            *check_tasks(works, entries, ran, self.excuses),
            *check_holds(entries),
            *check_messages(entries, ran),
            *check_volumes(works, entries, ran, self.excuses),
            *check_minutes(works, entries, ran),
        ]

    def _count(self, entries: dict[str, list[Entry]]) -> None:
        self.tasks.clear()
        for written in entries.values():
            for history in histories(written).values():
                ends = history.ends()
                self.tasks[ends[0].state if ends else "refused"] += 1

    async def _count_lines(self) -> None:
        cluster = self._cluster
        name = await cluster.leader()
        told = await (await cluster.operator()).GetMaster(pb.GetMasterRequest(), timeout=10)
        metrics = await asyncio.to_thread(cluster.fetch, told.http_address, "/metrics")
        if name is not None:
            self.lines[cluster.masters[name].pid] = count_lines(metrics)


def count_lines(metrics: str) -> Counter[str]:
    """Return how many tasks were lined up, started from a line, recalled and returned."""
    found = re.findall(r'^croupier_line_tasks_total{outcome="(\w+)"} (\S+)$', metrics, re.MULTILINE)
    return Counter({outcome: int(float(number)) for outcome, number in found})


def lost_streams(done: Sequence[Fault]) -> list[Violation]:
    """Return the streams that ended although certificates were renewed, and nothing else."""
    if any(not isinstance(fault, Renewal) for fault in done):
        return []
    lost = [line for fault in done if isinstance(fault, Renewal) for line in fault.lost]
    return [Violation("stream", name, line[:500]) for name, line in lost]


async def until_clean(
    check: Callable[[], Awaitable[list[Violation]]], timeout_s: float = CLEAN_S
) -> list[Violation]:
    """Repeat `check` until it finds nothing or time is up; return what it still finds."""
    found: list[Violation] = []

    async def is_clean() -> bool:
        found[:] = await check()
        return not found

    with suppress(AssertionError):
        await eventually(is_clean, timeout_s)
    return found


def _words(pid: int) -> str:
    try:
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return told.replace(b"\0", b" ").decode(errors="replace")[:200]
