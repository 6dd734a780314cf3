"""One stream to one master, from SUBSCRIBE to its end.

Rule: a stream always ends by an error that says why; its owner decides what that means.
"""

from __future__ import annotations

import asyncio
import sys
from typing import NoReturn, Protocol

import grpc
import grpc.aio

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, TooSlow, Unavailable
from croupier.net.address import Address
from croupier.net.cancellation import reraise_own_cancellation
from croupier.net.errors import error_from_rpc
from croupier.net.outbox import Outbox
from croupier.net.transport import make_channel
from croupier.sdk.settings import Settings
from croupier.sdk.task_scope import until_one_ends
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc

_Stream = grpc.aio.StreamStreamCall[
    pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
]

# Until the master has named its own pace.
_PACE_S = 0.25


class Owner(Protocol):
    """Whoever runs a link, as far as the link is concerned."""

    @property
    def verdicts_seen(self) -> int:
        """What to tell the master so that it can forget verdicts."""
        ...

    def on_event(self, event: pb.Event) -> None:
        """Take in one event.

        Raises:
            CroupierError: if the stream is over by it.
        """
        ...

    def on_tick(self) -> None:
        """Some time has passed."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether to stop reading for now."""
        ...

    async def room(self) -> None:
        """Wait until `is_full` may have changed."""
        ...


class Link:
    """A stream, its writer, its heartbeat, and its watch over the master's."""

    def __init__(self, owner: Owner, address: Address, settings: Settings, clock: Clock) -> None:
        """Make ready to connect to `address`; `run` does it."""
        self._owner, self._address = owner, address
        self._settings, self._clock = settings, clock
        # Room for every unanswered call, the SUBSCRIBE and one heartbeat, however large: the
        # calls are kept until they are answered, sent or not.
        self._outbox = Outbox[pb.Call](settings.unanswered_limit + 2, limit_bytes=sys.maxsize)
        self._heard_at = clock.now()
        self._reading = asyncio.Event()
        self._reading.set()
        self._heartbeat_s: float | None = None

    def send(self, call: pb.Call) -> None:
        """Queue `call`; the owner's bound on unanswered calls is the queue's."""
        taken = self._outbox.put(call)
        assert taken

    def on_subscribed(self, heartbeat_s: float) -> None:
        """The master answered: hold to its pace from here on."""
        self._heartbeat_s = heartbeat_s

    async def run(self, subscribe: pb.Call) -> NoReturn:
        """Connect, subscribe, and carry events and calls until the stream ends.

        Raises:
            CroupierError: always: what the master said last, or Unavailable.
        """
        channel = make_channel(self._address)
        try:
            stream = rpc.FrameworkServiceStub(channel).Connect()
            try:
                self.send(subscribe)
                await until_one_ends(self._read(stream), self._write(stream), self._keep(channel))
            finally:
                stream.cancel()
        finally:
            self._outbox.close()
            await channel.close()
        raise AssertionError("a part of the link ended without saying why")

    async def _read(self, stream: _Stream) -> NoReturn:
        try:
            async for message in stream:
                self._heard_at = self._clock.now()
                for event in message.events:
                    self._owner.on_event(event)
                await self._pause()
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        except asyncio.CancelledError:
            reraise_own_cancellation()
            raise Unavailable("the stream was cancelled") from None
        raise Unavailable("the master ended the stream")

    async def _pause(self) -> None:
        """Do not read while the owner is full: the master is held back by that."""
        while self._owner.is_full:
            self._reading.clear()
            await self._owner.room()
        self._reading.set()
        self._heard_at = self._clock.now()

    async def _write(self, stream: _Stream) -> NoReturn:
        try:
            while calls := await self._outbox.take():
                seen = self._owner.verdicts_seen
                await stream.write(
                    pb.FrameworkServiceConnectRequest(calls=calls, verdicts_seen=seen)
                )
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            reraise_own_cancellation()
        # The stream is broken. Why may still stand in events that were not read: an ERROR
        # such as FAILED_OVER must not be taken for a lost connection.
        await asyncio.sleep(self._settings.explain_timeout_s)
        await self._reading.wait()
        raise Unavailable("the master takes no more calls")

    async def _keep(self, channel: grpc.aio.Channel) -> NoReturn:
        """Send heartbeats, and end a stream whose master has fallen silent."""
        started = beaten_at = now = self._clock.now()
        while True:
            before, pace = now, self._pace_s()
            await asyncio.sleep(pace)
            now = self._clock.now()
            if not self._reading.is_set() or now - before > pace + 1.0:
                # We did not listen, or the loop stood still: not the master's silence.
                self._heard_at = now
            self._owner.on_tick()
            if self._heartbeat_s is None:
                self._check_subscribing(channel, now - started)
                continue
            if now - beaten_at >= self._heartbeat_s:
                beaten_at = now
                self._beat()
            silence_s = self._settings.silence_beats * self._heartbeat_s
            if now - self._heard_at > max(silence_s, self._settings.silence_least_s):
                raise Unavailable(f"{self._address} has been silent too long")

    def _check_subscribing(self, channel: grpc.aio.Channel, seconds: float) -> None:
        """A host that is down says nothing: do not wait for it while another may lead."""
        is_ready = channel.get_state() is grpc.ChannelConnectivity.READY
        if not is_ready and seconds > self._settings.connect_timeout_s:
            raise Unavailable(f"{self._address} cannot be reached")
        if seconds > self._settings.subscribe_timeout_s:
            raise Unavailable(f"{self._address} does not answer SUBSCRIBE")

    def _pace_s(self) -> float:
        if self._heartbeat_s is None:
            return min(_PACE_S, self._settings.subscribe_timeout_s / 4)
        return min(self._heartbeat_s, self._settings.call_timeout_s / 4, 1.0)

    def _beat(self) -> None:
        """What is queued anyway is as good a sign of life as a heartbeat."""
        if not len(self._outbox):
            self.send(pb.Call(heartbeat=pb.Heartbeat()))


def is_fatal(error: CroupierError) -> bool:
    """Whether connecting again cannot help."""
    return not isinstance(error, Unavailable | TooSlow)
