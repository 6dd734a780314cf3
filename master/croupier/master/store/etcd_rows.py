"""Rows as values of etcd, sealed with a checksum and perhaps compressed; and how to read them."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.endpoint import TooLarge
from croupier.master.store.rows import (
    PREFIX,
    Damaged,
    Row,
    converted,
    converted_commit,
    sealed,
    unsealed,
)
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.v1.storage_pb2 import StagedCommit, StoredRow

# etcd allows 128 operations and 1.5 MiB; a commit needs two operations besides its records.
MAX_RECORDS: Final = 126
MAX_BYTES: Final = 1_000_000
# Larger bodies are compressed, since etcd limits the size of requests.
COMPRESS_BYTES: Final = 64 * 1024
# etcd counts all remaining keys for each page, so large pages are cheaper. The page size adapts to
# the size of the records read so far, and shrinks if an answer would exceed the limit.
FIRST_PAGE: Final = 64
MOST_PAGE: Final = 5_000
PAGE_BYTES: Final = 16 * 1024 * 1024
# The first byte of a value: whether its body is compressed. JSON and zlib's output begin otherwise.
PLAIN: Final = b"="
PACKED: Final = b"z"
# The value of `schema` while a copy is being restored. No master reads it as a version.
RESTORING: Final = b"restoring"


async def stored_records(
    client: EtcdClient, keys: op.Keys, revision: int = 0
) -> AsyncIterator[pb.KeyValue]:
    """Yield all records at a revision, page by page; 0 is the present one.

    Raises Conflict if the revision was compacted meanwhile; InvalidRequest if a record is too
    large.
    """
    start, end = keys.records, op.end_of(keys.records)
    page, more = FIRST_PAGE, True
    while more:
        question = pb.RangeRequest(key=start, range_end=end, limit=page, revision=revision)
        try:
            answer = await client.call(op.RANGE, question)
        except TooLarge as error:
            if page == 1:
                raise InvalidRequest(str(error)) from error
            page = max(1, page // 8)
            continue
        mean = answer.ByteSize() // max(1, len(answer.kvs))
        page = min(max(1, PAGE_BYTES // max(1, mean)), MOST_PAGE)
        revision, more = revision or answer.header.revision, answer.more
        for kv in answer.kvs:
            yield kv
            start = kv.key + b"\0"


async def staged_rows(client: EtcdClient, keys: op.Keys, parts: int, revision: int) -> list[Row]:
    """Return the rows of a commit that is staged in `parts` parts; raises Damaged."""
    data = b""
    for number in range(1, parts + 1):
        answer = await client.call(
            op.RANGE, pb.RangeRequest(key=keys.part(number), revision=revision)
        )
        data += b"".join(kv.value for kv in answer.kvs)
    try:
        return rows_of(data) if parts else []
    except (zlib.error, ValueError, TypeError, DecodeError, InvalidRequest) as error:
        raise Damaged(str(error)) from error


def parse_head(head: pb.KeyValue) -> tuple[int, int]:
    """Return the numbers of staged parts and of the last commit; raises Damaged if not ours."""
    try:
        fields = json.loads(unsealed(head.key, head.value))
        return int(fields["parts"]), int(fields["commits"])
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        raise Damaged(str(error)) from error


def row_of(keys: op.Keys, kv: pb.KeyValue) -> Row:
    """Return the row that is stored as `kv`, converted if an older release wrote it.

    Raises:
        Damaged: if the checksum does not match.
        zlib.error: if it cannot be decompressed.
        InvalidRequest: if an older release wrote it, and it is no record.
    """
    kind, row_id = keys.record_of(kv.key)
    value = unsealed(kv.key, kv.value)
    if is_old(kv):
        return converted(kind, zlib.decompress(value) if value[:1] == b"x" else value)
    return Row(kind, row_id, zlib.decompress(value[1:]) if value[:1] == PACKED else value[1:])


def is_old(kv: pb.KeyValue) -> bool:
    """Return whether an older release wrote the record that is stored as `kv`."""
    return kv.value[PREFIX : PREFIX + 1] not in (PLAIN, PACKED)


def batches(keys: op.Keys, rows: Sequence[Row]) -> list[list[pb.RequestOp]]:
    """Return the operations that write `rows`, by transaction; raises Unavailable if too large."""
    found: list[list[pb.RequestOp]] = []
    room = 0
    for row in rows:
        operation, size = _operation(keys, row)
        if size > MAX_BYTES:
            raise Unavailable(
                f"etcd takes no {row.kind} of {size} bytes ({row.id[:80]}); {MAX_BYTES} is most"
            )
        if not found or len(found[-1]) == MAX_RECORDS or size > room:
            found.append([])
            room = MAX_BYTES
        found[-1].append(operation)
        room -= size
    return found


def _operation(keys: op.Keys, row: Row) -> tuple[pb.RequestOp, int]:
    key = keys.record(row.kind, row.id)
    if row.body is None:
        return op.delete(key), len(key)
    is_large = len(row.body) > COMPRESS_BYTES
    value = sealed(key, PACKED + zlib.compress(row.body, 1) if is_large else PLAIN + row.body)
    return op.put(key, value), len(key) + len(value)


def parts_of(rows: Sequence[Row]) -> list[bytes]:
    """Return the parts as which a large commit is staged."""
    commit = StagedCommit(rows=[StoredRow(kind=kind, id=i, body=body) for kind, i, body in rows])
    data = PACKED + zlib.compress(commit.SerializeToString(), 1)
    return [data[at : at + MAX_BYTES] for at in range(0, len(data), MAX_BYTES)]


def rows_of(parts: bytes) -> list[Row]:
    """Return the rows of a staged commit; `parts` are its parts, joined.

    Raises zlib.error, ValueError, TypeError, DecodeError, InvalidRequest if it cannot be read.
    """
    if parts[:1] != PACKED:
        return converted_commit(parts)
    rows = StagedCommit.FromString(zlib.decompress(parts[1:])).rows
    return [Row(row.kind, row.id, row.body if row.HasField("body") else None) for row in rows]
