"""One stream of a client to one master, from its opening to its end.

Rule: a stream ends by an error that says why, unless the client has left. The error that the
master sends as its last message wins over the state of the connection: the reader takes in all
that has arrived before it reports that the stream broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from math import ceil
from typing import Generic, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio

from croupier.model.errors import Unavailable
from croupier.net.address import Address
from croupier.net.cancellation import reraise_own_cancellation
from croupier.net.errors import error_from_rpc
from croupier.net.outbox import Outbox, Sized
from croupier.net.task_scope import until_one_ends
from croupier.net.transport import make_channel

MessageT = TypeVar("MessageT", bound=Sized)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

# How often a stream is checked before the master has named its heartbeat.
_JOINING_TICK_S = 0.25
# A timer this late means that our own loop stood still; the master may have sent meanwhile.
_STALL_S = 1.0


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Waits of a client session, in seconds. The defaults suit a framework.

    Attributes:
        connect_s: the longest that connecting to one master may take.
        join_s: the longest from opening a stream until the master accepts the client.
        silence_beats: heartbeats of silence after which the client leaves the master.
        least_silence_s: silence that never counts as a failure.
        tick_s: the longest between two checks of the stream.
        backoff_first_s: bound of the first wait before reconnecting; it doubles each time.
        backoff_cap_s: bound of all such waits.
        election_first_s: bound of the first wait while the masters elect a leader.
        election_cap_s: bound of all such waits.
        settled_s: a stream that was joined for longer resets the waits.
    """

    connect_s: float = 2.0
    join_s: float = 10.0
    silence_beats: int = 5
    least_silence_s: float = 3.0
    tick_s: float = 1.0
    backoff_first_s: float = 0.1
    backoff_cap_s: float = 5.0
    election_first_s: float = 0.1
    election_cap_s: float = 1.0
    settled_s: float = 5.0


class StreamOwner(Protocol[MessageT, RequestT, ResponseT]):
    """The owner of a stream: it knows the messages, the stream knows the connection."""

    def connect(
        self, channel: grpc.aio.Channel
    ) -> grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]:
        """Return the method of the service to call."""
        ...

    def request_of(self, batch: list[MessageT]) -> RequestT:
        """Return the request that carries `batch`."""
        ...

    def on_open(self) -> None:
        """Handle the opening of a stream; what is sent now goes first."""
        ...

    async def on_message(self, message: ResponseT) -> None:
        """Handle a message; reading waits until this returns.

        Raises:
            CroupierError: if the stream must end.
        """
        ...

    def beat(self) -> None:
        """Send a heartbeat."""
        ...

    def on_tick(self) -> None:
        """Check deadlines; called every `SessionTimes.tick_s` or more often."""
        ...

    def on_closed(self) -> None:
        """Handle the end of the stream; nothing can be sent any more."""
        ...


class ClientStream(Generic[MessageT, RequestT, ResponseT]):
    """A reader, a writer, a heartbeat, and a watch over the master's heartbeat."""

    def __init__(
        self,
        owner: StreamOwner[MessageT, RequestT, ResponseT],
        address: Address,
        times: SessionTimes,
        outbox: Outbox[MessageT],
    ) -> None:
        """Prepare a stream to `address`; `run` opens it."""
        self._owner, self._times = owner, times
        self._call: grpc.aio.StreamStreamCall[RequestT, ResponseT] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._beat_at = float("inf")
        self._heartbeat_s: float | None = None
        self._is_reading, self._is_leaving = True, False
        self.address = address
        self.outbox = outbox
        """Messages to the master."""
        self.joined_at: float | None = None
        """When the master accepted the client, on the loop's clock; None if it has not."""
        self.is_over = False
        """Whether the stream has ended."""

    def join(self, heartbeat_s: float) -> None:
        """Note that the master accepted the client and named its heartbeat."""
        self._heartbeat_s = heartbeat_s
        self._beat_at = self._loop.time() + heartbeat_s
        if self.joined_at is None:
            self.joined_at = self._loop.time()

    def leave(self, last: MessageT) -> None:
        """Send `last` after all that is queued; `run` returns when the master ends the stream."""
        self._is_leaving = True
        self.outbox.close(last)

    def hang_up(self) -> None:
        """End the stream at once."""
        if self._call is not None:
            self._call.cancel()

    async def run(self) -> None:
        """Open the stream and serve it until it ends.

        Raises:
            CroupierError: why it ended, unless the client has left.
        """
        channel = make_channel(self.address)
        try:
            self._call = self._owner.connect(channel)(self._requests())
            self._owner.on_open()
            await until_one_ends(self._read(self._call), self._watch(channel))
        finally:
            self.is_over = True
            self.outbox.drop()
            self.outbox.close()
            self._owner.on_closed()
            self.hang_up()
            await channel.close()

    async def _requests(self) -> AsyncIterator[RequestT]:
        while batch := await self.outbox.take():
            yield self._owner.request_of(batch)

    async def _read(self, call: grpc.aio.StreamStreamCall[RequestT, ResponseT]) -> None:
        try:
            async for message in call:
                self._is_reading = False
                await self._owner.on_message(message)
                self._is_reading = True
                self._heard_at = self._loop.time()
        except grpc.RpcError as error:
            reraise_own_cancellation()
            raise error_from_rpc(error) from None
        except asyncio.CancelledError:
            reraise_own_cancellation()
            raise Unavailable("the master has cancelled the stream") from None
        if not self._is_leaving:
            raise Unavailable("the master has ended the stream")

    async def _watch(self, channel: grpc.aio.Channel) -> NoReturn:
        """Send heartbeats, and end a stream whose master is silent."""
        opened_at = now = self._loop.time()
        while True:
            before, pace_s = now, self._pace_s()
            await asyncio.sleep(pace_s)
            now = self._loop.time()
            if not self._is_reading or now - before > pace_s + _STALL_S:
                # We did not read: this is not the master's silence.
                self._heard_at = now
            self._owner.on_tick()
            if self._heartbeat_s is None:
                self._check_joining(channel, now - opened_at)
                continue
            self._check_silence(now - self._heard_at, self._heartbeat_s)
            if now >= self._beat_at - pace_s / 2:
                self._beat_at = now + self._heartbeat_s
                self._owner.beat()

    def _pace_s(self) -> float:
        if self._heartbeat_s is None:
            return min(_JOINING_TICK_S, self._times.join_s / 4)
        return self._heartbeat_s / ceil(self._heartbeat_s / self._times.tick_s)

    def _check_joining(self, channel: grpc.aio.Channel, seconds: float) -> None:
        """Leave a host that does not answer: another master may lead."""
        is_ready = channel.get_state() is grpc.ChannelConnectivity.READY
        if not is_ready and seconds > self._times.connect_s:
            raise Unavailable(f"{self.address} cannot be reached")
        if seconds > self._times.join_s:
            raise Unavailable(f"{self.address} did not accept the session in time")

    def _check_silence(self, silence_s: float, heartbeat_s: float) -> None:
        limit_s = max(self._times.silence_beats * heartbeat_s, self._times.least_silence_s)
        if silence_s > limit_s:
            raise Unavailable(f"{self.address} was silent for {limit_s:g} s")
