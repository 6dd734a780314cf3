"""A framework's session with the master: connected, reconnected, stopped or removed.

Rule: the framework ends once, by `stop` or by an error that no reconnection can fix. By then, every
asyncio task that was started for it has ended.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc.aio

from croupier.model.clock import Clock
from croupier.model.durations import from_milliseconds
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotLeader,
    Removed,
    TooSlow,
    Unavailable,
)
from croupier.model.verdict import TaskVerdict, Verdict
from croupier.net.address import Address
from croupier.net.client_session import ClientSession, Disconnection
from croupier.net.errors import error_from_wire
from croupier.net.leader_search import Masters
from croupier.net.task_scope import end
from croupier.sdk.calls import Calls
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.subscription import AcceptedTasks, Demands, Subscription
from croupier.sdk.credentials import CredentialSource
from croupier.sdk.dispatch import Dispatcher, HandlerCall, Inbox
from croupier.sdk.log import log_event
from croupier.sdk.offer import Agent, Failure, Message
from croupier.sdk.output import Reader
from croupier.sdk.settings import Settings
from croupier.sdk.wire import agent_from_wire, offer_from_wire, preempt_from_wire, subscribe_call
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc
from croupier.wire.task import status_from_wire

if TYPE_CHECKING:
    from croupier.sdk.framework import Framework

_Connect = grpc.aio.StreamStreamMultiCallable[
    pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
]

# The interval for a master that names none.
DEFAULT_HEARTBEAT_S = 5.0

# The session whose handler is running, in the handler's task and in those it starts.
_handling: ContextVar[Session | None] = ContextVar("handling", default=None)


class Session:
    """Owns the connection, the open calls and the handlers' task of one framework.

    Attributes:
        agents: those that the master has described, by id: each once in a stream.
    """

    def __init__(
        self,
        framework: Framework,
        identity: pb.Subscribe,
        subscription: Subscription,
        masters: Sequence[Address],
        settings: Settings,
        clock: Clock,
        credentials: CredentialSource,
    ) -> None:
        self._framework, self._identity, self._subscription = framework, identity, subscription
        self._settings, self._clock, self._credentials = settings, clock, credentials
        self._inbox = Inbox(settings.queue_limit)
        self._book = OfferBook()
        self._calls = Calls(subscription, settings, clock)
        self._dispatcher = Dispatcher(framework, self._inbox, self._book, self._calls, clock)
        self.agents: dict[str, Agent] = {}
        # The outbox has room for every unanswered call, the SUBSCRIBE and a heartbeat, however
        # large: calls are kept until their verdict anyway.
        self._connection: ClientSession[
            pb.Call, pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
        ] = ClientSession(
            self,
            Masters(masters),
            replace(settings.times, tick_s=min(settings.call_timeout_s / 4, 1.0)),
            random.Random(),
            # A reconnection can only help against these two.
            is_fatal=lambda error: not isinstance(error, Unavailable | TooSlow),
            on_tick=self._calls.on_tick,
            outbox_messages=settings.unanswered_limit + 2,
            outbox_bytes=sys.maxsize,
            find_security=credentials.find,
        )
        self._is_local = all(address.is_loopback for address in masters)
        self._has_begun = self._is_tearing_down = False
        self._channel: grpc.aio.Channel | None = None
        self._stop_asked = asyncio.Event()
        self._ended = asyncio.Event()

    def check_secrets(self, *, is_insecure: bool = False) -> None:
        """Check that secrets can be sent; `is_insecure` accepts that others can read them.

        Raises InvalidRequest if a call may go unencrypted to another machine.
        """
        connection = self._connection
        if not (is_insecure or connection.is_encrypted or (self._is_local and connection.is_local)):
            raise InvalidRequest(
                "secrets are not sent unencrypted to another machine: connect with TLS, or make"
                " the framework with insecure=True"
            )

    async def call_each(self, calls: Sequence[pb.Call]) -> list[TaskVerdict]:
        """Make SUBMITs or WITHDRAWs, which are sent together; return the verdicts on their tasks.

        Raises:
            Unavailable: if one has no verdict within 30 s of connected time.
            CroupierError: the error that ended the framework, if it has ended.
        """
        verdicts = await asyncio.gather(*map(self.call, calls))
        for verdict in verdicts:
            if verdict.error is not None and not verdict.tasks:
                raise verdict.error
        return [task for verdict in verdicts for task in verdict.tasks]

    @property
    def max_bytes(self) -> int:
        """The size of the largest call that the master takes."""
        return self._calls.max_bytes

    async def call(
        self,
        call: pb.Call,
        *,
        answers: Sequence[str] = (),
        demands: Demands | None = None,
        launch: AcceptedTasks | None = None,
    ) -> Verdict:
        """Make `call`, which answers the offers `answers`, and wait for its verdict.

        Raises:
            InvalidRequest: if it is larger than the master takes; it is not sent then.
            Unavailable: if there is no verdict within 30 s of connected time.
            CroupierError: the error that ended the framework, if it has ended.
        """
        self._calls.check(call)
        self._book.answer(answers)
        self._inbox.recheck()
        return await self._calls.make(call, demands, launch)

    def reader(self) -> Reader | None:
        """Return the way to the master; None while no master has accepted the framework.

        Raises Unavailable if the framework has stopped.
        """
        if self._ended.is_set():
            raise Unavailable("the framework has stopped")
        channel, address = self._channel, self._connection.address
        if channel is None or address is None or not self._connection.is_joined:
            return None
        return channel, address, self._subscription.framework_id

    async def run(self) -> None:
        """Connect, and serve the handlers until `stop`.

        Raises:
            Conflict: if it was run before.
            CroupierError: the error that ended it, if that was not `stop`.
        """
        if self._has_begun:
            raise Conflict("a framework runs once; make a new one, with the same framework_id")
        self._has_begun = True
        try:
            await self._serve()
        finally:
            self._ended.set()

    async def stop(self, teardown: bool = False) -> None:
        """End the framework, and wait for its end unless a handler calls this.

        Raises CroupierError if the master did not confirm the teardown; the framework ends
        nevertheless.
        """
        try:
            if teardown and not self._ended.is_set():
                await self._tear_down()
        finally:
            self._stop_asked.set()
            if self._has_begun and _handling.get() is not self:
                await self._ended.wait()

    async def _serve(self) -> None:
        connecting: asyncio.Task[Any] = asyncio.create_task(self._connection.run())
        handling: asyncio.Task[Any] = asyncio.create_task(self._handle())
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stop_asked.wait())
        tasks = (connecting, handling, stopping)
        error: BaseException | None = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            error = _raised(connecting)
            if isinstance(error, CroupierError):
                self._calls.fail(error)  # wakes a handler that waits for a verdict
            await self._finish(handling)
        finally:
            await end(*tasks)
            self._calls.fail(Unavailable("the framework has stopped"))
        error = _raised(handling) or error
        if error is None or (self._is_tearing_down and isinstance(error, Removed)):
            return
        if isinstance(error, CroupierError):
            _handling.set(self)
            await self._dispatcher.serve(HandlerCall(self._framework.on_error, error))
        raise error

    async def _handle(self) -> None:
        _handling.set(self)
        await self._dispatcher.run()

    async def _finish(self, handling: asyncio.Task[Any]) -> None:
        """Wait, for a while, until the running handler returns and its calls are answered."""
        self._inbox.close()
        try:
            async with asyncio.timeout(self._settings.flush_timeout_s):
                await asyncio.wait({handling})
                await self._calls.drained()
        except TimeoutError:
            log_event(logging.INFO, "stop_cut_short", framework_id=self._subscription.framework_id)

    async def _tear_down(self) -> None:
        self._is_tearing_down = True
        try:
            async with asyncio.timeout(self._settings.teardown_timeout_s):
                verdict = await self.call(pb.Call(teardown=pb.Teardown()))
        except TimeoutError:
            raise Unavailable("the master did not confirm the teardown in time") from None
        except Removed:
            return
        if verdict.error is not None:
            raise verdict.error

    # Called by the `ClientSession`.

    def connect(self, channel: grpc.aio.Channel) -> _Connect:
        """Return the method of the framework service."""
        self._channel = channel
        return rpc.FrameworkServiceStub(channel).Connect

    def request_of(self, batch: list[pb.Call]) -> pb.FrameworkServiceConnectRequest:
        """Return the request that carries `batch`."""
        seen = self._calls.verdicts_seen
        return pb.FrameworkServiceConnectRequest(calls=batch, verdicts_seen=seen)

    def on_open(self) -> None:
        """Subscribe as the first call of the stream."""
        self._send(subscribe_call(self._identity, self._subscription))

    async def on_message(self, message: pb.FrameworkServiceConnectResponse) -> None:
        """Handle events; wait while the handlers are far behind, which makes the master wait.

        Raises CroupierError if one of them is an ERROR.
        """
        for event in message.events:
            try:
                self._on_event(event)
            except InvalidRequest as error:
                kind = event.WhichOneof("event")
                log_event(logging.WARNING, "event_malformed", event_kind=kind, error=str(error))
            if event.HasField("error"):
                raise error_from_wire(event.error)
        while self._inbox.is_full(self._calls.awaited):
            await self._inbox.room()

    def beat(self) -> None:
        """Send a heartbeat, unless a queued call replaces it."""
        if not self._connection.queued:
            self._send(pb.Call(heartbeat=pb.Heartbeat()))

    def on_closed(self) -> None:
        """Void the offers of the stream, and make calls wait for the next."""
        self._channel = None
        self._calls.detach()
        self._book.clear()

    def on_disconnected(self, disconnection: Disconnection) -> None:
        """Log the end of a stream."""
        error = disconnection.error
        is_expected = self._is_tearing_down or isinstance(error, NotLeader)
        log_event(
            logging.INFO if is_expected else logging.WARNING,
            disconnection.event,
            framework_id=self._subscription.framework_id,
            master=str(disconnection.address),
            error=f"{error}{'' if is_expected else self._credentials.advice()}",
            retry_in_s=round(disconnection.retry_in_s, 3),
        )

    def _send(self, call: pb.Call) -> None:
        is_queued = self._connection.send(call)
        assert is_queued, "the outbox has room for all unanswered calls"

    def _on_event(self, event: pb.Event) -> None:
        put, framework = self._inbox.put, self._framework
        match event.WhichOneof("event"):
            case "verdict":
                self._calls.on_verdict(event.verdict)
                self._inbox.recheck()
            case "offers":
                self._on_offers(event.offers)
            case "rescind":
                offer_id = event.rescind.offer_id
                if self._book.rescind(offer_id):
                    put(HandlerCall(framework.on_rescind, offer_id, {"offer_id": offer_id}))
            case "update":
                self._learn(event.update.agents)
                for status in event.update.statuses:
                    put(status_from_wire(status))
            case "failure":
                failure = Failure(
                    event.failure.agent_id, event.failure.hostname, event.failure.message
                )
                put(HandlerCall(framework.on_failure, failure, {"agent_id": failure.agent_id}))
            case "message_arrived":
                arrived = event.message_arrived
                message = Message(arrived.task_id, arrived.agent_id, arrived.data)
                put(HandlerCall(framework.on_message, message, {"task_id": message.executor_id}))
            case "preempt_request":
                request = preempt_from_wire(event.preempt_request, self._clock)
                put(HandlerCall(framework.on_preempt, request, {"agent_id": request.agent_id}))
            case "subscribed":
                self._on_subscribed(event.subscribed)

    def _on_subscribed(self, subscribed: pb.Subscribed) -> None:
        if self._connection.is_joined:
            return
        self._connection.join(from_milliseconds(subscribed.heartbeat_ms) or DEFAULT_HEARTBEAT_S)
        framework_id = self._subscription.framework_id = subscribed.framework_id
        self._inbox.put(HandlerCall(self._framework.on_subscribed, framework_id))
        self._calls.attach(self._send, subscribed.max_message_bytes)
        log_event(
            logging.INFO, "subscribed", framework_id=framework_id, master_id=subscribed.master_id
        )

    def _on_offers(self, wire: pb.Offers) -> None:
        self._learn(wire.agents)
        offers = tuple(
            offer_from_wire(offer, self.agents.get(offer.agent_id), self._clock)
            for offer in wire.offers
        )
        now = self._clock.now()
        for offer in offers:
            self._book.add(offer, now)
        self._inbox.put(offers)

    def _learn(self, described: Iterable[pb.AgentDescription]) -> None:
        for each in described:
            self.agents[each.agent_id] = agent_from_wire(each)


def _raised(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the exception of `task`, if it has ended by one."""
    return None if not task.done() or task.cancelled() else task.exception()
