"""Cost of an agent's checkpoint, compared with SQLite and with the bare disk.

    python tests/bench/checkpoint.py [--directory DIR] [--seconds S]

Prints the durable records per second and the time of a commit, for groups of several sizes. A
record is one status update of a task, about 250 bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.records import Record, UpdateRecord, place_of
from croupier.agent.record_lines import body_of
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import Source, TaskState, TaskStatus

GROUPS = (1, 10, 100, 1000)

Commit = Callable[[Sequence[Record]], Awaitable[object]]


def update(number: int) -> Record:
    return UpdateRecord(
        TaskStatus(
            FrameworkId("F0123456789abcdef"),
            TaskId(f"run-{number % 5000}"),
            AgentId("A0123456789abcdef"),
            TaskState.FINISHED,
            Source.EXECUTOR,
            sequence=3,
            time_ms=1_795_000_000_000,
            exit_code=0,
            pid=12345,
        )
    )


class Table:
    """The same records in SQLite: WAL, synchronous=FULL, one transaction per group."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._path = path
        self._thread.submit(self._open).result()

    async def commit(self, records: Sequence[Record]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, records)

    def close(self) -> None:
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._db.execute(
            "create table records (subject, part, body, primary key (subject, part)) without rowid"
        )

    def _commit(self, records: Sequence[Record]) -> None:
        self._db.execute("begin")
        self._db.executemany(
            "insert or replace into records values (?, ?, ?)",
            ((*place_of(record), body_of(record)) for record in records),
        )
        self._db.execute("commit")


class Bare:
    """The disk alone: the same bytes, appended and synced."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def commit(self, records: Sequence[Record]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._commit, b"x" * 250 * len(records))

    def close(self) -> None:
        self._thread.shutdown()
        os.close(self._fd)

    def _commit(self, data: bytes) -> None:
        os.write(self._fd, data)
        os.fdatasync(self._fd)


async def measure(name: str, commit: Commit, seconds: float) -> None:
    """Commit groups of each size in turn."""
    for size in GROUPS:
        took: list[float] = []
        number = 0
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            batch = [update(number + each) for each in range(size)]
            number += size
            began = time.perf_counter()
            await commit(batch)
            took.append(time.perf_counter() - began)
        took.sort()
        p50, p99 = statistics.median(took) * 1e3, took[int(len(took) * 0.99)] * 1e3
        rate = size * len(took) / sum(took)
        print(f"{name:<8} {size:>6} {rate:>12,.0f} {p50:>10.2f} {p99:>10.2f}", flush=True)


async def main() -> None:
    """Measure all three in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--directory", type=Path, help="on the disk to measure (default: /var/tmp)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line")
    asked = parser.parse_args()
    print(f"{'':<8} {'group':>6} {'records/s':>12} {'p50 ms':>10} {'p99 ms':>10}")
    with tempfile.TemporaryDirectory(dir=asked.directory or "/var/tmp") as made:
        bare = Bare(Path(made) / "bare")
        await measure("bare", bare.commit, asked.seconds)
        bare.close()
        log, _ = Checkpoint.open(Path(made))
        await measure("log", log.commit, asked.seconds)
        await log.close()
        table = Table(Path(made) / "table.sqlite")
        await measure("sqlite", table.commit, asked.seconds)
        table.close()


if __name__ == "__main__":
    asyncio.run(main())
