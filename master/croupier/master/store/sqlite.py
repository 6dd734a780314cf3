"""A store in one SQLite file: WAL, one writer thread, a commit is synced to disk.

Records are JSON in one table, keyed by kind and id: there are few of them, they are read
once, and a new field needs no migration. The schema's version stands in the file.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from croupier.master.core.records import (
    AgentRecord,
    ForgetAgent,
    ForgetFramework,
    ForgetRole,
    FrameworkRecord,
    MasterRecord,
    Record,
    Registry,
    RoleRecord,
)
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings

SCHEMA_VERSION = 1
# "crou" in ASCII: tells our files from others'.
APPLICATION_ID = 0x63726F75

T = TypeVar("T")

_KINDS: dict[type[Record], str] = {
    MasterRecord: "master",
    AgentRecord: "agent",
    FrameworkRecord: "framework",
    RoleRecord: "role",
}


class SqliteStore:
    """Keeps records in the file at `path`; the master that has it open locks it."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened before `load`."""
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def load(self) -> Registry:
        """Open the file, making it if there is none, and read it.

        Raises:
            Unavailable: if it cannot be opened, or another master has it open.
            InvalidRequest: if it is corrupt, not ours, or of a newer version.
        """
        return await self._in_thread(self._load)

    async def commit(self, records: Sequence[Record]) -> None:
        """Write `records` in one transaction and sync it.

        Raises:
            Unavailable: if the disk is full or fails; nothing was written then.
        """
        await self._in_thread(lambda: self._commit(records))

    async def close(self) -> None:
        """Close the file."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> Registry:
        try:
            self._connection = self._open()
            rows = self._connection.execute("SELECT kind, body FROM records").fetchall()
        except sqlite3.DatabaseError as error:
            self._close()
            if isinstance(error, sqlite3.OperationalError):
                raise Unavailable(f"cannot open the store {self._path}: {error}") from error
            raise InvalidRequest(
                f"the store {self._path} is corrupt or not a database: {error}"
            ) from error
        except InvalidRequest:
            self._close()
            raise
        registry = Registry()
        for kind, body in rows:
            registry.apply(self._record(kind, body))
        return registry

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
        self._connection = connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
        fresh = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not fresh and owner != APPLICATION_ID:
            raise InvalidRequest(f"{self._path} is a database, but not one of Croupier's")
        if version > SCHEMA_VERSION:
            raise InvalidRequest(
                f"the store {self._path} is of version {version}; this master knows only"
                f" {SCHEMA_VERSION}: use the newer release that wrote it"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS records"
            " (kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, id))"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
        return connection

    def _commit(self, records: Sequence[Record]) -> None:
        assert self._connection is not None
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                for record in records:
                    self._write(record)
        except sqlite3.Error as error:
            raise Unavailable(f"cannot write the store {self._path}: {error}") from error

    def _write(self, record: Record) -> None:
        assert self._connection is not None
        match record:
            case ForgetAgent(agent_id):
                self._delete("agent", agent_id)
            case ForgetFramework(framework_id):
                self._delete("framework", framework_id)
            case ForgetRole(role):
                self._delete("role", role)
            case _:
                self._connection.execute(
                    "INSERT OR REPLACE INTO records (kind, id, body) VALUES (?, ?, ?)",
                    (_KINDS[type(record)], _id_of(record), json.dumps(asdict(record))),
                )

    def _delete(self, kind: str, record_id: str) -> None:
        assert self._connection is not None
        self._connection.execute("DELETE FROM records WHERE kind = ? AND id = ?", (kind, record_id))

    def _record(self, kind: str, body: str) -> Record:
        try:
            fields = json.loads(body)
            match kind:
                case "master":
                    return MasterRecord(str(fields["cluster"]), int(fields["epoch"]))
                case "agent":
                    return AgentRecord(AgentId(fields["agent_id"]), str(fields["hostname"]))
                case "framework":
                    return FrameworkRecord(
                        FrameworkId(fields["framework_id"]),
                        str(fields["name"]),
                        # A record of before frameworks had several has one `role`.
                        tuple(map(Role, fields.get("roles") or [fields["role"]])),
                        float(fields["failover_timeout_s"]),
                        bool(fields["removed"]),
                    )
                case "role":
                    return RoleRecord(Role(fields["role"]), _settings_of(fields["settings"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"the store {self._path} holds a {kind} that cannot be read: {error!r}"
            ) from error
        raise InvalidRequest(f"the store {self._path} holds a record of unknown kind {kind!r}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _settings_of(fields: Mapping[str, Any]) -> RoleSettings:
    preemption = fields["preemption"]
    return RoleSettings(
        int(fields["weight"]),
        _amounts_of(fields["resource_weights"]),
        _amounts_of(fields["guarantee"]),
        _amounts_of(fields["limit"]),
        None if preemption is None else bool(preemption),
    )


def _amounts_of(fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(milli) for name, milli in fields.items()}


def _id_of(record: MasterRecord | AgentRecord | FrameworkRecord | RoleRecord) -> str:
    match record:
        case MasterRecord():
            return "master"
        case AgentRecord():
            return record.agent_id
        case FrameworkRecord():
            return record.framework_id
        case RoleRecord():
            return record.role
