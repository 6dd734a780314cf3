"""The connection to the master: one stream at a time, and another whenever it ends.

Rule: what the agent says belongs to a session by number, and what is said to a session that
is over is dropped: the next one begins with everything that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count, cycle

import grpc.aio
import structlog

from croupier.agent.core.events import Connected, Disconnected, Event, Registered, Removed
from croupier.agent.core.state import AgentState
from croupier.agent.wire import (
    Identity,
    goodbye_to_wire,
    heartbeat_to_wire,
    order_from_wire,
    register_to_wire,
    updates_to_wire,
)
from croupier.model import errors
from croupier.model.errors import CroupierError, FailedOver, ProtocolViolation, Unavailable
from croupier.model.ids import AgentId, check_id
from croupier.model.task import TaskStatus
from croupier.rpc.address import Address
from croupier.rpc.backoff import Backoff
from croupier.rpc.inbox import Inbox
from croupier.rpc.outbox import Outbox
from croupier.rpc.transport import make_channel
from croupier.rpc.wire_errors import error_from_rpc, error_from_wire
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceStub

Call = grpc.aio.StreamStreamCall[pb.AgentServiceConnectRequest, pb.AgentServiceConnectResponse]

_log = structlog.get_logger("croupier.agent")

# To be taken in, by a master that may be busy taking in thousands.
JOIN_S = 20.0
# After so many heartbeats without a word, the master is taken to be gone.
SILENT_BEATS = 5
MIN_SILENCE_S = 3.0
MIN_HEARTBEAT_S = 0.05

# What does not fit is sent again when its resend is due.
OUTBOX_LIMIT = 10_000
# About 100 KB, and at most 500 KB, of a message that may have 1 MB.
STATUSES_PER_REPORT = 200


class Link:
    """The agent's side of the agent protocol."""

    def __init__(
        self,
        masters: Sequence[Address],
        identity: Identity,
        inbox: Inbox[Event],
        backoff: Backoff,
    ) -> None:
        """Feed `inbox`; nothing happens before `run`."""
        self._masters = cycle(masters)
        self._identity, self._inbox, self._backoff = identity, inbox, backoff
        self._numbers = count(1)
        self._session = 0
        self._outbox: Outbox[pb.Report] = _closed()
        self._known_as: AgentId | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._leaving = False
        self.is_registered = False
        """Whether a master has taken the agent in and is heard of."""

    @property
    def is_open(self) -> bool:
        """Whether there is a session, even if the master has not answered in it yet."""
        return not self._outbox.is_closed

    async def run(self) -> None:
        """Stay connected until `leave`.

        Raises:
            FailedOver: if another agent has taken over this one's id.
        """
        while True:
            address = next(self._masters)
            log = _log.bind(master=str(address))
            try:
                await self._serve(address, log)
            except FailedOver:
                raise
            except CroupierError as error:
                if self._leaving:
                    return
                wait_s = self._backoff.next_s()
                log.warning(
                    "master_lost",
                    error=str(error),
                    kind=type(error).__name__,
                    retry_in_s=round(wait_s, 3),
                )
                await asyncio.sleep(wait_s)
            else:
                return

    def introduce(self, session: int, state: AgentState) -> None:
        """Say REGISTER as the first thing in the session."""
        if session != self._session:
            return
        self._known_as = state.agent_id
        self._outbox.put(register_to_wire(self._identity, state))

    def send(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        """Queue status updates."""
        if session != self._session:
            return
        for begin in range(0, len(statuses), STATUSES_PER_REPORT):
            part = statuses[begin : begin + STATUSES_PER_REPORT]
            if not self._outbox.put(updates_to_wire(part)):
                return

    def leave(self, message: str) -> None:
        """Say GOODBYE after what is queued; `run` returns when the master has hung up."""
        self._leaving = True
        self._outbox.close(goodbye_to_wire(message))

    async def _serve(self, address: Address, log: structlog.stdlib.BoundLogger) -> None:
        """One session, from its opening to its end.

        Raises:
            CroupierError: why it ended, unless the agent has left.
        """
        channel = make_channel(address)
        outbox = self._outbox = Outbox(OUTBOX_LIMIT)
        session = self._session = next(self._numbers)
        self._known_as = None
        call = AgentServiceStub(channel).Connect(_requests(outbox))
        self._inbox.put_now(Connected(session))
        try:
            await self._listen(call, log)
        except grpc.aio.AioRpcError as error:
            # What a status means is told apart by typed errors only; here it is "try again".
            raise Unavailable(str(error_from_rpc(error))) from error
        finally:
            self.is_registered = False
            if self._beat is not None:
                self._beat.cancel()
                self._beat = None
            outbox.drop()
            outbox.close()
            self._inbox.put_now(Disconnected(session))
            call.cancel()
            await channel.close()

    async def _listen(
        self,
        call: Call,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        silence_s = JOIN_S
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(JOIN_S) as limit:
                async for message in _messages(call):
                    for order in message.orders:
                        if order.HasField("registered"):
                            silence_s = self._on_registered(order.registered, log)
                        else:
                            self._on_order(order)
                    limit.reschedule(loop.time() + silence_s)
        except TimeoutError:
            raise Unavailable(f"nothing was heard of the master for {silence_s:g} s") from None
        if not self._leaving:
            raise Unavailable("the master has hung up")

    def _on_registered(self, registered: pb.Registered, log: structlog.stdlib.BoundLogger) -> float:
        """Begin to beat; how long the master may be silent from now on."""
        agent_id = AgentId(check_id("agent", registered.agent_id))
        if self._known_as is None:
            raise ProtocolViolation("registered before it asked to be")
        if self._known_as and agent_id != self._known_as:
            raise ProtocolViolation(f"registered as {agent_id}, but this is {self._known_as}")
        heartbeat_s = max(registered.heartbeat_ms / 1000, MIN_HEARTBEAT_S)
        self._inbox.put_now(Registered(agent_id))
        self._backoff.reset()
        self.is_registered = True
        log.info("registered", agent_id=agent_id, master_id=registered.master_id)
        self._beat_every(heartbeat_s)
        return max(SILENT_BEATS * heartbeat_s, MIN_SILENCE_S)

    def _on_order(self, order: pb.Order) -> None:
        match order.WhichOneof("order"):
            case "heartbeat":
                return
            case "error":
                error = error_from_wire(order.error)
                if isinstance(error, errors.Removed):
                    self._inbox.put_now(Removed())
                raise error
            case _:
                self._inbox.put_now(order_from_wire(order))

    def _beat_every(self, interval_s: float) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._outbox.put(heartbeat_to_wire())
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(interval_s, self._beat_every, interval_s)


async def _requests(outbox: Outbox[pb.Report]) -> AsyncIterator[pb.AgentServiceConnectRequest]:
    while batch := await outbox.take():
        yield pb.AgentServiceConnectRequest(reports=batch)


async def _messages(call: Call) -> AsyncIterator[pb.AgentServiceConnectResponse]:
    """What the master says.

    Raises:
        Unavailable: if the master cancelled the stream. gRPC makes that look as if this task
            was cancelled.
    """
    try:
        async for message in call:
            yield message
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unavailable("the master has cancelled the stream") from None


def _closed() -> Outbox[pb.Report]:
    outbox: Outbox[pb.Report] = Outbox(0)
    outbox.close()
    return outbox
