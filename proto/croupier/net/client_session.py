"""The session of a client with the master that leads: one stream, and another when it ends.

Rule: a session ends by `leave`, or by an error that its owner calls fatal. Any other error leads
to another stream: at once to a leader that was named, else after a random wait that doubles.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Generic, Protocol

from croupier.model.errors import CroupierError, NotLeader
from croupier.model.log_throttle import Repeats
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.client_stream import (
    ClientStream,
    MessageT,
    RequestT,
    ResponseT,
    SessionTimes,
    StreamOwner,
)
from croupier.net.masters import Masters
from croupier.net.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Disconnection:
    """The end of a stream that the session goes on after, for the log.

    Attributes:
        event: `master_follows`, `master_lost` if it had accepted the client, or
            `master_unreachable`.
    """

    event: str
    address: Address
    error: CroupierError
    retry_in_s: float


class SessionOwner(StreamOwner[MessageT, RequestT, ResponseT], Protocol):
    """The owner of a session: an agent or a framework."""

    def is_fatal(self, error: CroupierError) -> bool:
        """Return whether `error` ends the session."""
        ...

    def on_disconnected(self, disconnection: Disconnection) -> None:
        """Log the end of a stream; repeated ones are reported once in 30 s."""
        ...


class ClientSession(Generic[MessageT, RequestT, ResponseT]):
    """Keeps one stream to the leading master open."""

    def __init__(
        self,
        owner: SessionOwner[MessageT, RequestT, ResponseT],
        masters: Masters,
        times: SessionTimes,
        rng: random.Random,
        *,
        outbox_messages: int,
        outbox_bytes: int,
    ) -> None:
        """Prepare a session; `run` connects. The outbox of each stream has these bounds."""
        self._owner, self._masters, self._times = owner, masters, times
        self._outbox_messages, self._outbox_bytes = outbox_messages, outbox_bytes
        self._backoff = Backoff(times.backoff_first_s, times.backoff_cap_s, rng)
        self._election = Backoff(times.election_first_s, times.election_cap_s, rng)
        self._stream: ClientStream[MessageT, RequestT, ResponseT] | None = None
        self._repeats = Repeats()
        self._is_leaving = False

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent, even if the master has not accepted the client yet."""
        return self._stream is not None and not self._stream.outbox.is_closed

    @property
    def is_joined(self) -> bool:
        """Whether a master has accepted the client, and the stream is open."""
        stream = self._stream
        return stream is not None and stream.joined_at is not None and not stream.is_over

    @property
    def address(self) -> Address | None:
        """The master of the latest stream; None before the first."""
        return None if self._stream is None else self._stream.address

    @property
    def queued(self) -> int:
        """Messages that wait to be sent."""
        return 0 if self._stream is None else len(self._stream.outbox)

    def send(self, message: MessageT) -> bool:
        """Queue `message`; False if no stream is open or its outbox is full."""
        return self._stream is not None and self._stream.outbox.put(message)

    def join(self, heartbeat_s: float) -> None:
        """Note that the master accepted the client; both send heartbeats that often."""
        assert self._stream is not None
        self._stream.join(heartbeat_s)
        self._masters.served()
        self._repeats.forget()

    def hang_up(self) -> None:
        """End the stream at once; the session opens another."""
        if self._stream is not None:
            self._stream.hang_up()

    def leave(self, last: MessageT) -> None:
        """Send `last` after all that is queued; `run` returns when the master ends the stream."""
        self._is_leaving = True
        if self._stream is not None:
            self._stream.leave(last)

    def make_outbox(self) -> Outbox[MessageT]:
        """Return an empty outbox for a stream."""
        return Outbox(self._outbox_messages, limit_bytes=self._outbox_bytes)

    async def run(self) -> None:
        """Stay connected until `leave`.

        Raises:
            CroupierError: if the owner calls it fatal.
        """
        while True:
            address = self._masters.next()
            stream = self._stream = ClientStream(
                self._owner, address, self._times, self.make_outbox()
            )
            try:
                await stream.run()
            except CroupierError as error:
                if self._owner.is_fatal(error):
                    raise
                if self._is_leaving:
                    return
                wait_s = self._wait_s(error, stream.joined_at)
                self._report(address, error, wait_s, stream.joined_at is not None)
            else:
                return
            await asyncio.sleep(wait_s)

    def _wait_s(self, error: CroupierError, joined_at: float | None) -> float:
        now = asyncio.get_running_loop().time()
        if joined_at is not None and now - joined_at >= self._times.settled_s:
            self._backoff.reset()
            self._election.reset()
        is_named = self._masters.failed(error)
        if not isinstance(error, NotLeader):
            return self._backoff.next_s()
        # A master answers, so a leader is elected soon: wait no longer than the election takes.
        self._backoff.reset()
        return 0.0 if is_named else self._election.next_s()

    def _report(
        self, address: Address, error: CroupierError, wait_s: float, was_joined: bool
    ) -> None:
        event = "master_lost" if was_joined else "master_unreachable"
        if isinstance(error, NotLeader):
            event = "master_follows"
        now = asyncio.get_running_loop().time()
        if event == "master_lost" or self._repeats.is_due((event, address, type(error)), now):
            self._owner.on_disconnected(Disconnection(event, address, error, wait_s))
