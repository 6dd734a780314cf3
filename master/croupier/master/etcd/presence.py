"""The running masters of a cluster: each writes a key of its own and reads those of the others.

Rule: no election, term or commit depends on these keys. A master that may not write or read them,
as with an etcd user of narrow rights, leads all the same.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.master.leadership.roster import Candidate, read_candidate
from croupier.model.errors import CroupierError, InvalidRequest, NotFound
from croupier.net.task_scope import end
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger

# More masters than these are not shown.
MOST_MASTERS: Final = 32
# Rounds without an answer until the others count as unknown.
STALE_ROUNDS: Final = 6
# Pause after etcd has refused, since that does not change by itself.
REFUSED_S: Final = 60.0
GOODBYE_S: Final = 1.0

_log = get_logger("croupier.master.leadership.ha_backend")


class EtcdPresence:
    """This master's key, and what is known of the others; from `start` to `close`."""

    def __init__(self, client: EtcdClient, prefix: str, lease_s: float) -> None:
        """Write a key that lasts twice `lease_s`, the lease of a leader, after a master's death."""
        self._client, self._keys = client, op.Keys(prefix)
        self._ttl_s, self._round_s = math.ceil(2 * lease_s), lease_s / 2
        self._clock = SystemClock()
        self._others: tuple[Candidate, ...] = ()
        self._read_at = -math.inf
        self._lease = 0
        self._written = b""
        self._why = ""
        self._going: asyncio.Task[NoReturn] | None = None

    @property
    def others(self) -> Sequence[Candidate]:
        """The other running masters in the order of their addresses; none if etcd is silent."""
        is_stale = self._clock.now() - self._read_at > STALE_ROUNDS * self._round_s
        return () if is_stale else self._others

    def start(self, own: Callable[[], Candidate]) -> None:
        """Start the periodic exchange; `own` returns what this master publishes of itself."""
        self._going = asyncio.create_task(self._go_round(own), name="presence")

    async def round(self, own: Candidate) -> None:
        """Read the keys of the others, and keep the own one alive; raises as `EtcdClient.call`."""
        await self._read(own.address)
        await self._write(own)

    async def close(self) -> None:
        """Delete the own key within a second."""
        if self._going is not None:
            await end(self._going)
        if self._lease:
            question = pb.LeaseRevokeRequest(id=self._lease)
            self._lease = 0
            # If this fails, the lease expires.
            with suppress(CroupierError):
                await self._client.call(op.REVOKE, question, timeout_s=GOODBYE_S)

    async def _go_round(self, own: Callable[[], Candidate]) -> NoReturn:
        while True:
            wait_s = self._round_s
            try:
                await self.round(own())
                self._why = ""
            except CroupierError as error:
                if isinstance(error, InvalidRequest):
                    wait_s = REFUSED_S
                self._tell(str(error))
            await asyncio.sleep(random.uniform(0.8, 1.0) * wait_s)

    async def _read(self, own: str) -> None:
        keys = self._keys
        question = pb.RangeRequest(
            key=keys.masters, range_end=op.end_of(keys.masters), limit=MOST_MASTERS
        )
        answer = await self._client.call(op.RANGE, question, timeout_s=self._round_s)
        found = (read_candidate(keys.master_of(kv.key), kv.value) for kv in answer.kvs)
        self._others = tuple(each for each in found if each is not None and each.address != own)
        self._read_at = self._clock.now()

    async def _write(self, own: Candidate) -> None:
        value = own.encode()
        try:
            if not await self._is_alive():
                grant = pb.LeaseGrantRequest(ttl=self._ttl_s)
                answer = await self._client.call(op.GRANT, grant, timeout_s=self._round_s)
                self._lease, self._written = answer.id, b""
            if value != self._written:
                put = op.put(self._keys.master(own.address), value, self._lease)
                await self._client.call(
                    op.TXN, pb.TxnRequest(success=[put]), timeout_s=self._round_s
                )
                self._written = value
        except NotFound:
            # The lease ended in between; the next round begins with another.
            self._lease = 0

    async def _is_alive(self) -> bool:
        """Renew the lease, and return whether there still is one."""
        if not self._lease:
            return False
        question = pb.LeaseKeepAliveRequest(id=self._lease)
        try:
            answer = await self._client.call(op.KEEP_ALIVE, question, timeout_s=self._round_s)
        except NotFound:
            return False
        return answer.ttl > 0

    def _tell(self, why: str) -> None:
        """Log why other masters may not know of this one, once per reason."""
        if why != self._why:
            self._why = why
            _log.warning("masters_unknown", error=why)
