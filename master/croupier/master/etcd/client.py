"""A client of etcd that asks one member, and the next if the first fails.

Rule: every call has a deadline. The client retries a call whose outcome is unknown, so callers send
only requests that are harmless when they are carried out twice or late.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc.aio

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.endpoint import Endpoint, Full, Metadata, StaleLogin, Untrusted
from croupier.master.etcd.operations import AUTHENTICATE, RANGE, STATUS, WATCH, A, Method, Q
from croupier.master.etcd.target import EtcdAccess
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.task_scope import reraise_own_cancellation
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger

ATTEMPT_S = 1.0
CALL_S = 10.0
STATUS_S = 3.0
PROBED_S = 3.0
# Old connections stay this long after a renewal; the longest call is that of the longest lease.
RETIRE_S = 120.0
EARLY_S = 0.1
# The first releases without known bugs that lose or corrupt data.
SOUND = {(3, 4): 22, (3, 5): 6}

_QUORUM = "etcd answers while a majority of its members, a quorum, are up and connected"

_log = get_logger("croupier.master.etcd")


class EtcdClient:
    """A client of all members of one etcd; must be closed.

    Attributes:
        answers, failures: the numbers of calls that members answered, and did not answer.
        answered_at: time of the latest answer; of construction if there was none.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        access: EtcdAccess | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Connect with the first call."""
        assert addresses
        self._access = access or EtcdAccess()
        self._rng = rng or random.Random()
        self._clock = SystemClock()
        self._endpoints = [Endpoint(address, self._access) for address in addresses]
        # Endpoints with old credentials, until their calls have ended.
        self._retired: dict[asyncio.Task[None], list[Endpoint]] = {}
        # Spread masters over the members.
        self._current = self._rng.randrange(len(self._endpoints))
        self._token = ""
        self.answers = self.failures = 0
        self.answered_at = self._clock.now()

    @property
    def members(self) -> int:
        """Return the number of members."""
        return len(self._endpoints)

    @property
    def failing(self) -> int:
        """Return the number of members that failed when last asked."""
        return sum(endpoint.is_failing for endpoint in self._endpoints)

    @property
    def certificate_expires_at(self) -> float | None:
        """Return the Unix time at which the certificate for etcd expires; None without one."""
        return self._access.certificate_expires_at

    @property
    def silent_s(self) -> float:
        """Return the seconds since the latest answer."""
        return self._clock.now() - self.answered_at

    async def call(
        self,
        method: Method[Q, A],
        question: Q,
        timeout_s: float = CALL_S,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> A:
        """Ask member after member until one answers, or not `is_wanted`; raises as `attempt`."""
        deadline = self._clock.now() + timeout_s
        backoff = Backoff(0.05, 1.0, self._rng)
        tried = 0
        while True:
            # A slow etcd is given more time in each round.
            patience = ATTEMPT_S * 2 ** min(3, tried // len(self._endpoints))
            left = deadline - self._clock.now()
            try:
                return await self.attempt(method, question, min(patience, left))
            except Full:
                raise
            except Unavailable:
                tried += 1
                # A round of all members counts as one try.
                wait = backoff.next_s() if tried % len(self._endpoints) == 0 else 0.0
                if self._clock.now() + wait >= deadline or not is_wanted():
                    raise
                await asyncio.sleep(wait)

    async def attempt(self, method: Method[Q, A], question: Q, timeout_s: float) -> A:
        """Ask one member, once; if it fails, the next call asks the next member.

        Raises:
            Unavailable: if it fails; it may have carried out the request.
            InvalidRequest: if it refuses the login or the request.
            NotFound: if there is no such lease.
            Conflict: if the requested revision was compacted.
            TooLarge: if the answer exceeds the limit.
        """
        return await self._attempt_at(self._endpoints[self._current], method, question, timeout_s)

    async def probe(self, key: bytes) -> None:
        """Read `key` from every member: one answers only while it is connected to a majority."""
        read = pb.RangeRequest(key=key)
        await asyncio.gather(*(self._probe_at(each, read) for each in self._endpoints))

    async def _probe_at(self, endpoint: Endpoint, read: pb.RangeRequest) -> None:
        # A member that fails is noted; its error has been logged.
        with suppress(CroupierError):
            await self._attempt_at(endpoint, RANGE, read, PROBED_S)

    async def _attempt_at(
        self, endpoint: Endpoint, method: Method[Q, A], question: Q, timeout_s: float
    ) -> A:
        try:
            answer = await self._ask_as_user(endpoint, method, question, timeout_s)
        except CroupierError as fault:
            # If one member is full, the others are too.
            if isinstance(fault, Unavailable) and not isinstance(fault, Full):
                self._failed(endpoint, fault)
            else:
                self._answered(endpoint)
            raise
        self._answered(endpoint)
        return answer

    async def get(self, key: bytes, timeout_s: float = CALL_S) -> tuple[pb.KeyValue | None, int]:
        """Return the value of `key`, if it exists, and the answer's revision; raises as `call`."""
        answer = await self.call(RANGE, pb.RangeRequest(key=key), timeout_s)
        return (answer.kvs[0] if answer.kvs else None), answer.header.revision

    async def change_of(self, key: bytes, after: int, timeout_s: float) -> None:
        """Wait until `key` may have changed since the revision `after`.

        Returns also after `timeout_s`, when the member fails, and when revisions after `after` were
        compacted. Callers read the key and wait again: so they miss no change, and detect a member
        that hangs within `timeout_s`. Raises InvalidRequest if the member refuses the login.
        """
        endpoint = self._endpoints[self._current]
        ends_at = self._clock.now() + timeout_s
        watch = pb.WatchCreateRequest(key=key, start_revision=after + 1)
        call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse] | None = None
        try:
            # A member that has lost its leader must report that instead of going silent.
            metadata = (*await self._metadata(endpoint, timeout_s), ("hasleader", "true"))
            call = endpoint.stream(WATCH, metadata, timeout_s)
            await call.write(pb.WatchRequest(create=watch))
            while True:
                answer = await call.read()
                if isinstance(answer, pb.WatchResponse) and answer.events:
                    return
                if not isinstance(answer, pb.WatchResponse) or answer.canceled:
                    await self._pause()
                    return
        except grpc.aio.AioRpcError as error:
            reraise_own_cancellation()
            # etcd may be the first to see the deadline, and has its own error for it.
            if self._clock.now() < ends_at - EARLY_S:
                fault = endpoint.fault_of(error)
                self._on_broken_stream(endpoint, fault)
                await self._pause()
        except Unavailable as fault:
            self._failed(endpoint, fault)
            await self._pause()
        finally:
            if call is not None:
                call.cancel()

    async def check(self) -> None:
        """Ask all members for their releases; warn of bugs. Raises Unavailable, InvalidRequest."""
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
            for fault in faults:
                if isinstance(fault, Untrusted) or not isinstance(fault, Unavailable):
                    raise InvalidRequest(f"no member of etcd can be used: {fault}")
            raise Unavailable(f"no member of etcd answers: {faults[0]}")

    async def renew(self, access: EtcdAccess) -> None:
        """Use other credentials from the next call on; calls under way end over old connections.

        Raises CroupierError if no member answers with `access`; the client keeps the old ones.
        """
        renewed = [Endpoint(endpoint.address, access) for endpoint in self._endpoints]
        answers = await asyncio.gather(*map(self._status, renewed))
        faults = [answer for answer in answers if isinstance(answer, CroupierError)]
        if len(faults) == len(answers):
            await asyncio.gather(*(endpoint.close() for endpoint in renewed))
            raise faults[0]
        for old, new in zip(self._endpoints, renewed, strict=True):
            new.is_failing = old.is_failing
        retiring = asyncio.create_task(self._retire(self._endpoints), name="etcd-retire")
        self._retired[retiring] = self._endpoints
        retiring.add_done_callback(self._retired.pop)
        self._endpoints, self._access, self._token = renewed, access, ""

    async def _retire(self, endpoints: list[Endpoint]) -> None:
        await asyncio.sleep(RETIRE_S)
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))

    async def close(self) -> None:
        """Disconnect from all members."""
        endpoints = [*self._endpoints, *(each for old in self._retired.values() for each in old)]
        for retiring in list(self._retired):
            retiring.cancel()
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))

    async def _status(self, endpoint: Endpoint) -> pb.StatusResponse | CroupierError:
        try:
            return await endpoint.ask(STATUS, pb.StatusRequest(), (), STATUS_S)
        except CroupierError as fault:
            return fault

    async def _ask_as_user(
        self, endpoint: Endpoint, method: Method[Q, A], question: Q, timeout_s: float
    ) -> A:
        stale: StaleLogin | None = None
        for _ in range(2):
            metadata = await self._metadata(endpoint, timeout_s)
            try:
                return await endpoint.ask(method, question, metadata, timeout_s)
            except StaleLogin as fault:
                stale = fault
                if metadata == self._known_metadata():
                    self._token = ""
        raise Unavailable(str(stale)) from stale

    async def _metadata(self, endpoint: Endpoint, timeout_s: float) -> Metadata:
        if self._access.user and not self._token:
            login = pb.AuthenticateRequest(name=self._access.user, password=self._access.password)
            try:
                answer = await endpoint.ask(AUTHENTICATE, login, (), timeout_s)
            except StaleLogin as fault:
                raise Unavailable(str(fault)) from fault
            self._token = answer.token
        return self._known_metadata()

    def _known_metadata(self) -> Metadata:
        return (("token", self._token),) if self._token else ()

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.01, 0.1))

    def _on_broken_stream(self, endpoint: Endpoint, fault: CroupierError) -> None:
        """Use the next member after a broken stream; log in again if the login was stale."""
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
    """Return whether etcd of that version has no known bug that loses data."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return (major, minor) > max(SOUND) or patch >= SOUND.get((major, minor), patch + 1)
