"""A store in etcd, for the one of several masters that leads.

Rules:
- **Fenced.** Every transaction holds only while the leader's key is the one of our election,
  by its create_revision. What a deposed master writes is refused, however late it arrives.
- **Once.** Every transaction also holds only while `head` stands at the revision of the one
  before, and moves it, leaving its own mark. So one that is sent again, because its answer
  did not come, is not done twice; and one that a member held back and does at last, after
  newer ones, does nothing: the fence alone would let it put old records over newer ones.
- **Whole.** A commit is one transaction if it fits in one (126 records, 1 MB). A larger one
  is first *staged*, as parts that no reader takes for records; the transaction that writes the
  last part says so in `head`, and with that the commit is made. Only then are its records
  written, a transaction at a time, which is done again by the next leader's `load` if this one
  dies meanwhile. A commit of which not all was staged is as if it never was: its master told
  nobody of it.
- **Numbered and sealed.** `head` also counts the commits, over the life of the cluster; so a store
  that was restored from a snapshot has the number of then. Each value begins with a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import count
from typing import Final, Protocol

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.core.records import Record, Registry
from croupier.master.etcd.client import EtcdClient, compared, end_of, kv_of
from croupier.master.etcd.faults import TooLarge
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import RANGE, TXN
from croupier.master.store.checksums import Damaged, is_sealed, sealed, unsealed
from croupier.master.store.records_json import SCHEMA_VERSION, Row, UnknownKind, decode, encode
from croupier.model.errors import Conflict, FailedOver, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition
from croupier.process.logging import get_logger

# etcd's own limits are 128 operations, two of which are ours, and 1.5 MiB.
MAX_RECORDS: Final = 126
MAX_BYTES: Final = 1_000_000
# A body above this is kept compressed: names full of control characters are six times as
# long in JSON, and etcd has a limit.
COMPRESS_BYTES: Final = 64 * 1024
# etcd counts all that is left for each page, so pages grow to what records of the size that was
# seen last make; if the next are larger than an answer may be, they shrink.
FIRST_PAGE: Final = 64
MOST_PAGE: Final = 5_000
PAGE_BYTES: Final = 16 * 1024 * 1024
COMMIT_S: Final = 10.0
NAMED: Final = 3
# Values have had a checksum from this version on.
SEALED_VERSION: Final = 3

_log = get_logger("croupier.master.store")


class Fence(Protocol):
    """The leadership that protects what is written."""

    @property
    def is_won(self) -> bool:
        """Whether this master leads and can prove it now."""
        ...

    @property
    def token(self) -> int:
        """The create_revision of the leader's key."""
        ...

    def fenced(self) -> None:
        """A write was refused: another has taken over."""


class EtcdStore:
    """Keeps records under `prefix` while `fence` is held. Each term begins with `load`.

    Attributes:
        commits: the number of the last durable commit.
        marked: none; etcd has no place that a snapshot would leave out.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        fence: Fence,
    ) -> None:
        """Nothing is read before `load`."""
        self._client, self._fence = client, fence
        self._keys = Keys(prefix)
        self._marks = count(1)
        self._head = 0
        self._version = 0
        self._is_loaded = False
        self.commits = 0
        self.marked: StorePosition | None = None

    async def load(self) -> Registry:
        """Everything that was committed; finishes what the last leader left half written.

        Raises:
            Unavailable: if etcd cannot be read, or leadership is lost.
            FailedOver: if another master leads.
            InvalidRequest: if records cannot be read, or are of a newer version.
        """
        self._is_loaded = False
        head, schema, revision = await self._begin()
        self._head = head.mod_revision if head is not None else 0
        self._version = SCHEMA_VERSION if schema is None else self._read_version(schema.value)
        parts, self.commits = self._parse_head(head)
        if parts:
            rows = await self._staged(parts, revision)
            _log.warning("commit_finished", records=len(rows))
            await self._write_staged(self._batches(rows), parts)
        # Parts may also be left of a commit that was never made.
        await self._transact([*self._put_version(self._version), self._unstage()])
        registry = await self._read()
        if self._version < SCHEMA_VERSION:
            await self._migrate(registry)
        self._is_loaded = True
        return registry

    async def _migrate(self, registry: Registry) -> None:
        """Write every record as this release does; an older one refuses what follows."""
        await self._write([encode(record) for record in registry.records()])
        self._version = SCHEMA_VERSION
        await self._transact(self._put_version(SCHEMA_VERSION))

    def _put_version(self, version: int) -> list[pb.RequestOp]:
        put = pb.PutRequest(key=self._keys.schema, value=str(version).encode())
        return [pb.RequestOp(put=put)]

    async def commit(self, records: Sequence[Record]) -> None:
        """Make all of `records` durable, or none; the last of a kind and id wins.

        Raises:
            Unavailable: if etcd does not take them in time, or leadership is lost meanwhile.
            FailedOver: if another master leads.
        """
        assert self._is_loaded, "load comes first"
        rows: dict[tuple[str, str], Row] = {}
        for record in records:
            row = encode(record)
            rows.pop((row.kind, row.id), None)
            rows[row.kind, row.id] = row
        await self._write(list(rows.values()))

    async def _write(self, rows: Sequence[Row]) -> None:
        batches = self._batches(rows)
        if len(batches) == 1:
            await self._transact(batches[0], is_commit=True)
        elif batches:
            parts = await self._stage(rows)
            await self._write_staged(batches, parts)

    async def mark(self, position: StorePosition) -> None:
        """There is no place for it."""

    async def check(self) -> None:
        """The election tells when etcd is gone."""

    async def close(self) -> None:
        """Nothing to let go of: the client is its maker's."""

    async def _begin(self) -> tuple[pb.KeyValue | None, pb.KeyValue | None, int]:
        """`head`, the schema and the revision, of a moment at which we lead."""
        keys = self._keys
        question = pb.TxnRequest(
            compare=[compared(keys.leader, created=self._fence.token)],
            success=[
                pb.RequestOp(range=pb.RangeRequest(key=keys.head)),
                pb.RequestOp(range=pb.RangeRequest(key=keys.schema)),
            ],
        )
        answer = await self._client.call(TXN, question, COMMIT_S)
        if not answer.succeeded:
            raise self._failed_over()
        head, schema = kv_of(answer.responses)
        return head, schema, answer.header.revision

    def _read_version(self, told: bytes) -> int:
        # Of more digits than Python reads there is no version either.
        version = int(told) if told.isdigit() and len(told) < 100 else 0
        if version > SCHEMA_VERSION:
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd is of version {version}; this master"
                f" knows only {SCHEMA_VERSION}: use the newer release that wrote it"
            )
        if version < 1:
            raise InvalidRequest(
                f"etcd holds {told[:80]!r} at {self._keys.schema.decode()}, which is no version:"
                " is the prefix another program's?"
            )
        return version

    async def _read(self) -> Registry:
        while True:
            try:
                return await self._read_pages()
            except Conflict:
                _log.info("load_again", reason="compacted")

    async def _read_pages(self) -> Registry:
        """All records as of one revision.

        Raises:
            Conflict: if that was compacted meanwhile.
        """
        registry, bad = Registry(), list[str]()
        start, end = self._keys.records, end_of(self._keys.records)
        revision, page, more = 0, FIRST_PAGE, True
        while more:
            question = pb.RangeRequest(key=start, range_end=end, limit=page, revision=revision)
            try:
                answer = await self._client.call(RANGE, question, COMMIT_S)
            except TooLarge as error:
                if page == 1:
                    raise InvalidRequest(str(error)) from error
                page = max(1, page // 8)
                continue
            page = _page_after(answer)
            revision = revision or answer.header.revision
            for kv in answer.kvs:
                kind, record_id = self._keys.record_of(kv.key)
                try:
                    registry.apply(decode(kind, _unpacked(self._unsealed(kv))))
                except UnknownKind as error:
                    raise InvalidRequest(
                        f"the store /{self._keys.prefix} in etcd holds records of a newer release"
                        f" ({error}): use that release"
                    ) from None
                except (InvalidRequest, Damaged, zlib.error) as error:
                    bad.append(f"{kind} {record_id!r} ({error})")
            more = answer.more
            if answer.kvs:
                start = answer.kvs[-1].key + b"\0"
        if bad:
            others = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd holds records that cannot be read:"
                f" {'; '.join(bad[:NAMED])}{others}"
            )
        return registry

    def _unsealed(self, kv: pb.KeyValue) -> bytes:
        """The value without its checksum, which those of older versions have not."""
        if self._version < SEALED_VERSION and not is_sealed(kv.value):
            return kv.value
        return unsealed(kv.key, kv.value)

    def _batches(self, rows: Sequence[Row]) -> list[list[pb.RequestOp]]:
        """The operations that write `rows`, by transaction.

        Raises:
            Unavailable: if one record is too large for any.
        """
        batches: list[list[pb.RequestOp]] = []
        room = 0
        for row in rows:
            operation, size = self._operation(row)
            if size > MAX_BYTES:
                raise Unavailable(
                    f"etcd takes no {row.kind} of {size} bytes ({row.id[:80]}); {MAX_BYTES} is most"
                )
            if not batches or len(batches[-1]) == MAX_RECORDS or size > room:
                batches.append([])
                room = MAX_BYTES
            batches[-1].append(operation)
            room -= size
        return batches

    def _operation(self, row: Row) -> tuple[pb.RequestOp, int]:
        key = self._keys.record(row.kind, row.id)
        if row.body is None:
            return pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=key)), len(key)
        value = sealed(key, _packed(row.body.encode()))
        return pb.RequestOp(put=pb.PutRequest(key=key, value=value)), len(key) + len(value)

    async def _stage(self, rows: Sequence[Row]) -> int:
        """Make a commit of many transactions durable as a whole; in how many parts."""
        told = zlib.compress(json.dumps(rows).encode(), 1)
        parts = [told[at : at + MAX_BYTES] for at in range(0, len(told), MAX_BYTES)]
        for number, part in enumerate(parts, 1):
            put = pb.PutRequest(key=self._keys.part(number), value=part)
            is_last = number == len(parts)
            await self._transact(
                [pb.RequestOp(put=put)], len(parts) if is_last else 0, is_commit=is_last
            )
        return len(parts)

    async def _staged(self, parts: int, revision: int) -> list[Row]:
        told = b""
        for number in range(1, parts + 1):
            question = pb.RangeRequest(key=self._keys.part(number), revision=revision)
            answer = await self._client.call(RANGE, question, COMMIT_S)
            if not answer.kvs:
                break
            told += answer.kvs[0].value
        try:
            return [Row(*row) for row in json.loads(zlib.decompress(told))]
        except (zlib.error, ValueError, TypeError) as error:
            raise InvalidRequest(
                f"the store /{self._keys.prefix} in etcd holds a last commit, staged in"
                f" {parts} parts, that cannot be read: {error}"
            ) from error

    async def _write_staged(self, batches: Sequence[list[pb.RequestOp]], parts: int) -> None:
        """Write the records of a commit that is staged: `parts` stands until the last one."""
        *first, last = batches
        for batch in first:
            await self._transact(batch, parts)
        await self._transact([*last, self._unstage()])

    def _unstage(self) -> pb.RequestOp:
        first = self._keys.staged
        return pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=first, range_end=end_of(first)))

    async def _transact(
        self, operations: Sequence[pb.RequestOp], parts: int = 0, *, is_commit: bool = False
    ) -> None:
        """Do `operations`, all and once, while we lead; `parts` are staged then.

        With it a commit is made if `is_commit`.
        """
        keys, token = self._keys, self._fence.token
        commits = self.commits + is_commit
        told = {"mark": f"{token}.{next(self._marks)}", "parts": parts, "commits": commits}
        mark = json.dumps(told).encode()
        if self._version >= SEALED_VERSION:
            mark = sealed(keys.head, mark)
        question = pb.TxnRequest(
            compare=[
                compared(keys.leader, created=token),
                compared(keys.head, modified=self._head),
            ],
            success=[
                *operations,
                pb.RequestOp(put=pb.PutRequest(key=keys.head, value=mark)),
            ],
            failure=[
                pb.RequestOp(range=pb.RangeRequest(key=keys.leader)),
                pb.RequestOp(range=pb.RangeRequest(key=keys.head)),
            ],
        )
        if not self._fence.is_won:
            raise Unavailable("leadership was lost before the commit")
        try:
            answer = await self._client.call(TXN, question, COMMIT_S, lambda: self._fence.is_won)
        except InvalidRequest as error:
            raise Unavailable(f"etcd does not take the commit: {error}") from error
        if answer.succeeded:
            self._head, self.commits = answer.header.revision, commits
            return
        leader, head = kv_of(answer.responses)
        if leader is None or leader.create_revision != token:
            raise self._failed_over()
        if head is None or head.value != mark:
            raise Unavailable(f"/{keys.prefix} in etcd is written by somebody else")
        # It had been done; only the answer did not come.
        self._head, self.commits = head.mod_revision, commits

    def _failed_over(self) -> FailedOver:
        self._fence.fenced()
        return FailedOver("this master leads no more: the leader's key in etcd is not its own")

    def _parse_head(self, head: pb.KeyValue | None) -> tuple[int, int]:
        """How many parts are staged, and the number of the last commit."""
        if head is None:
            return 0, 0
        try:
            told = json.loads(self._unsealed(head))
            return int(told["parts"]), int(told.get("commits", 0))
        except (Damaged, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise InvalidRequest(
                f"etcd holds {head.value[:80]!r} at {self._keys.head.decode()}, which is none of"
                " ours: is the prefix another program's?"
            ) from error


def _page_after(answer: pb.RangeResponse) -> int:
    """How many records to ask for next."""
    mean = answer.ByteSize() // max(1, len(answer.kvs))
    return min(max(1, PAGE_BYTES // max(1, mean)), MOST_PAGE)


def _packed(body: bytes) -> bytes:
    return zlib.compress(body, 1) if len(body) > COMPRESS_BYTES else body


def _unpacked(value: bytes) -> bytes:
    """JSON is never taken for what zlib makes, which begins with an x."""
    return zlib.decompress(value) if value[:1] == b"x" else value
