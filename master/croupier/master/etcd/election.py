"""Leader election: the master whose lease holds the leader's key in etcd leads.

Rules:
- The key is created only if it does not exist, and is deleted with its lease. The revision of
  its creation is unique to the leadership. It is the fencing token of all writes of the leader:
  once the key is another master's, etcd refuses them, however late they arrive.
- A leader steps down when it cannot prove that its lease is alive. It counts from when it *sent*
  the last request that etcd answered, on the monotonic clock, and gives up after 0.8 of the
  lease. That is before etcd ends the lease, so two masters never both believe that they lead.
- Followers read the key, then wait until it changes. They read it again at least twice per
  lease, through another member if the first has gone silent.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd import operations as op
from croupier.master.etcd.client import EtcdClient
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.net.backoff import Backoff
from croupier.net.task_scope import end
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger

PROVEN = 0.8
GOODBYE_S = 1.0
RESIGNED = "resigned"

_log = get_logger("croupier.master.leadership.ha_backend")


@dataclass(slots=True)
class _HeldLease:
    """The lease of a leadership, or of an attempt at one.

    Attributes:
        lease: its id in etcd.
        lease_s: the granted lifetime of the lease, in seconds.
        proven_at: when the latest request that proves the lease alive was sent.
        revision: the create_revision of the leader's key; 0 before it is created.
    """

    lease: int
    lease_s: float
    proven_at: float
    revision: int = 0

    @property
    def ends_at(self) -> float:
        """Return the time from which the lease may have ended."""
        return self.proven_at + PROVEN * self.lease_s


class EtcdElection:
    """A candidate for leader; must resign. `leader` is HOST:PORT, or None if it is not known."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        address: str,
        lease_s: float,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Become a candidate with leases of `lease_s` seconds, rounded up to whole seconds."""
        self.leader: str | None = None
        self._client = client
        self._keys = op.Keys(prefix)
        self._address = address
        self._lease_s = math.ceil(lease_s)
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._term: _HeldLease | None = None
        self._guard: asyncio.Task[str] | None = None
        self._deposed = asyncio.Event()
        # The reason that was logged last for having no leader.
        self._logged_wait = ""
        # Why this master was told to step down.
        self._end_reason = ""
        # Own leases that etcd may still hold; only the last can hold the key.
        self._old_leases: deque[int] = deque(maxlen=16)

    @property
    def is_won(self) -> bool:
        """Return whether this master leads and can prove it now."""
        return (
            self._term is not None
            and not self._deposed.is_set()
            and self._clock.now() < self._term.ends_at
        )

    @property
    def token(self) -> int:
        """Return the fencing token, the key's create_revision; raises Unavailable without it."""
        if self._term is None:
            raise Unavailable("this master does not lead")
        return self._term.revision

    async def win(self) -> None:
        """Wait until this master leads, even without etcd; raises InvalidRequest if refused."""
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
                if await self._try_to_lead():
                    return
                backoff.reset()
            except InvalidRequest:
                raise
            except CroupierError as error:
                self.leader = None
                self._log_waiting(str(error))
                await asyncio.sleep(backoff.next_s())

    async def lost(self) -> None:
        """Wait until this master no longer leads; return at once if it does not lead."""
        if self._guard is not None:
            await asyncio.shield(self._guard)

    def fenced(self) -> None:
        """Step down because etcd has refused a write: another master leads."""
        self._depose("fenced")

    async def resign(self) -> None:
        """Step down and delete the key, within a second."""
        term, self._term = self._term, None
        guard, self._guard = self._guard, None
        if guard is not None:
            self._depose(RESIGNED)
            await asyncio.gather(guard, return_exceptions=True)
        if self.leader == self._address:
            self.leader = None
        if term is not None:
            await self._revoke(term.lease)

    async def _try_to_lead(self) -> bool:
        """Try once to lead, or wait for a change of leader; return whether this master leads."""
        held, revision = await self._client.get(self._keys.leader)
        if held is not None and held.lease in self._old_leases:
            # The key is still held by a lease of an earlier term of this master.
            await self._revoke(held.lease)
            held, revision = await self._client.get(self._keys.leader)
        if held is not None:
            self._follow(held)
            await self._client.change_of(self._keys.leader, revision, self._lease_s / 2)
            return False
        self.leader = None
        return await self._create_key()

    async def _create_key(self) -> bool:
        sent_at = self._clock.now()
        grant = await self._client.call(
            op.GRANT, pb.LeaseGrantRequest(ttl=self._lease_s), timeout_s=self._lease_s
        )
        term = _HeldLease(grant.id, float(grant.ttl), sent_at)
        key = self._keys.leader
        question = pb.TxnRequest(
            compare=[op.created_at(key, 0)],
            success=[op.put(key, self._address.encode(), term.lease)],
            # The key exists: it is another master's, or this one's if an earlier answer was lost.
            failure=[op.get(key)],
        )
        won = False
        try:
            answer = await self._client.call(op.TXN, question, timeout_s=PROVEN * term.lease_s)
            if answer.succeeded:
                won, term.revision = True, answer.header.revision
            else:
                (held,) = op.found(answer.responses)
                if held is not None and held.lease == term.lease:
                    won, term.revision = True, held.create_revision
            won = won and self._clock.now() < term.ends_at
        except NotFound as error:
            raise Unavailable(f"the lease ended before it was used: {error}") from error
        finally:
            if not won:
                self._old_leases.append(term.lease)
        if not won:
            await self._revoke(term.lease)
            return False
        self._begin(term)
        return True

    def _begin(self, term: _HeldLease) -> None:
        self._term, self.leader = term, self._address
        self._deposed = asyncio.Event()
        self._guard = asyncio.create_task(self._watch_over(term), name="leadership")
        _log.info("leader_elected", leader=self._address, token=term.revision, lease_s=term.lease_s)

    def _log_waiting(self, why: str) -> None:
        """Log why no master is elected, once per reason."""
        if why != self._logged_wait:
            self._logged_wait = why
            _log.warning("election_waits", error=why)

    def _follow(self, held: pb.KeyValue) -> None:
        leader = held.value.decode(errors="replace")
        if leader != self.leader:
            self.leader = leader
            _log.info("leader_followed", leader=leader)

    async def _watch_over(self, term: _HeldLease) -> str:
        """Renew the lease until the leadership ends, and return the reason."""
        ends = (self._renewed, self._expired, self._displaced, self._asked_to_end)
        tasks = [asyncio.create_task(end(term)) for end in ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = min(task.result() for task in done)
        finally:
            # From here on this master does not lead, even if something fails below.
            self._deposed.set()
            self._old_leases.append(term.lease)
            if self.leader == self._address:
                self.leader = None
            await end(*tasks)
        log = _log.info if reason == RESIGNED else _log.warning
        log("leadership_ended", reason=reason, token=term.revision)
        return reason

    async def _renewed(self, term: _HeldLease) -> str:
        """Renew the lease five times in its lifetime; return when it has ended."""
        beat = term.lease_s / 5
        backoff = Backoff(0.05, beat / 2, self._rng)
        while True:
            sent_at = self._clock.now()
            try:
                answer = await self._client.attempt(
                    op.KEEP_ALIVE, pb.LeaseKeepAliveRequest(id=term.lease), timeout_s=beat
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

    async def _expired(self, term: _HeldLease) -> str:
        while True:
            left = term.ends_at - self._clock.now()
            if left <= 0:
                break
            await asyncio.sleep(left)
        return "lease_not_proven_alive"

    async def _displaced(self, term: _HeldLease) -> str:
        """Return when this master lost the leader's key, as when an operator deletes it."""
        after = term.revision
        while True:
            try:
                await self._client.change_of(self._keys.leader, after, term.lease_s)
                held, after = await self._client.get(self._keys.leader, term.lease_s)
            except CroupierError:
                # If this lasts, the lease cannot be renewed either.
                await asyncio.sleep(self._rng.uniform(0.1, 0.5))
                continue
            if held is None or held.create_revision != term.revision:
                return "leader_key_gone"

    async def _asked_to_end(self, _term: _HeldLease) -> str:
        await self._deposed.wait()
        return self._end_reason

    def _depose(self, why: str) -> None:
        if not self._deposed.is_set():
            self._end_reason = why
            self._deposed.set()

    async def _revoke(self, lease: int) -> None:
        """Revoke the lease if etcd is reachable; otherwise it expires."""
        try:
            await self._client.call(op.REVOKE, pb.LeaseRevokeRequest(id=lease), timeout_s=GOODBYE_S)
        except NotFound:
            pass
        except CroupierError as error:
            _log.info("lease_left", error=str(error))
