"""The store in etcd as a snapshot: all keys at one revision, while masters go on writing."""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

from google.protobuf.message import DecodeError

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.backup.source import Snapshot
from croupier.master.core.records import MasterRecord
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.faults import TooLarge
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import RANGE, TXN
from croupier.master.store.etcd_rows import FIRST_PAGE, RESTORING, page_after, row_of, rows_of
from croupier.master.store.rows import SCHEMA_VERSION, Damaged, Row, decode, unsealed
from croupier.model.errors import Conflict, InvalidRequest


class _Head(NamedTuple):
    revision: int
    parts: int
    commits: int


async def etcd_snapshot(client: EtcdClient, prefix: str) -> Snapshot:
    """Read all records below `prefix` at one revision.

    Raises:
        InvalidRequest: if there is no store, or it is damaged or of another release.
        Unavailable: if etcd does not answer.
    """
    keys = Keys(prefix)
    while True:
        try:
            head = await _read_head(client, keys)
            rows = await _read_rows(client, keys, head.revision)
            if head.parts:
                # The last commit is durable, but its records are not all written yet.
                staged = await _read_parts(client, keys, head)
                rows |= {(row.kind, row.id): row for row in staged}
            break
        except Conflict:
            # The revision was compacted meanwhile.
            continue
    whole = [row for row in rows.values() if row.body is not None]
    found = rows.get(("master", "master"))
    master = None if found is None or found.body is None else decode("master", found.body)
    assert master is None or isinstance(master, MasterRecord)
    return Snapshot(master, head.commits, SCHEMA_VERSION, iter(whole))


async def _read_head(client: EtcdClient, keys: Keys) -> _Head:
    question = pb.TxnRequest(success=[op.get(keys.head), op.get(keys.schema)])
    answer = await client.call(TXN, question)
    head, schema = op.found(answer.responses)
    if schema is None or head is None:
        raise InvalidRequest(f"there is no store /{keys.prefix} in etcd")
    if schema.value == RESTORING:
        raise InvalidRequest(
            f"the store /{keys.prefix} in etcd was not restored completely: restore it again"
        )
    if schema.value != str(SCHEMA_VERSION).encode():
        raise InvalidRequest(
            f"the store /{keys.prefix} in etcd is of version {schema.value[:80]!r}, and this"
            f" release reads {SCHEMA_VERSION}: use the release of the masters that wrote it"
        )
    try:
        fields = json.loads(unsealed(head.key, head.value))
        return _Head(answer.header.revision, int(fields["parts"]), int(fields["commits"]))
    except (Damaged, ValueError, TypeError, KeyError) as error:
        raise _damaged(keys, f"its head ({error})") from None


async def _read_rows(client: EtcdClient, keys: Keys, revision: int) -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}
    start, end = keys.records, op.end_of(keys.records)
    page, more = FIRST_PAGE, True
    while more:
        question = pb.RangeRequest(key=start, range_end=end, limit=page, revision=revision)
        try:
            answer = await client.call(RANGE, question)
        except TooLarge as error:
            if page == 1:
                raise InvalidRequest(str(error)) from error
            page = max(1, page // 8)
            continue
        for kv in answer.kvs:
            kind, record_id = keys.record_of(kv.key)
            try:
                rows[kind, record_id] = row_of(keys, kv)
            except (Damaged, zlib.error, InvalidRequest) as error:
                raise _damaged(keys, f"{kind} {record_id!r} ({error})") from None
        page, more = page_after(answer), answer.more
        if answer.kvs:
            start = answer.kvs[-1].key + b"\0"
    return rows


async def _read_parts(client: EtcdClient, keys: Keys, head: _Head) -> list[Row]:
    data = b""
    for number in range(1, head.parts + 1):
        question = pb.RangeRequest(key=keys.part(number), revision=head.revision)
        answer = await client.call(RANGE, question)
        data += b"".join(kv.value for kv in answer.kvs)
    try:
        return rows_of(data)
    except (zlib.error, ValueError, TypeError, DecodeError) as error:
        raise _damaged(keys, f"its last commit ({error})") from None


def _damaged(keys: Keys, what: str) -> InvalidRequest:
    return InvalidRequest(f"the store /{keys.prefix} in etcd is damaged: {what} cannot be read")
