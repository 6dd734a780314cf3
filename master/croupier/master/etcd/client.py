"""A client of etcd: any of its members will do, and the next one if the first does not.

Rules: every call has a deadline. A call is tried again wherever its fate is not known, so
it must do no harm when it is done twice, or late; the callers see to that.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Sequence

import grpc.aio

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.endpoint import Endpoint, Metadata
from croupier.master.etcd.faults import Full, StaleLogin, Untrusted, fault_of
from croupier.master.etcd.methods import AUTHENTICATE, RANGE, STATUS, WATCH, A, Method, Q
from croupier.master.etcd.target import EtcdAccess
from croupier.model.clock import Clock
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.cancellation import reraise_own_cancellation
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger

ATTEMPT_S = 1.0
CALL_S = 10.0
STATUS_S = 3.0
EARLY_S = 0.1
# The first releases without the known ways to lose or differ in data.
SOUND = {(3, 4): 22, (3, 5): 6}

_QUORUM = "etcd answers while a majority of its members, a quorum, are up and hear each other"

_log = get_logger("croupier.master.etcd")


class EtcdClient:
    """Asks the members of one etcd; must be closed.

    Attributes:
        answers, failures: how many questions members answered, and how many they did not.
        answered_at: when the latest answer came, on the clock; when this was made if none did.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        access: EtcdAccess | None = None,
        rng: random.Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is connected before the first call."""
        assert addresses
        self._access = access or EtcdAccess()
        self._rng = rng or random.Random()
        self._clock: Clock = clock or SystemClock()
        self._endpoints = [Endpoint(address, self._access) for address in addresses]
        # Masters should not all lean on the first member.
        self._current = self._rng.randrange(len(self._endpoints))
        self._token = ""
        self.answers = self.failures = 0
        self.answered_at = self._clock.now()

    @property
    def members(self) -> int:
        """How many members it knows."""
        return len(self._endpoints)

    @property
    def failing(self) -> int:
        """How many of them failed when they were last asked."""
        return sum(endpoint.is_failing for endpoint in self._endpoints)

    @property
    def silent_s(self) -> float:
        """Seconds since the latest answer."""
        return self._clock.now() - self.answered_at

    async def call(
        self,
        method: Method[Q, A],
        question: Q,
        timeout_s: float = CALL_S,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> A:
        """Ask member after member until one answers, for as long as `is_wanted` says.

        Raises:
            Unavailable: if none does within `timeout_s`.
            CroupierError: see `attempt`.
        """
        deadline = self._clock.now() + timeout_s
        backoff = Backoff(0.05, 1.0, self._rng)
        tried = 0
        while True:
            # An etcd that is slow rather than dead is given longer each time round.
            patience = ATTEMPT_S * 2 ** min(3, tried // len(self._endpoints))
            left = deadline - self._clock.now()
            try:
                return await self.attempt(method, question, min(patience, left))
            except Full:
                raise
            except Unavailable:
                tried += 1
                # A circle of all members is one try.
                wait = backoff.next_s() if tried % len(self._endpoints) == 0 else 0.0
                if self._clock.now() + wait >= deadline or not is_wanted():
                    raise
                await asyncio.sleep(wait)

    async def attempt(self, method: Method[Q, A], question: Q, timeout_s: float) -> A:
        """Ask one member, once; if it fails the next call asks the next.

        Raises:
            Unavailable: if it cannot now; whether it has done it all the same is not known.
            InvalidRequest: if the login or the question is refused.
            NotFound: if there is no such lease.
            Conflict: if the revision asked for is compacted.
            TooLarge: if the answer is more than we take.
        """
        endpoint = self._endpoints[self._current]
        try:
            answer = await self._ask_as_user(endpoint, method, question, timeout_s)
        except Unavailable as fault:
            if isinstance(fault, Full):
                # So are the others.
                self._answered(endpoint)
            else:
                self._failed(endpoint, fault)
            raise
        except CroupierError:
            self._answered(endpoint)
            raise
        self._answered(endpoint)
        return answer

    async def get(self, key: bytes, timeout_s: float = CALL_S) -> tuple[pb.KeyValue | None, int]:
        """What stands under `key`, if anything, and the revision of which that is true.

        Raises:
            CroupierError: as `call`.
        """
        answer = await self.call(RANGE, pb.RangeRequest(key=key), timeout_s)
        return (answer.kvs[0] if answer.kvs else None), answer.header.revision

    async def change_of(self, key: bytes, after: int, timeout_s: float) -> None:
        """Wait until `key` has changed since the revision `after`, or may have.

        Returns as well after `timeout_s`, when the member fails, and when what came after
        `after` is compacted: then look, and wait again. That way nothing is missed, and a
        member that hangs is noticed within `timeout_s`.

        Raises:
            InvalidRequest: if the login is refused.
        """
        endpoint = self._endpoints[self._current]
        ends_at = self._clock.now() + timeout_s
        watch = pb.WatchCreateRequest(key=key, start_revision=after + 1)
        call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse] | None = None
        try:
            # A member that has lost its leader must say so rather than fall silent.
            metadata = (*await self._metadata(endpoint, timeout_s), ("hasleader", "true"))
            call = endpoint.stream(WATCH, metadata, timeout_s)
            await call.write(pb.WatchRequest(create=watch))
            while True:
                told = await call.read()
                if isinstance(told, pb.WatchResponse) and told.events:
                    return
                if not isinstance(told, pb.WatchResponse) or told.canceled:
                    await self._pause()
                    return
        except grpc.aio.AioRpcError as error:
            reraise_own_cancellation()
            # etcd may be the first to see that time is up, and says so in its own way.
            if self._clock.now() < ends_at - EARLY_S:
                fault = fault_of(error, endpoint.address, self._access.user)
                self._doubt(endpoint, fault)
                await self._pause()
        except Unavailable as fault:
            self._failed(endpoint, fault)
            await self._pause()
        finally:
            if call is not None:
                call.cancel()

    async def check(self) -> None:
        """Ask every member who it is, and warn of releases that are not sound.

        Raises:
            Unavailable: if none answers.
            InvalidRequest: if none does, and one has a certificate that is not good.
        """
        answers = await asyncio.gather(*map(self._status, self._endpoints))
        faults = [answer for answer in answers if isinstance(answer, CroupierError)]
        for endpoint, answer in zip(self._endpoints, answers, strict=True):
            if isinstance(answer, CroupierError):
                self._failed(endpoint, answer)
            elif not is_sound(answer.version):
                _log.warning(
                    "etcd_release_unsound",
                    endpoint=str(endpoint.address),
                    version=answer.version,
                    wanted="3.4.22 or newer, of 3.5 3.5.6 or newer",
                )
        if len(faults) == len(answers):
            bad = next((fault for fault in faults if not _may_pass(fault)), None)
            if bad is not None:
                raise InvalidRequest(f"no member of etcd can be used: {bad}")
            raise Unavailable(f"no member of etcd answers: {faults[0]}")

    async def close(self) -> None:
        """Hang up on all members."""
        await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints))

    async def _status(self, endpoint: Endpoint) -> pb.StatusResponse | CroupierError:
        try:
            return await endpoint.ask(STATUS, pb.StatusRequest(), (), STATUS_S)
        except grpc.aio.AioRpcError as error:
            return fault_of(error, endpoint.address, self._access.user)

    async def _ask_as_user(
        self, endpoint: Endpoint, method: Method[Q, A], question: Q, timeout_s: float
    ) -> A:
        metadata = await self._metadata(endpoint, timeout_s)
        try:
            return await self._ask(endpoint, method, question, metadata, timeout_s)
        except StaleLogin:
            if metadata == self._known_metadata():
                self._token = ""
            metadata = await self._metadata(endpoint, timeout_s)
        try:
            return await self._ask(endpoint, method, question, metadata, timeout_s)
        except StaleLogin as fault:
            raise Unavailable(str(fault)) from fault

    async def _ask(
        self,
        endpoint: Endpoint,
        method: Method[Q, A],
        question: Q,
        metadata: Metadata,
        timeout_s: float,
    ) -> A:
        try:
            return await endpoint.ask(method, question, metadata, max(timeout_s, 0.001))
        except grpc.aio.AioRpcError as error:
            reraise_own_cancellation()
            raise fault_of(error, endpoint.address, self._access.user) from error

    async def _metadata(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        if self._access.user and not self._token:
            login = pb.AuthenticateRequest(name=self._access.user, password=self._access.password)
            try:
                answer = await self._ask(endpoint, AUTHENTICATE, login, (), timeout_s)
            except StaleLogin as fault:
                raise Unavailable(str(fault)) from fault
            self._token = answer.token
        return self._known_metadata()

    def _known_metadata(self) -> Metadata:
        return (("token", self._token),) if self._token else ()

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.01, 0.1))

    def _doubt(self, endpoint: Endpoint, fault: CroupierError) -> None:
        """A stream broke: ask another, with a new login if that was why."""
        if isinstance(fault, StaleLogin):
            self._token = ""
        elif isinstance(fault, InvalidRequest):
            raise fault
        elif not isinstance(fault, Conflict):
            self._failed(endpoint, fault)

    def _answered(self, endpoint: Endpoint) -> None:
        self.answers += 1
        self.answered_at = self._clock.now()
        if endpoint.is_failing:
            endpoint.is_failing = False
            _log.info("etcd_member_back", endpoint=str(endpoint.address))

    def _failed(self, endpoint: Endpoint, fault: CroupierError) -> None:
        self.failures += 1
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)
        if not endpoint.is_failing:
            endpoint.is_failing = True
            _log.warning("etcd_member_failed", endpoint=str(endpoint.address), error=str(fault))
            if self.failing == self.members:
                _log.error("etcd_unavailable", members=self.members, hint=_QUORUM)


def is_sound(version: str) -> bool:
    """Whether etcd of that version keeps what it was given; no if it cannot be read."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return (major, minor) > max(SOUND) or patch >= SOUND.get((major, minor), patch + 1)


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _may_pass(fault: CroupierError) -> bool:
    return isinstance(fault, Unavailable) and not isinstance(fault, Untrusted)


def compared(key: bytes, *, created: int | None = None, modified: int | None = None) -> pb.Compare:
    """That `key` was made, or last changed, at that revision; 0: that it is not there."""
    if created is not None:
        return pb.Compare(key=key, target=pb.Compare.TARGET_CREATE, create_revision=created)
    return pb.Compare(key=key, target=pb.Compare.TARGET_MOD, mod_revision=modified or 0)


def kv_of(operations: Iterable[pb.ResponseOp]) -> list[pb.KeyValue | None]:
    """What each lookup of one key has found."""
    found = [operation.range.kvs for operation in operations]
    return [kvs[0] if kvs else None for kvs in found]
