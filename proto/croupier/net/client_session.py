"""The session of a client with the leading master: one stream, and another when it ends.

Rule: a stream ends by an error that says why. A fatal error ends the session; any other leads to
the next stream, at once if a leader was named, else after a random wait that doubles; the waits are
longer after the client's credential was rejected. An error
that the master sends as its last message wins over the state of the connection: the reader handles
all that has arrived before it reports that the stream broke.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import Generic, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio

from croupier.model import errors
from croupier.model.log_throttle import LogThrottle
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import error_from_rpc, tls_problem
from croupier.net.leader_search import Masters
from croupier.net.outbox import Outbox, Sized
from croupier.net.task_scope import reraise_own_cancellation, until_one_ends
from croupier.net.transport import CONNECT_S, make_channel

MessageT = TypeVar("MessageT", bound=Sized)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

# Seconds between checks of a stream before the master has named its heartbeat.
_JOINING_TICK_S = 0.25
# A timer this late means that our own loop was blocked; the master may have sent meanwhile.
_STALL_S = 1.0
# The longest wait before reconnecting while a master on this machine may be starting together with
# the client, as in `croupier local`: in the first seconds of a client that was never accepted.
_TOGETHER_S = 0.1
_STARTING_S = 10.0


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Waits of a client session, in seconds. The defaults suit a framework.

    Attributes:
        connect_s: the longest that connecting to one master may take.
        join_s: the longest from opening a stream until the master accepts the client.
        is_join_extended: whether each message restarts `join_s`, since a busy master sends
            heartbeats before it accepts the client.
        silence_beats: heartbeats of silence after which the client leaves the master.
        least_silence_s: silence that never counts as a failure.
        tick_s: the longest between two checks of the stream.
        backoff_first_s: bound of the first wait before reconnecting; it doubles each time.
        backoff_cap_s: bound of all such waits.
        election_first_s: bound of the first wait while the masters elect a leader.
        election_cap_s: bound of all such waits.
        rejected_first_s: bound of the first wait after the client's credential was rejected.
        rejected_cap_s: bound of all such waits.
        settled_s: a stream that was joined for longer resets the waits.
    """

    connect_s: float = CONNECT_S
    join_s: float = 10.0
    is_join_extended: bool = False
    silence_beats: int = 5
    least_silence_s: float = 3.0
    tick_s: float = 1.0
    backoff_first_s: float = 0.1
    backoff_cap_s: float = 5.0
    election_first_s: float = 0.1
    election_cap_s: float = 1.0
    rejected_first_s: float = 5.0
    rejected_cap_s: float = 60.0
    settled_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Disconnection:
    """The end of a stream that another follows, for the log.

    `event`: `master_follows`, `master_lost` if it had accepted the client, or `master_unreachable`.
    """

    event: str
    address: Address
    error: errors.CroupierError
    retry_in_s: float


class _Owner(Protocol[MessageT, RequestT, ResponseT]):
    """An agent or a framework: it handles messages, and the session handles connections.

    `connect` returns the service's method, and `request_of` the request that carries a batch of
    messages. Messages sent in `on_open` come first; in `on_closed` nothing can be sent. Reading
    waits for `on_message`; a CroupierError from it ends the stream. `beat` sends a heartbeat.
    `on_disconnected` logs the end of a stream; repeated ones are reported once in 30 s.
    """

    def connect(
        self, channel: grpc.aio.Channel
    ) -> grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]: ...

    def request_of(self, batch: list[MessageT]) -> RequestT: ...

    def on_open(self) -> None: ...

    async def on_message(self, message: ResponseT) -> None: ...

    def beat(self) -> None: ...

    def on_closed(self) -> None: ...

    def on_disconnected(self, disconnection: Disconnection) -> None: ...


class ClientSession(Generic[MessageT, RequestT, ResponseT]):
    """Keeps one stream, to the master at `address`, open; `is_joined` once it has accepted."""

    def __init__(
        self,
        owner: _Owner[MessageT, RequestT, ResponseT],
        masters: Masters,
        times: SessionTimes,
        rng: random.Random,
        *,
        is_fatal: Callable[[errors.CroupierError], bool],
        outbox_messages: int,
        outbox_bytes: int,
        on_tick: Callable[[], None] = lambda: None,
        error_of: Callable[[grpc.RpcError], errors.CroupierError] = error_from_rpc,
        find_security: Callable[[], ClientSecurity | None] = lambda: None,
        prepare: Callable[[Address], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare a session; `run` connects.

        Args:
            owner: handles what the session receives.
            masters: to try in turn.
            times: bounds of waits.
            rng: draws the waits.
            is_fatal: returns whether an error ends the session.
            outbox_messages: bound of each stream's outbox.
            outbox_bytes: its other bound.
            on_tick: called every `times.tick_s` or more often while a stream is open.
            error_of: returns the error that the status of an ended stream means.
            find_security: called for each stream: returns its credentials, whose files are then
                read; None for plain text. An InvalidRequest from it ends the attempt only.
            prepare: awaited before each stream to a master; its errors are those of the stream.
        """
        self._prepare = prepare
        self._owner, self._masters, self._times = owner, masters, times
        self._is_fatal, self._on_tick, self._error_of = is_fatal, on_tick, error_of
        self._outbox_bounds = (outbox_messages, outbox_bytes)
        self._find_security = find_security
        self._security: ClientSecurity | None = None
        self._backoff = Backoff(times.backoff_first_s, times.backoff_cap_s, rng)
        self._election = Backoff(times.election_first_s, times.election_cap_s, rng)
        self._rejection = Backoff(times.rejected_first_s, times.rejected_cap_s, rng)
        self._throttle = LogThrottle()
        self._is_leaving = self._has_joined = False
        self._began_at = 0.0
        self.address: Address | None = None
        # State of the latest stream.
        self._outbox = self.make_outbox()
        self._outbox.close()
        self._call: grpc.aio.StreamStreamCall[RequestT, ResponseT] | None = None
        self._heartbeat_s: float | None = None
        self._joined_at: float | None = None
        self._heard_at = self._beat_at = 0.0
        self._is_reading = True
        self.is_joined = False

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent, even if the master has not accepted the client yet."""
        return not self._outbox.is_closed

    @property
    def is_encrypted(self) -> bool:
        """Whether the latest stream uses TLS."""
        return self._security is not None and self._security.is_encrypted

    @property
    def is_local(self) -> bool:
        """Whether the master of the latest stream is on this machine."""
        return self.address is not None and self.address.is_loopback

    @property
    def queued(self) -> int:
        """Messages that wait to be sent."""
        return len(self._outbox)

    def send(self, message: MessageT) -> bool:
        """Queue `message`; False if no stream is open or its outbox is full."""
        return self._outbox.put(message)

    def join(self, heartbeat_s: float, reconnect_s: float | None = None) -> None:
        """Record that the master accepted the client; both send heartbeats at that interval.

        Waits before reconnecting are at most `reconnect_s` from now on, if it is given.
        """
        if reconnect_s is not None:
            self._backoff.limit(reconnect_s)
        now = _now()
        self._heartbeat_s, self._beat_at = heartbeat_s, now + heartbeat_s
        self._joined_at = self._joined_at or now
        self.is_joined = self._has_joined = True
        self._masters.served()
        self._throttle.forget()

    def hang_up(self) -> None:
        """End the stream at once; the session opens another."""
        if self._call is not None:
            self._call.cancel()

    def leave(self, last: MessageT) -> None:
        """Send `last` after all that is queued; `run` returns when the master ends the stream."""
        self._is_leaving = True
        self._outbox.close(last)

    def make_outbox(self) -> Outbox[MessageT]:
        """Return an empty outbox for a stream."""
        messages, limit_bytes = self._outbox_bounds
        return Outbox(messages, limit_bytes=limit_bytes)

    async def run(self) -> None:
        """Stay connected until `leave`; raises CroupierError if it is fatal."""
        self._began_at = _now()
        while True:
            self.address = self._masters.next()
            try:
                await self._serve(self.address)
            except errors.CroupierError as error:
                if self._is_fatal(error):
                    raise
                if self._is_leaving:
                    return
                wait_s = self._wait_s(error)
                self._report(self.address, error, wait_s)
            else:
                return
            await asyncio.sleep(wait_s)

    def _wait_s(self, error: errors.CroupierError) -> float:
        if self._joined_at is not None and _now() - self._joined_at >= self._times.settled_s:
            self._backoff.reset()
            self._election.reset()
            self._rejection.reset()
        is_named = self._masters.failed(error)
        if isinstance(error, errors.Unauthenticated | errors.PermissionDenied):
            return self._rejection.next_s()
        if not isinstance(error, errors.NotLeader):
            wait_s = self._backoff.next_s()
            return min(wait_s, _TOGETHER_S) if self._starts_with_master() else wait_s
        # A master answers, so a leader is elected soon: wait no longer than the election takes.
        self._backoff.reset()
        return 0.0 if is_named else self._election.next_s()

    def _starts_with_master(self) -> bool:
        """Return whether a master on this machine may be starting together with the client."""
        return self.is_local and not self._has_joined and _now() - self._began_at < _STARTING_S

    def _report(self, address: Address, error: errors.CroupierError, wait_s: float) -> None:
        event = "master_unreachable" if self._joined_at is None else "master_lost"
        if isinstance(error, errors.NotLeader):
            event = "master_follows"
        if event == "master_lost" or self._throttle.is_due((event, address, type(error)), _now()):
            self._owner.on_disconnected(Disconnection(event, address, error, wait_s))

    async def _serve(self, address: Address) -> None:
        """Serve one stream; raise the reason for its end, unless the client has left."""
        self._heartbeat_s = self._joined_at = None
        if self._prepare is not None:
            await self._prepare(address)
        try:
            self._security = self._find_security()
        except errors.InvalidRequest as error:
            raise errors.Unavailable(str(error)) from error  # a file may be half written
        channel = make_channel(address, self._security, self._times.connect_s)
        self._outbox = self.make_outbox()
        self._heard_at, self._is_reading = _now(), True
        try:
            self._call = self._owner.connect(channel)(self._requests(self._outbox))
            self._owner.on_open()
            await until_one_ends(self._read(self._call), self._watch(channel, address))
        finally:
            self.is_joined = False
            self._outbox.drop()
            self._outbox.close()
            self._owner.on_closed()
            self.hang_up()
            await channel.close()

    async def _requests(self, outbox: Outbox[MessageT]) -> AsyncIterator[RequestT]:
        while batch := await outbox.take():
            yield self._owner.request_of(batch)

    async def _read(self, call: grpc.aio.StreamStreamCall[RequestT, ResponseT]) -> None:
        try:
            async for message in call:
                self._is_reading = False
                if message is None:
                    # gRPC logs the error, and goes on.
                    raise errors.Unavailable("the master has sent a message that cannot be parsed")
                await self._owner.on_message(message)
                self._heard_at, self._is_reading = _now(), True
        except grpc.RpcError as error:
            reraise_own_cancellation()
            raise self._error(error) from None
        except asyncio.CancelledError:
            reraise_own_cancellation()
            raise errors.Unavailable("the master has cancelled the stream") from None
        if not self._is_leaving:
            raise errors.Unavailable("the master has ended the stream")

    def _error(self, error: grpc.RpcError) -> errors.CroupierError:
        if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE:
            assert self.address is not None
            problem = tls_problem(
                error.details() or "", self.address, self._security, has_worked=self._has_joined
            )
            if problem is not None:
                return errors.Unavailable(problem)
        return self._error_of(error)

    async def _watch(self, channel: grpc.aio.Channel, address: Address) -> NoReturn:
        """Send heartbeats, and end a stream whose master is silent."""
        opened_at = now = _now()
        while True:
            before, pace_s = now, self._pace_s()
            await asyncio.sleep(pace_s)
            now = _now()
            if not self._is_reading or now - before > pace_s + _STALL_S:
                # The session did not read: this is not the master's silence.
                self._heard_at = now
            self._on_tick()
            if self._heartbeat_s is None:
                since = self._heard_at if self._times.is_join_extended else opened_at
                self._check_joining(channel, address, now - since)
                continue
            limit_s = max(
                self._times.silence_beats * self._heartbeat_s, self._times.least_silence_s
            )
            if now - self._heard_at > limit_s:
                raise errors.Unavailable(f"{address} was silent for {limit_s:g} s")
            if now >= self._beat_at - pace_s / 2:
                self._beat_at = now + self._heartbeat_s
                self._owner.beat()

    def _pace_s(self) -> float:
        if self._heartbeat_s is None:
            return min(_JOINING_TICK_S, self._times.join_s / 4)
        return self._heartbeat_s / ceil(self._heartbeat_s / self._times.tick_s)

    def _check_joining(self, channel: grpc.aio.Channel, address: Address, seconds: float) -> None:
        """Disconnect from a host that does not answer: another master may lead."""
        is_ready = channel.get_state() is grpc.ChannelConnectivity.READY
        if not is_ready and seconds > self._times.connect_s:
            raise errors.Unavailable(f"{address} cannot be reached")
        if seconds > self._times.join_s:
            raise errors.Unavailable(f"{address} did not accept the session in time")


def _now() -> float:
    return asyncio.get_running_loop().time()
