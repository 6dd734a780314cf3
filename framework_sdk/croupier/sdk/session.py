"""A framework's life at the master: connected, reconnected, stopped or thrown out.

Rule: the framework ends once, by `stop` or by an error that no reconnection can mend; every
task that was started for it has then ended too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import grpc.aio

from croupier.model.clock import Clock
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotLeader,
    Removed,
    TooSlow,
    Unavailable,
)
from croupier.model.verdict import Verdict
from croupier.net.address import Address
from croupier.net.client_session import ClientSession, Disconnection
from croupier.net.errors import error_from_wire
from croupier.net.masters import Masters
from croupier.net.task_scope import end
from croupier.sdk.calls import Calls, Opened
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.subscription import Launch, Standing
from croupier.sdk.dispatch import Dispatcher, Handlers
from croupier.sdk.duration import from_milliseconds
from croupier.sdk.failure import Failure
from croupier.sdk.inbox import (
    AgentLost,
    Inbox,
    OfferRescinded,
    OffersArrived,
    RoomWanted,
    Subscribed,
    UpdateArrived,
)
from croupier.sdk.log import log_event
from croupier.sdk.settings import Settings
from croupier.sdk.wire import AgentDirectory, Identity, preempt_from_wire, subscribe_call
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc
from croupier.wire.task import status_from_wire

_Connect = grpc.aio.StreamStreamMultiCallable[
    pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
]

# For a master that does not name its pace.
DEFAULT_HEARTBEAT_S = 5.0

# The session whose handler is running, in the handler's task and in those it starts.
_handling: ContextVar[Session | None] = ContextVar("handling", default=None)


class Session:
    """Owns every task of one framework; `run` is its whole life."""

    def __init__(
        self,
        handlers: Handlers,
        identity: Identity,
        standing: Standing,
        masters: Sequence[Address],
        settings: Settings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """Make ready; nothing happens before `run`."""
        self._identity, self._standing = identity, standing
        self._settings, self._clock = settings, clock
        self._inbox = Inbox(settings.queue_limit)
        self._book = OfferBook()
        self._calls = Calls(standing, settings, clock)
        self._dispatcher = Dispatcher(handlers, self._inbox, self._book, self._calls, clock)
        self._agents = AgentDirectory(clock)
        # Room for every unanswered call, the SUBSCRIBE and a heartbeat, however large: a call is
        # kept until its verdict arrives, whether it was sent or not.
        self._connection: ClientSession[
            pb.Call, pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
        ] = ClientSession(
            self,
            Masters(masters),
            replace(settings.times, tick_s=min(settings.call_timeout_s / 4, 1.0)),
            rng,
            # Connecting again helps against these two only.
            is_fatal=lambda error: not isinstance(error, Unavailable | TooSlow),
            on_tick=self._calls.on_tick,
            outbox_messages=settings.unanswered_limit + 2,
            outbox_bytes=sys.maxsize,
        )
        self._begun = self._tearing_down = False
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()

    async def call(
        self,
        call: pb.Call,
        *,
        answers: Sequence[str] = (),
        opened: Opened | None = None,
        launch: Launch | None = None,
    ) -> Verdict:
        """Make `call`, which answers those offers, and wait for its verdict.

        Raises:
            InvalidRequest: if it is larger than the master takes; it is not sent then.
            Unavailable: if there is no verdict within 30 s of connected time.
            CroupierError: what ended the framework, if it has ended.
        """
        self._calls.check(call)
        self._book.answer(answers)
        self._inbox.recheck()
        return await self._calls.make(call, opened, launch)

    async def run(self) -> None:
        """Live until stopped.

        Raises:
            Conflict: if it was run before.
            CroupierError: what ended it, if that was not `stop`.
        """
        if self._begun:
            raise Conflict("a framework runs once; make a new one, with the same framework_id")
        self._begun = True
        try:
            await self._live()
        finally:
            self._ended.set()

    async def stop(self, teardown: bool = False) -> None:
        """End the framework, and wait for its end unless a handler asks.

        Raises:
            CroupierError: if the master did not confirm the teardown; all the same the
                framework ends.
        """
        try:
            if teardown and not self._ended.is_set():
                await self._tear_down()
        finally:
            self._asked.set()
            if self._begun and _handling.get() is not self:
                await self._ended.wait()

    async def _live(self) -> None:
        linking: asyncio.Task[Any] = asyncio.create_task(self._connection.run())
        handling: asyncio.Task[Any] = asyncio.create_task(self._handle())
        asked: asyncio.Task[Any] = asyncio.create_task(self._asked.wait())
        tasks = (linking, handling, asked)
        error: BaseException | None = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            error = _raised(linking)
            if isinstance(error, CroupierError):
                self._calls.fail(error)  # frees a handler that waits for a verdict
            await self._finish(handling)
        finally:
            await end(*tasks)
            self._calls.fail(Unavailable("the framework has stopped"))
        error = _raised(handling) or error
        if error is None or (self._tearing_down and isinstance(error, Removed)):
            return
        if isinstance(error, CroupierError):
            _handling.set(self)
            await self._dispatcher.on_error(error)
        raise error

    async def _handle(self) -> None:
        _handling.set(self)
        await self._dispatcher.run()

    async def _finish(self, handling: asyncio.Task[Any]) -> None:
        """Let the handler under way return and its last calls be answered, but not for ever."""
        self._inbox.close()
        try:
            async with asyncio.timeout(self._settings.flush_timeout_s):
                await asyncio.wait({handling})
                await self._calls.drained()
        except TimeoutError:
            log_event(logging.INFO, "stop_cut_short", framework_id=self._standing.framework_id)

    async def _tear_down(self) -> None:
        self._tearing_down = True
        call = pb.Call(teardown=pb.Teardown())
        try:
            async with asyncio.timeout(self._settings.teardown_timeout_s):
                verdict = await self.call(call)
        except TimeoutError:
            raise Unavailable("the master did not confirm the teardown in time") from None
        except Removed:
            return
        if verdict.error is not None:
            raise verdict.error

    # The owner of the connection.

    def connect(self, channel: grpc.aio.Channel) -> _Connect:
        """Return the method of the framework service."""
        return rpc.FrameworkServiceStub(channel).Connect

    def request_of(self, batch: list[pb.Call]) -> pb.FrameworkServiceConnectRequest:
        """Return the request that carries `batch`."""
        seen = self._calls.verdicts_seen
        return pb.FrameworkServiceConnectRequest(calls=batch, verdicts_seen=seen)

    def on_open(self) -> None:
        """Subscribe as the first call of the stream."""
        self._agents = AgentDirectory(self._clock)
        self._send(subscribe_call(self._identity, self._standing))

    async def on_message(self, message: pb.FrameworkServiceConnectResponse) -> None:
        """Take in events; wait while the handlers are far behind, which holds the master back.

        Raises:
            CroupierError: if one says that the stream is over.
        """
        for event in message.events:
            self._on_event(event)
        while self._inbox.is_full(self._calls.awaited):
            await self._inbox.room()

    def beat(self) -> None:
        """Send a heartbeat, unless a queued call is as good a sign of life."""
        if not self._connection.queued:
            self._send(pb.Call(heartbeat=pb.Heartbeat()))

    def on_closed(self) -> None:
        """Void the offers of the stream, and have calls wait for the next."""
        self._calls.detach()
        self._book.clear()

    def on_disconnected(self, disconnection: Disconnection) -> None:
        """Log the end of a stream."""
        error = disconnection.error
        is_expected = self._tearing_down or isinstance(error, NotLeader)
        log_event(
            logging.INFO if is_expected else logging.WARNING,
            disconnection.event,
            framework_id=self._standing.framework_id,
            master=str(disconnection.address),
            error=str(error),
            retry_in_s=round(disconnection.retry_in_s, 3),
        )

    def _send(self, call: pb.Call) -> None:
        is_queued = self._connection.send(call)
        assert is_queued, "the outbox has room for all unanswered calls"

    def _on_event(self, event: pb.Event) -> None:
        try:
            self._take_in(event)
        except InvalidRequest as error:
            log_event(
                logging.WARNING,
                "event_malformed",
                event_kind=event.WhichOneof("event"),
                error=str(error),
            )
        if event.HasField("error"):
            raise error_from_wire(event.error)

    def _take_in(self, event: pb.Event) -> None:
        match event.WhichOneof("event"):
            case "verdict":
                self._calls.on_verdict(event.verdict)
                self._inbox.recheck()
            case "offers":
                self._on_offers(event.offers)
            case "rescind":
                if self._book.rescind(event.rescind.offer_id):
                    self._inbox.put(OfferRescinded(event.rescind.offer_id))
            case "update":
                for status in event.update.statuses:
                    self._inbox.put(UpdateArrived(status_from_wire(status)))
            case "failure":
                lost = event.failure
                self._inbox.put(AgentLost(Failure(lost.agent_id, lost.hostname, lost.message)))
            case "preempt_request":
                request = preempt_from_wire(event.preempt_request, self._clock)
                self._inbox.put(RoomWanted(request))
            case "subscribed":
                self._on_subscribed(event.subscribed)

    def _on_subscribed(self, subscribed: pb.Subscribed) -> None:
        if self._connection.is_joined:
            return
        self._connection.join(from_milliseconds(subscribed.heartbeat_ms) or DEFAULT_HEARTBEAT_S)
        self._standing.framework_id = subscribed.framework_id
        self._inbox.put(Subscribed(subscribed.framework_id))
        self._calls.attach(self._send, subscribed.max_message_bytes)
        log_event(
            logging.INFO,
            "subscribed",
            framework_id=subscribed.framework_id,
            master_id=subscribed.master_id,
        )

    def _on_offers(self, wire: pb.Offers) -> None:
        self._agents.learn(wire.agents)
        offers = tuple(self._agents.offer_from_wire(offer) for offer in wire.offers)
        now = self._clock.now()
        for offer in offers:
            self._book.add(offer, now)
        self._inbox.put(OffersArrived(offers))


def _raised(task: asyncio.Task[Any]) -> BaseException | None:
    """What `task` raised, if it has."""
    return None if not task.done() or task.cancelled() else task.exception()
