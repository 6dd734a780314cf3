"""Restoring a copy to etcd.

The restoring process leads meanwhile, so no master can. `schema` says that a copy is being restored
until all records are written: no master begins with a part of them, and restoring again goes on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.backup.etcd_source import etcd_snapshot
from croupier.master.backup.restored import Restored, Witness
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import RANGE, TXN
from croupier.master.store.etcd_rows import RESTORING, batches
from croupier.master.store.rows import SCHEMA_VERSION, encode, sealed
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition

# What `leader` says while a copy is being restored.
LEADER = "croupier-master-restore"
LEASE_S = 10.0


class EtcdRestore:
    """The store below `prefix`, while this process leads."""

    def __init__(self, client: EtcdClient, prefix: str) -> None:
        self._client, self._keys = client, Keys(prefix)
        self._election = EtcdElection(client, prefix, LEADER, LEASE_S)

    async def lead(self) -> None:
        """Lead, if no master does.

        Raises:
            Conflict: if a master leads.
            CroupierError: if etcd does not answer.
        """
        held, _ = await self._client.get(self._keys.leader)
        if held is not None:
            raise Conflict(
                f"the master {held.value.decode(errors='replace')} leads with the store"
                f" /{self._keys.prefix} in etcd: stop all masters first"
            )
        await self._election.win()

    async def close(self) -> None:
        """Stop leading."""
        await self._election.close()

    async def witnesses(self) -> list[Witness]:
        """Return the position of the existing store; nothing if it is damaged."""
        try:
            snapshot = await etcd_snapshot(self._client, self._keys.prefix)
        except InvalidRequest:
            return []
        if (master := snapshot.master) is None:
            return []
        term = master.terms[-1].name if master.terms else ""
        end = StorePosition(master.generation, master.epoch, term, snapshot.commits)
        return [Witness(f"the store /{self._keys.prefix} in etcd", master.cluster, end)]

    async def check_free(self, *, replaces: bool) -> None:
        """Refuse to replace a store unless the operator wants that.

        Raises:
            Conflict: if there is one.
        """
        keys = self._keys
        schema, _ = await self._client.get(keys.schema)
        question = pb.RangeRequest(
            key=keys.records, range_end=op.end_of(keys.records), count_only=True
        )
        count = (await self._client.call(RANGE, question)).count
        if schema is not None and schema.value == RESTORING:
            return
        if (schema is not None or count) and not replaces:
            raise Conflict(
                f"there is a store /{keys.prefix} in etcd: give --replace, which deletes it, after"
                " you have made a copy of it"
            )

    async def write(self, content: Restored) -> None:
        """Replace the store.

        Raises:
            Conflict: if another master came to lead meanwhile.
            Unavailable: if etcd does not take it.
        """
        keys = self._keys
        await self._transact(
            [
                op.put(keys.schema, RESTORING),
                op.delete(keys.records, op.end_of(keys.records)),
                op.delete(keys.staged, op.end_of(keys.staged)),
                op.delete(keys.head),
            ]
        )
        for operations in batches(keys, [encode(record) for record in content.records]):
            await self._transact(operations)
        fields = {"mark": "restored", "parts": 0, "commits": content.position.commit}
        await self._transact(
            [
                op.put(keys.head, sealed(keys.head, json.dumps(fields).encode())),
                op.put(keys.schema, str(SCHEMA_VERSION).encode()),
            ]
        )

    async def _transact(self, operations: Sequence[pb.RequestOp]) -> None:
        """Execute `operations` while this process leads. Doing so twice is harmless."""
        question = pb.TxnRequest(
            compare=[op.created_at(self._keys.leader, self._election.token)], success=operations
        )
        try:
            answer = await self._client.call(TXN, question)
        except InvalidRequest as error:
            raise Unavailable(f"etcd does not take the copy: {error}") from error
        if not answer.succeeded:
            raise Conflict("another master leads now: stop all masters, and restore again")
