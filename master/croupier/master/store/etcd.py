"""A store in etcd, for the leader among several masters.

Rules:
- **Fenced.** Every transaction requires that the leader's key has the create_revision of our
  election. Writes of a deposed master are refused, however late they arrive.
- **Once.** Every transaction also requires that `head` has the revision of the previous
  transaction, and writes a mark of its own to `head`. So a transaction that is retried because
  its answer was lost is not executed twice. A transaction that a member delays and executes after
  newer ones does nothing: the fence alone would let it overwrite newer records.
- **Atomic.** A commit is one transaction if it fits in one (126 records, 1 MB). A larger commit is
  first *staged* as parts. The transaction that writes the last part notes their number in `head`;
  with that the commit is durable. Only then the records are written, one transaction at a time.
  If the leader dies meanwhile, the next leader's `load` writes them again. A commit that was not
  staged completely has no effect, and its master has not acknowledged it.
- **Numbered and sealed.** `head` counts commits over the life of the cluster, so a store that was
  restored from a snapshot is detected. Each value begins with a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import count
from typing import Final, Protocol

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.core.access_records import TokenId, TokenRecord
from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.store import etcd_rows
from croupier.master.store.protocol import Store
from croupier.master.store.rows import (
    JSON_VERSION,
    SCHEMA_VERSION,
    Damaged,
    NewerRecord,
    Row,
    Rows,
    decode,
    sealed,
)
from croupier.model.errors import Conflict, FailedOver, InvalidRequest, Unavailable
from croupier.process.logging import get_logger

COMMIT_S: Final = 10.0
NAMED: Final = 3

_log = get_logger("croupier.master.store")


async def find_token(client: EtcdClient, prefix: str, token_id: TokenId) -> TokenRecord | None:
    """Return a token in the store of a leader, which may change meanwhile; None if it is absent.

    Raises CroupierError if it cannot be read.
    """
    keys = op.Keys(prefix)
    found, _ = await client.get(keys.record("token", token_id))
    if found is None:
        return None
    try:
        row = etcd_rows.row_of(keys, found)
        record = decode(row.kind, row.body or b"")
    except (Damaged, zlib.error) as error:
        raise Unavailable(f"the record cannot be read: {error}") from None
    assert isinstance(record, TokenRecord)
    return record


class Fence(Protocol):
    """The leadership that protects writes."""

    @property
    def is_won(self) -> bool:
        """Return whether this master leads and can prove it now."""
        ...

    @property
    def token(self) -> int:
        """Return the create_revision of the leader's key."""
        ...

    def fenced(self) -> None:
        """Step down because etcd has refused a write."""


class EtcdStore(Store):
    """Records under `prefix`, written while `fence` is held. Each term begins with `load`.

    There is no place for a mark: a snapshot of etcd contains all that etcd stores. The caller
    closes the client.
    """

    def __init__(self, client: EtcdClient, prefix: str, fence: Fence) -> None:
        """Prepare; `load` reads the store."""
        self._client, self._fence = client, fence
        self._keys = op.Keys(prefix)
        self._marks = count(1)
        self._head = 0
        self._rows = Rows()
        self._is_loaded = False

    async def load(self) -> Registry:
        """Finish a staged commit first; see `Store`. Raises FailedOver if another master leads."""
        self._is_loaded = False
        head, schema, revision = await self._begin()
        self._head = head.mod_revision if head is not None else 0
        if schema is not None:
            self._check_version(schema.value)
        parts, self.commits = self._parse_head(head)
        if parts:
            # Older releases refuse the store from here on.
            await self._transact([self._put_version()], parts)
            rows = await self._staged(parts, revision)
            _log.warning("commit_finished", records=len(rows))
            await self._write_staged(etcd_rows.batches(self._keys, rows), parts)
        # There may also be parts of a commit that never became durable.
        await self._transact([self._put_version(), self._unstage()])
        registry, old = await self._read()
        for batch in etcd_rows.batches(self._keys, old):
            await self._transact(batch)
        self._is_loaded = True
        return registry

    def _put_version(self) -> pb.RequestOp:
        return op.put(self._keys.schema, str(SCHEMA_VERSION).encode())

    async def commit(self, records: Sequence[Record]) -> None:
        """See `Store`; raises FailedOver if another master leads."""
        assert self._is_loaded, "load comes first"
        rows = self._rows.encode_latest(records)
        transactions = etcd_rows.batches(self._keys, rows)
        if len(transactions) == 1:
            await self._transact(transactions[0], is_commit=True)
        elif transactions:
            parts = await self._stage(rows)
            await self._write_staged(transactions, parts)

    async def _begin(self) -> tuple[pb.KeyValue | None, pb.KeyValue | None, int]:
        """Return `head`, the schema and the revision, read while this master leads."""
        keys = self._keys
        question = pb.TxnRequest(
            compare=[op.created_at(keys.leader, self._fence.token)],
            success=[op.get(keys.head), op.get(keys.schema)],
        )
        answer = await self._client.call(op.TXN, question, COMMIT_S)
        if not answer.succeeded:
            raise self._failed_over()
        head, schema = op.found(answer.responses)
        return head, schema, answer.header.revision

    def _check_version(self, text: bytes) -> None:
        # Python refuses to read numbers of thousands of digits.
        if text == etcd_rows.RESTORING:
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd was not restored completely: run"
                " croupier-master restore again"
            )
        version = int(text) if text.isdigit() and len(text) < 100 else 0
        if version > SCHEMA_VERSION:
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd is of version {version}; this master"
                f" knows only {SCHEMA_VERSION}: use the newer release that wrote it"
            )
        if version < JSON_VERSION:
            raise InvalidRequest(
                f"etcd holds {text[:80]!r} at {self._keys.schema.decode()}, which is no version:"
                " is the prefix another program's?"
            )

    async def _read(self) -> tuple[Registry, list[Row]]:
        while True:
            try:
                return await self._read_pages()
            except Conflict:
                _log.info("load_again", reason="compacted")

    async def _read_pages(self) -> tuple[Registry, list[Row]]:
        """Return all records as of one revision, and the rows of those in an older form.

        Raises Conflict if the revision was compacted meanwhile.
        """
        registry, old, bad = Registry(), list[Row](), list[str]()
        async for kv in etcd_rows.stored_records(self._client, self._keys):
            try:
                row = etcd_rows.row_of(self._keys, kv)
                registry.apply(self._rows.decode(row.kind, row.body or b""))
            except NewerRecord as error:
                raise InvalidRequest(
                    f"the store /{self._keys.prefix} in etcd holds records of a newer release"
                    f" ({error}): use that release"
                ) from None
            except (InvalidRequest, Damaged, zlib.error) as error:
                kind, record_id = self._keys.record_of(kv.key)
                bad.append(f"{kind} {record_id!r} ({error})")
                continue
            if etcd_rows.is_old(kv):
                old.append(row)
        if bad:
            others = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd holds records that cannot be read:"
                f" {'; '.join(bad[:NAMED])}{others}"
            )
        return registry, old

    async def _stage(self, rows: Sequence[Row]) -> int:
        """Make a large commit durable; return the number of its parts."""
        parts = etcd_rows.parts_of(rows)
        for number, part in enumerate(parts, 1):
            put, is_last = op.put(self._keys.part(number), part), number == len(parts)
            await self._transact([put], len(parts) if is_last else 0, is_commit=is_last)
        return len(parts)

    async def _staged(self, parts: int, revision: int) -> list[Row]:
        try:
            return await etcd_rows.staged_rows(self._client, self._keys, parts, revision)
        except Damaged as error:
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd holds a last commit, staged in"
                f" {parts} parts, that cannot be read: {error}"
            ) from error

    async def _write_staged(self, transactions: Sequence[list[pb.RequestOp]], parts: int) -> None:
        """Write the records of a staged commit; `head` holds `parts` until the last batch."""
        *first, last = transactions
        for batch in first:
            await self._transact(batch, parts)
        await self._transact([*last, self._unstage()])

    def _unstage(self) -> pb.RequestOp:
        return op.delete(self._keys.staged, op.end_of(self._keys.staged))

    async def _transact(
        self, operations: Sequence[pb.RequestOp], parts: int = 0, *, is_commit: bool = False
    ) -> None:
        """Execute all `operations` once, while this master leads.

        From then on `parts` parts are staged. With `is_commit`, a commit is complete.
        """
        keys, token = self._keys, self._fence.token
        commits = self.commits + is_commit
        fields = {"mark": f"{token}.{next(self._marks)}", "parts": parts, "commits": commits}
        mark = sealed(keys.head, json.dumps(fields).encode())
        question = pb.TxnRequest(
            compare=[op.created_at(keys.leader, token), op.modified_at(keys.head, self._head)],
            success=[*operations, op.put(keys.head, mark)],
            failure=[op.get(keys.leader), op.get(keys.head)],
        )
        if not self._fence.is_won:
            raise Unavailable("leadership was lost before the commit")
        try:
            answer = await self._client.call(op.TXN, question, COMMIT_S, lambda: self._fence.is_won)
        except InvalidRequest as error:
            raise Unavailable(f"etcd does not take the commit: {error}") from error
        if answer.succeeded:
            self._head, self.commits = answer.header.revision, commits
            return
        leader, head = op.found(answer.responses)
        if leader is None or leader.create_revision != token:
            raise self._failed_over()
        if head is None or head.value != mark:
            raise Unavailable(f"another program writes to /{keys.prefix} in etcd")
        # An earlier attempt had succeeded, but its answer was lost.
        self._head, self.commits = head.mod_revision, commits

    def _failed_over(self) -> FailedOver:
        self._fence.fenced()
        return FailedOver("this master no longer leads: the leader's key in etcd is not its own")

    def _parse_head(self, head: pb.KeyValue | None) -> tuple[int, int]:
        """Return the number of staged parts and the number of the last commit."""
        if head is None:
            return 0, 0
        try:
            return etcd_rows.parse_head(head)
        except Damaged as error:
            raise InvalidRequest(
                f"etcd holds {head.value[:80]!r} at {self._keys.head.decode()}, which is none of"
                " ours: is the prefix another program's?"
            ) from error
