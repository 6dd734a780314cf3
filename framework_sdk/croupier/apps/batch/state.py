"""The stored state of a run, from which `--resume` continues: one SQLite file.

Rule: a task is stored as active before it is handed to the cluster, and its end before the cluster
may forget it. A lock beside the file refuses a second process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from croupier.apps.batch.machine import NodeState, Row
from croupier.apps.controller.store import Store, locked, state_directory

_TABLES: Final = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, launches INTEGER NOT NULL,
    failures INTEGER NOT NULL, drops INTEGER NOT NULL, agent_id TEXT NOT NULL,
    reason TEXT NOT NULL, output TEXT NOT NULL
) WITHOUT ROWID;
"""


def default_path(job_file: Path) -> Path:
    """Return the path of the state of a job file."""
    mark = hashlib.sha256(os.fsencode(job_file.resolve())).hexdigest()[:12]
    return state_directory("batch") / f"{job_file.stem}-{mark}.sqlite"


@contextmanager
def opened(path: Path) -> Iterator[BatchState]:
    """Lock and open the state of a job file, and create it if there is none.

    Raises:
        Conflict: if another process has it open.
        StateError: if it is damaged, of a newer release, or cannot be opened.
    """
    lock = path.with_name(path.name + ".lock")
    with locked(lock, f"the state {path} of this job"), BatchState(path) as state:
        yield state


class BatchState(Store):
    """The state of one job file.

    Facts are the `digest` of the plan, empty if there is no run; the `framework_id` under which the
    cluster knows its tasks, empty if it knows none; and `is_complete`, empty until all have ended.
    """

    command, application = "croupier batch", 0x43727042  # "CrpB"
    tables, facts = _TABLES, "run"

    def tasks(self) -> list[Row]:
        """Return all stored tasks."""
        with self.errors("read"):
            found = self.rows("SELECT * FROM tasks")
            return [Row(name, NodeState(state), *rest) for name, state, *rest in found]

    def begin(self, digest: str) -> None:
        """Delete the stored run, and begin another."""
        with self.writing() as connection:
            connection.execute("DELETE FROM tasks")
            connection.execute("DELETE FROM run")
            self.put(connection, digest=digest)

    def save(self, rows: Iterable[Row]) -> None:
        """Store tasks in one transaction."""
        values = [
            (
                row.name, row.state.stored.value, row.launches, row.failures, row.drops,
                row.agent_id, row.reason, row.output,
            )
            for row in rows
        ]  # fmt: skip
        if values:
            marks = ", ".join("?" * len(values[0]))
            with self.writing() as connection:
                connection.executemany(f"INSERT OR REPLACE INTO tasks VALUES ({marks})", values)  # noqa: S608
