"""The store in etcd: read at one revision while masters go on writing, and restored.

A process that restores leads meanwhile, so no master can. `schema` says that a copy is being
restored until all records are written: no master begins with a part of them, and restoring again
goes on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.backup.copy_file import Snapshot, Witness
from croupier.master.backup.flags import StoreFlags
from croupier.master.backup.restored import Restored
from croupier.master.core.records import MasterRecord
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.store import etcd_rows
from croupier.master.store.rows import SCHEMA_VERSION, Damaged, Row, decode, encode, sealed
from croupier.model.errors import Conflict, InvalidRequest, Unavailable

# What `leader` says while a copy is being restored.
LEADER = "croupier-master-restore"
LEASE_S = 10.0


async def _snapshot(client: EtcdClient, keys: op.Keys) -> Snapshot:
    """Read all records at one revision; raises InvalidRequest, or Unavailable without etcd."""
    while True:
        try:
            revision, parts, commits = await _read_head(client, keys)
            rows = await _read_rows(client, keys, revision)
            # The last commit is durable, but its records may not all be written yet.
            staged = await etcd_rows.staged_rows(client, keys, parts, revision)
            rows |= {(row.kind, row.id): row for row in staged}
            break
        except Conflict:
            # The revision was compacted meanwhile.
            continue
        except Damaged as error:
            raise _damaged(keys, f"its last commit ({error})") from None
    whole = [row for row in rows.values() if row.body is not None]
    found = rows.get(("master", "master"))
    master = None if found is None or found.body is None else decode("master", found.body)
    assert master is None or isinstance(master, MasterRecord)
    return Snapshot(master, commits, whole)


async def _read_head(client: EtcdClient, keys: op.Keys) -> tuple[int, int, int]:
    """Return the revision, the number of staged parts and the number of the last commit."""
    answer = await client.call(
        op.TXN, pb.TxnRequest(success=[op.get(keys.head), op.get(keys.schema)])
    )
    head, schema = op.found(answer.responses)
    if schema is None or head is None:
        raise InvalidRequest(f"there is no store /{keys.prefix} in etcd")
    if schema.value == etcd_rows.RESTORING:
        raise InvalidRequest(
            f"the store /{keys.prefix} in etcd was not restored completely: restore it again"
        )
    if schema.value != str(SCHEMA_VERSION).encode():
        raise InvalidRequest(
            f"the store /{keys.prefix} in etcd is of version {schema.value[:80]!r}, and this"
            f" release reads {SCHEMA_VERSION}: use the release of the masters that wrote it"
        )
    try:
        return answer.header.revision, *etcd_rows.parse_head(head)
    except Damaged as error:
        raise _damaged(keys, f"its head ({error})") from None


async def _read_rows(
    client: EtcdClient, keys: op.Keys, revision: int
) -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}
    async for kv in etcd_rows.stored_records(client, keys, revision):
        kind, record_id = keys.record_of(kv.key)
        try:
            rows[kind, record_id] = etcd_rows.row_of(keys, kv)
        except (Damaged, zlib.error, InvalidRequest) as error:
            raise _damaged(keys, f"{kind} {record_id!r} ({error})") from None
    return rows


def _damaged(keys: op.Keys, what: str) -> InvalidRequest:
    return InvalidRequest(f"the store /{keys.prefix} in etcd is damaged: {what} cannot be read")


@asynccontextmanager
async def _connected(flags: StoreFlags) -> AsyncIterator[tuple[EtcdClient, str]]:
    """Yield a client and the prefix of the store."""
    assert flags.store.etcd is not None
    client = EtcdClient(flags.store.etcd.endpoints, flags.etcd.read())
    try:
        await client.check()
        yield client, flags.store.etcd.prefix
    finally:
        await client.close()


async def back_up_etcd(flags: StoreFlags) -> Snapshot:
    """Return a snapshot of the store; raises CroupierError if it cannot be read."""
    async with _connected(flags) as (client, prefix):
        return await _snapshot(client, op.Keys(prefix))


async def restore_etcd(
    flags: StoreFlags, decide: Callable[[list[Witness]], Restored], *, replaces: bool, dry_run: bool
) -> None:
    """Write what `decide` makes of what is known of the present store; raises CroupierError."""
    async with _connected(flags) as (client, prefix):
        keys, election = op.Keys(prefix), EtcdElection(client, prefix, LEADER, LEASE_S)
        await _check_no_leader(client, keys)
        try:
            await election.win()
            content = decide(await _witnesses(client, keys))
            await _check_free(client, keys, replaces=replaces)
            if not dry_run:
                await _write(client, keys, election.token, content)
        finally:
            await election.resign()


async def _check_no_leader(client: EtcdClient, keys: op.Keys) -> None:
    """Raise Conflict if a master leads."""
    held, _ = await client.get(keys.leader)
    if held is not None:
        raise Conflict(
            f"the master {held.value.decode(errors='replace')} leads with the store"
            f" /{keys.prefix} in etcd: stop all masters first"
        )


async def _witnesses(client: EtcdClient, keys: op.Keys) -> list[Witness]:
    """Return the position of the existing store; nothing if it is damaged."""
    try:
        snapshot = await _snapshot(client, keys)
    except InvalidRequest:
        return []
    return snapshot.witness(f"the store /{keys.prefix} in etcd")


async def _check_free(client: EtcdClient, keys: op.Keys, *, replaces: bool) -> None:
    """Raise Conflict if there is a store, unless the operator wants to replace it."""
    schema, _ = await client.get(keys.schema)
    question = pb.RangeRequest(key=keys.records, range_end=op.end_of(keys.records), count_only=True)
    count = (await client.call(op.RANGE, question)).count
    if schema is not None and schema.value == etcd_rows.RESTORING:
        return
    if (schema is not None or count) and not replaces:
        raise Conflict(
            f"there is a store /{keys.prefix} in etcd: give --replace, which deletes it, after"
            " you have made a copy of it"
        )


async def _write(client: EtcdClient, keys: op.Keys, token: int, content: Restored) -> None:
    """Replace the store while this process leads with `token`; raises Conflict or Unavailable."""
    clear = [
        op.put(keys.schema, etcd_rows.RESTORING),
        op.delete(keys.records, op.end_of(keys.records)),
        op.delete(keys.staged, op.end_of(keys.staged)),
        op.delete(keys.head),
    ]
    fields = {"mark": "restored", "parts": 0, "commits": content.position.commit}
    finish = [
        op.put(keys.head, sealed(keys.head, json.dumps(fields).encode())),
        op.put(keys.schema, str(SCHEMA_VERSION).encode()),
    ]
    compare = [op.created_at(keys.leader, token)]
    # Each transaction may be executed twice.
    for operations in (clear, *etcd_rows.batches(keys, list(map(encode, content.records))), finish):
        try:
            answer = await client.call(op.TXN, pb.TxnRequest(compare=compare, success=operations))
        except InvalidRequest as error:
            raise Unavailable(f"etcd does not take the copy: {error}") from error
        if not answer.succeeded:
            raise Conflict("another master leads now: stop all masters, and restore again")
