"""Cost of durable records: SQLite, etcd of one and of three members, and the bare disk.

    python -m tests.bench.registry [SECONDS]

Each cell is measured for SECONDS, by default 1. The first rows are commits of 1 to 1,000 records,
one after another. The last rows are single records of concurrent submitters. As in the master's
driver, a batch has all records that arrived during the last commit, up to 500. `floor` appends the
same rows to a file and syncs it. Latencies are those of the submitters.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import structlog

from croupier.master.core.records import Record, TaskRecord
from croupier.master.driver import BATCH
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.store import SqliteStore, Store
from croupier.master.store.etcd import EtcdStore
from croupier.master.store.rows import encode
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.etcd import running_etcd

SIZES = (1, 10, 100, 1000)
SUBMITTERS = (10, 100, 1000)
# Bounds the size of the store.
DIFFERENT = 5_000


class Floor:
    """The minimum: encoding, an append and fdatasync."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    async def load(self) -> object:
        return None

    async def commit(self, records: Sequence[Record]) -> None:
        self._file.write("\n".join(map(str, map(encode, records))).encode())
        os.fdatasync(self._file.fileno())

    async def close(self) -> None:
        self._file.close()


def task(number: int) -> TaskRecord:
    """Return a typical record: of a task."""
    task_id = TaskId(f"task-{number % DIFFERENT}")
    command = Command(shell=f"exec sleep {number}", environment={"NUMBER": str(number)})
    info = TaskInfo(task_id, command, Resources.parse("cpus:1;mem:1GB"))
    return TaskRecord(
        FrameworkId("c0ffee-1-F1"), info, AgentId("c0ffee-1-A17"), Role("ads"), "run-1", number
    )


async def one_after_another(
    store: Store | Floor, size: int, seconds: float
) -> tuple[int, list[float]]:
    """Return the number of commits, and the seconds of each."""
    took: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        records = [task(len(took) * size + each) for each in range(size)]
        at = time.perf_counter()
        await store.commit(records)
        took.append(time.perf_counter() - at)
    return len(took), took


async def at_once(store: Store | Floor, submitters: int, seconds: float) -> tuple[int, list[float]]:
    """Return the number of commits, and the waits of so many submitters, in seconds."""
    took: list[float] = []
    waiting: list[tuple[Record, asyncio.Future[None]]] = []
    ends_at = time.perf_counter() + seconds

    async def submit(number: int) -> None:
        while time.perf_counter() < ends_at:
            done = asyncio.get_running_loop().create_future()
            at = time.perf_counter()
            waiting.append((task(number + len(took)), done))
            await done
            took.append(time.perf_counter() - at)

    tasks = [asyncio.create_task(submit(number)) for number in range(submitters)]
    commits = 0
    while not all(each.done() for each in tasks):
        await asyncio.sleep(0)
        batch, waiting[:BATCH] = waiting[:BATCH], []
        if batch:
            await store.commit([record for record, _ in batch])
            commits += 1
            for _, done in batch:
                done.set_result(None)
    return commits, took


@asynccontextmanager
async def etcd_store(directory: Path, members: int) -> AsyncIterator[Store]:
    """Open the store of a leading master."""
    with running_etcd(directory, members) as etcd:
        client = EtcdClient(etcd.addresses)
        election = EtcdElection(client, "croupier", "127.0.0.1:5050", 10)
        try:
            await election.win()
            store = EtcdStore(client, "croupier", election)
            await store.load()
            yield store
        finally:
            await election.close()
            await client.close()


@asynccontextmanager
async def file_store(store: SqliteStore | Floor) -> AsyncIterator[Store | Floor]:
    """Open and close a store."""
    await store.load()
    try:
        yield store
    finally:
        await store.close()


def row(what: str, load: str, commits: int, records: int, seconds: float, took: list[float]) -> str:
    """Return one line of the table."""
    percent = quantiles(took, n=100) if len(took) > 1 else took * 99
    return (
        f"{what:<10} {load:<14} {commits / seconds:>9,.0f} {records / seconds:>10,.0f}"
        f" {percent[49] * 1e3:>9.2f} {percent[98] * 1e3:>9.2f}"
    )


async def measure(what: str, store: Store | Floor, seconds: float) -> None:
    """Return all rows of one store."""
    for size in SIZES:
        began = time.perf_counter()
        commits, took = await one_after_another(store, size, seconds)
        spent = time.perf_counter() - began
        print(row(what, f"{size} a commit", commits, commits * size, spent, took), flush=True)
    for submitters in SUBMITTERS:
        began = time.perf_counter()
        commits, took = await at_once(store, submitters, seconds)
        spent = time.perf_counter() - began
        print(row(what, f"{submitters} at once", commits, len(took), spent, took), flush=True)


async def main(seconds: float) -> None:
    """Print the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    body = encode(task(1)).body or ""
    print(f"a record: {len(body)} bytes of JSON, as {json.dumps(json.loads(body))[:60]}...")
    print(
        f"{'store':<10} {'load':<14} {'commits/s':>9} {'records/s':>10} {'p50 ms':>9} {'p99 ms':>9}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        async with file_store(Floor(directory / "floor")) as floor:
            await measure("floor", floor, seconds)
        async with file_store(SqliteStore(directory / "records.db")) as sqlite:
            await measure("sqlite", sqlite, seconds)
        for members in (1, 3):
            async with etcd_store(directory / f"etcd-{members}", members) as etcd:
                await measure(f"etcd, {members}", etcd, seconds)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
