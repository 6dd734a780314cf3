"""The file of a copy: all records of a store at one commit.

    {"croupier_backup": 1, "cluster": ..., "commit": ...}     what it is a copy of
    ["KIND", "ID", "BODY"]                                    each record, its body in base64
    {"records": N, "sha256": "..."}                           over every byte before this line

Every line is JSON. A copy of SQLite and one of etcd have the same form. The file has mode 0600,
since commands of tasks and the secret of the cluster are in it; no error quotes a record.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from croupier.master.core.records import MasterRecord, Record
from croupier.master.core.registry import Registry
from croupier.master.store.rows import (
    JSON_VERSION,
    SCHEMA_VERSION,
    NewerRecord,
    Row,
    converted,
    decode,
)
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition
from croupier.net.version import croupier_version
from croupier.process.durable_files import os_errors_as, sync_directory

# The version of this format.
FORMAT: Final = 1
MAX_LINE: Final = 64 * 1024 * 1024
_FORMAT_KEY: Final = "croupier_backup"


@dataclass(frozen=True, slots=True)
class Witness:
    """What is known at `name` of the store that a copy replaces: a `position` of the cluster."""

    name: str
    cluster: str
    position: StorePosition


@dataclass(frozen=True, slots=True)
class CopyHead:
    """The first line of a copy.

    Attributes:
        cluster: the name of the cluster.
        generation, epoch, term, commit: the position of the store; see `StorePosition`.
        taken_at: the time of the copy, UTC, as `2026-11-23T00:42:42Z`.
        version: the version of the records' format.
        release: of the program that made the copy.
        store: the kind of store, `sqlite` or `etcd`.
    """

    cluster: str
    generation: int
    epoch: int
    term: str
    commit: int
    taken_at: str
    version: int
    release: str
    store: str

    @property
    def position(self) -> StorePosition:
        """The position of the store."""
        return StorePosition(self.generation, self.epoch, self.term, self.commit)

    def __str__(self) -> str:
        return f"cluster {self.cluster}, {self.position}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A store at one commit.

    Attributes:
        master: the record of the cluster; None if no master has led with the store.
        commits: the number of the last commit.
        rows: all records; each is checked when it is read.
    """

    master: MasterRecord | None
    commits: int
    rows: Iterable[Row]

    def witness(self, name: str) -> list[Witness]:
        """Return what the store called `name` knows; nothing if no master has led with it."""
        if self.master is None:
            return []
        return [Witness(name, self.master.cluster, self.master.position(self.commits))]


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole copy, read and checked."""

    head: CopyHead
    records: tuple[Record, ...]

    @property
    def master(self) -> MasterRecord:
        """The record of the cluster."""
        return next(each for each in self.records if isinstance(each, MasterRecord))


def write_copy(path: Path, snapshot: Snapshot, kind: str) -> tuple[CopyHead, int]:
    """Write a copy of a `kind` of store and sync it; return its head and number of records.

    It appears at `path` as a whole or not at all.

    Raises:
        InvalidRequest: if no master has led with that store, so there is nothing to copy.
        Conflict: if there is a file at `path`.
        Unavailable: if it cannot be written.
    """
    if snapshot.master is None:
        raise InvalidRequest("the store is empty: no master has started with it yet")
    end = snapshot.master.position(snapshot.commits)
    head = CopyHead(
        snapshot.master.cluster,
        end.generation,
        end.epoch,
        end.term,
        end.commit,
        taken_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        version=SCHEMA_VERSION,
        release=croupier_version(),
        store=kind,
    )
    if os.path.lexists(path):
        raise _exists(path)
    try:
        fd, scratch = tempfile.mkstemp(".partial", f".{path.name}.", path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                count = _write(file, head, snapshot.rows)
                file.flush()
                os.fsync(fd)
            # A link, unlike a rename, replaces no file.
            os.link(scratch, path)
        finally:
            with suppress(FileNotFoundError):
                Path(scratch).unlink()
        sync_directory(path.parent)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from error
    return head, count


def _exists(path: Path) -> Conflict:
    return Conflict(f"{path} exists: give another --output, or remove it")


def _write(file: BinaryIO, head: CopyHead, rows: Iterable[Row]) -> int:
    digest, count = hashlib.sha256(), 0

    def write(line: object) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        digest.update(data)
        file.write(data)

    write({_FORMAT_KEY: FORMAT, **asdict(head)})
    for row in rows:
        write([row.kind, row.id, base64.b64encode(row.body or b"").decode()])
        count += 1
    file.write(_last_line(count, digest.hexdigest()))
    return count


def _last_line(count: int, digest: str) -> bytes:
    return json.dumps({"records": count, "sha256": digest}).encode() + b"\n"


def read_copy(path: Path) -> Copy:
    """Read and check a copy; raises InvalidRequest if unusable, Unavailable if unreadable."""
    with os_errors_as(Unavailable, f"cannot read {path}"), path.open("rb") as file:
        head = _read_head(file, path)
        file.seek(0)
        rows = list(_checked_rows(file, path))
    registry, records = Registry(), []
    for kind, body in rows:
        try:
            record = decode(kind, _body(head, kind, body))
        except NewerRecord as error:
            raise _newer(path, str(error)) from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{path} holds a record that cannot be read: {error}") from None
        registry.apply(record)
        records.append(record)
    master = registry.master
    if master is None or (master.cluster, master.epoch) != (head.cluster, head.epoch):
        raise _damaged(path, "its first line does not fit its records")
    return Copy(head, tuple(records))


def _body(head: CopyHead, kind: str, text: str) -> bytes:
    if head.version == JSON_VERSION:
        return converted(kind, text).body or b""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest("its body is not in base64") from None


def _read_head(file: BinaryIO, path: Path) -> CopyHead:
    try:
        fields: Any = json.loads(file.readline(MAX_LINE))
        number = int(fields.pop(_FORMAT_KEY))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidRequest(
            f"{path} is not a copy that croupier-master backup made, or its beginning is damaged"
        ) from None
    if number > FORMAT:
        raise _newer(path, f"its format is {number}, and this release knows {FORMAT}")
    try:
        head = CopyHead(**fields)
        if not all(type(getattr(head, name)) is int for name in ("epoch", "commit", "version")):
            raise TypeError
    except TypeError:
        raise _damaged(path, "its first line is incomplete") from None
    if head.version > SCHEMA_VERSION:
        raise _newer(path, f"its records have version {head.version}")
    return head


def _checked_rows(file: BinaryIO, path: Path) -> Iterator[tuple[str, str]]:
    """Yield kind and body of each record; raise at the end unless the checksum matches."""
    digest = hashlib.sha256(file.readline(MAX_LINE))
    for count, line in enumerate(file):
        try:
            fields: Any = json.loads(line)
            if isinstance(fields, dict):
                if line != _last_line(count, digest.hexdigest()):
                    raise _damaged(path, "its checksum does not match")
                if file.read(1):
                    raise _damaged(path, "it goes on after its last line")
                return
            kind, _, body = map(str, fields)
        except (ValueError, TypeError, RecursionError):
            raise _damaged(path, f"line {count + 2} is no record") from None
        digest.update(line)
        yield kind, body
    raise _damaged(path, "its end is missing")


def _damaged(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(f"the copy {path} is damaged ({what}): use another copy")


def _newer(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(f"the copy {path} is of a newer release ({what}): use that release")
