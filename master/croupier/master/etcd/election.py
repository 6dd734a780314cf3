"""Who leads: the master whose lease holds the leader's key in etcd.

Rules:
- The key is made only where there is none, and goes with its lease. The revision at which it
  came to be, which no other leadership has, is the fencing token of all that the leader
  writes: once the key is another's, etcd refuses the writes, however late they come.
- A leader steps down by itself when it cannot prove that its lease is alive. It counts from
  when it *sent* the last request that etcd answered, on the monotonic clock, and gives up
  after 0.8 of the lease: before etcd does, so that two never believe that they lead.
- Followers read the key, then wait for it to change since that revision; at least twice a
  lease they read it again, through another member if the one they asked has gone silent.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.client import EtcdClient, compared, kv_of
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import GRANT, KEEP_ALIVE, REVOKE, TXN
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.net.backoff import Backoff
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger

PROVEN = 0.8
GOODBYE_S = 1.0
RESIGNED = "resigned"

_log = get_logger("croupier.master.election")


@dataclass(slots=True)
class _Term:
    """One leadership, or the try at one.

    Attributes:
        lease_s: what etcd has granted, in seconds.
        proven_at: when what proves the lease alive was sent.
        revision: at which the leader's key came to be.
    """

    lease: int
    lease_s: float
    proven_at: float
    revision: int = 0

    @property
    def ends_at(self) -> float:
        """From when on it cannot be relied on."""
        return self.proven_at + PROVEN * self.lease_s


class EtcdElection:
    """Stands for election under `address`; must be closed.

    Attributes:
        leader: HOST:PORT of the master that leads, as far as is known.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        address: str,
        lease_s: float,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Stand as `address` with leases of `lease_s` seconds, rounded up to whole ones."""
        self.leader: str | None = None
        self._client = client
        self._keys = Keys(prefix)
        self._address = address
        self._lease_s = math.ceil(lease_s)
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._term: _Term | None = None
        self._guard: asyncio.Task[str] | None = None
        self._deposed = asyncio.Event()
        self._why = ""
        # Leases of ours that etcd may still hold; only the last can hold the key.
        self._left_over: deque[int] = deque(maxlen=16)

    @property
    def is_won(self) -> bool:
        """Whether this master leads and can prove it now."""
        return (
            self._term is not None
            and not self._deposed.is_set()
            and self._clock.now() < self._term.ends_at
        )

    @property
    def token(self) -> int:
        """The fencing token of the leadership: the create_revision of the leader's key.

        Raises:
            Unavailable: if this master does not lead.
        """
        if self._term is None:
            raise Unavailable("this master does not lead")
        return self._term.revision

    async def win(self) -> None:
        """Wait until this master leads; etcd may come and go meanwhile.

        Raises:
            InvalidRequest: if etcd refuses us, as for a wrong password or certificate.
        """
        if self.is_won:
            return
        await self.resign()
        backoff = Backoff(0.1, 2.0, self._rng)
        is_checked = False
        while True:
            try:
                if not is_checked:
                    await self._client.check()
                    is_checked = True
                if await self._stand():
                    return
                backoff.reset()
            except InvalidRequest:
                raise
            except CroupierError as error:
                self.leader = None
                self._waits(str(error))
                await asyncio.sleep(backoff.next_s())

    async def lost(self) -> None:
        """Wait until this master leads no more; at once if it does not."""
        if self._guard is not None:
            await asyncio.shield(self._guard)

    def fenced(self) -> None:
        """A write of ours was refused: another has taken over."""
        self._depose("fenced")

    async def resign(self) -> None:
        """Lead no more, and let the others know; takes no more than a second."""
        term, self._term = self._term, None
        guard, self._guard = self._guard, None
        if guard is not None:
            self._depose(RESIGNED)
            await asyncio.gather(guard, return_exceptions=True)
        if self.leader == self._address:
            self.leader = None
        if term is not None:
            await self._revoke(term.lease)

    async def close(self) -> None:
        """Resign."""
        await self.resign()

    async def _stand(self) -> bool:
        """One try: whether we lead. If another does, returns when that may have changed."""
        held, revision = await self._client.get(self._keys.leader)
        if held is not None and held.lease in self._left_over:
            # Our own, of before we stepped down.
            await self._revoke(held.lease)
            held, revision = await self._client.get(self._keys.leader)
        if held is not None:
            self._follow(held)
            await self._client.change_of(self._keys.leader, revision, self._lease_s / 2)
            return False
        self.leader = None
        return await self._take()

    async def _take(self) -> bool:
        sent_at = self._clock.now()
        grant = await self._client.call(
            GRANT, pb.LeaseGrantRequest(ttl=self._lease_s), timeout_s=self._lease_s
        )
        term = _Term(grant.id, float(grant.ttl), sent_at)
        key = self._keys.leader
        question = pb.TxnRequest(
            compare=[compared(key, created=0)],
            success=[
                pb.RequestOp(
                    put=pb.PutRequest(key=key, value=self._address.encode(), lease=term.lease)
                )
            ],
            # Made already: by another, or by us in a try whose answer did not come.
            failure=[pb.RequestOp(range=pb.RangeRequest(key=key))],
        )
        won = False
        try:
            answer = await self._client.call(TXN, question, timeout_s=PROVEN * term.lease_s)
            if answer.succeeded:
                won, term.revision = True, answer.header.revision
            else:
                (held,) = kv_of(answer.responses)
                if held is not None and held.lease == term.lease:
                    won, term.revision = True, held.create_revision
            won = won and self._clock.now() < term.ends_at
        except NotFound as error:
            raise Unavailable(f"the lease ended before it was used: {error}") from error
        finally:
            if not won:
                self._left_over.append(term.lease)
        if not won:
            await self._revoke(term.lease)
            return False
        self._begin(term)
        return True

    def _begin(self, term: _Term) -> None:
        self._term, self.leader = term, self._address
        self._deposed = asyncio.Event()
        self._guard = asyncio.create_task(self._watch_over(term), name="leadership")
        _log.info("leader_elected", leader=self._address, token=term.revision, lease_s=term.lease_s)

    def _waits(self, why: str) -> None:
        """Say why nobody is elected; once, not at every try."""
        if why != self._why:
            self._why = why
            _log.warning("election_waits", error=why)

    def _follow(self, held: pb.KeyValue) -> None:
        leader = held.value.decode(errors="replace")
        if leader != self.leader:
            self.leader = leader
            _log.info("leader_followed", leader=leader)

    async def _watch_over(self, term: _Term) -> str:
        """Renew the lease, and return why this leadership has ended as soon as it has."""
        ends: list[Awaitable[str]] = [
            self._renewed(term),
            self._expired(term),
            self._displaced(term),
            self._told(),
        ]
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = min(task.result() for task in done)
        finally:
            # Whatever happens here, nobody believes any more that we lead.
            self._deposed.set()
            self._left_over.append(term.lease)
            if self.leader == self._address:
                self.leader = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        log = _log.info if reason == RESIGNED else _log.warning
        log("leadership_ended", reason=reason, token=term.revision)
        return reason

    async def _renewed(self, term: _Term) -> str:
        """Prove the lease alive five times in its life; return when it is not any more."""
        beat = term.lease_s / 5
        backoff = Backoff(0.05, beat / 2, self._rng)
        while True:
            sent_at = self._clock.now()
            try:
                answer = await self._client.attempt(
                    KEEP_ALIVE, pb.LeaseKeepAliveRequest(id=term.lease), timeout_s=beat
                )
            except NotFound:
                return "lease_gone"
            except CroupierError:
                await asyncio.sleep(backoff.next_s())
                continue
            if answer.ttl <= 0:
                return "lease_gone"
            term.proven_at = sent_at
            backoff.reset()
            await asyncio.sleep(max(0.0, sent_at + beat - self._clock.now()))

    async def _expired(self, term: _Term) -> str:
        while True:
            left = term.ends_at - self._clock.now()
            if left <= 0:
                break
            await asyncio.sleep(left)
        return "lease_not_proven_alive"

    async def _displaced(self, term: _Term) -> str:
        """Return when the leader's key is not ours any more, as when an operator deletes it."""
        after = term.revision
        while True:
            try:
                await self._client.change_of(self._keys.leader, after, term.lease_s)
                held, after = await self._client.get(self._keys.leader, term.lease_s)
            except CroupierError:
                # If it stays so the lease cannot be renewed either.
                await asyncio.sleep(self._rng.uniform(0.1, 0.5))
                continue
            if held is None or held.create_revision != term.revision:
                return "leader_key_gone"

    async def _told(self) -> str:
        await self._deposed.wait()
        return self._why

    def _depose(self, why: str) -> None:
        if not self._deposed.is_set():
            self._why = why
            self._deposed.set()

    async def _revoke(self, lease: int) -> None:
        """Let the lease go, if etcd can be reached; else it ends by itself."""
        try:
            await self._client.call(REVOKE, pb.LeaseRevokeRequest(id=lease), timeout_s=GOODBYE_S)
        except NotFound:
            pass
        except CroupierError as error:
            _log.info("lease_left", error=str(error))
