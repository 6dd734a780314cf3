"""A framework's life at the master: connected, reconnected, stopped or thrown out.

Rule: the framework ends once, by `stop` or by an error that no reconnection can mend; every
task that was started for it has then ended too.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

from croupier.model.clock import Clock
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotLeader,
    Removed,
    Unavailable,
)
from croupier.model.log_throttle import Repeats
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.errors import error_from_wire
from croupier.net.masters import Masters
from croupier.sdk.calls import Calls, Opened
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.subscription import Launch, Standing
from croupier.sdk.dispatch import Dispatcher, Handlers
from croupier.sdk.duration import from_milliseconds
from croupier.sdk.inbox import (
    AgentLost,
    Inbox,
    OfferRescinded,
    OffersArrived,
    RoomWanted,
    Subscribed,
    UpdateArrived,
)
from croupier.sdk.link import Link, is_fatal
from croupier.sdk.log import log_event
from croupier.sdk.settings import Settings
from croupier.sdk.task_scope import end
from croupier.sdk.verdict import Failure, Verdict
from croupier.sdk.wire import AgentDirectory, Identity, preempt_from_wire, subscribe_call
from croupier.v1 import framework_pb2 as pb
from croupier.wire.task import status_from_wire

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
        self._masters, self._repeats = Masters(masters), Repeats()
        self._settings, self._clock, self._rng = settings, clock, rng
        self._inbox = Inbox(settings.queue_limit)
        self._book = OfferBook()
        self._calls = Calls(standing, settings, clock)
        self._dispatcher = Dispatcher(handlers, self._inbox, self._book, self._calls, clock)
        self._agents = AgentDirectory(clock)
        self._link: Link | None = None
        self._begun = self._tearing_down = False
        self._subscribed_at: float | None = None
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def verdicts_seen(self) -> int:
        """What to tell the master so that it can forget verdicts."""
        return self._calls.verdicts_seen

    @property
    def is_full(self) -> bool:
        """Whether the handlers are so far behind that reading should pause."""
        return self._inbox.is_full(self._calls.awaited)

    async def room(self) -> None:
        """Wait until `is_full` may have changed."""
        await self._inbox.room()

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

    def on_event(self, event: pb.Event) -> None:
        """Take in one event of the stream.

        Raises:
            CroupierError: if it says that the stream is over.
        """
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

    def on_tick(self) -> None:
        """Some time has passed."""
        self._calls.on_tick()

    async def _live(self) -> None:
        linking: asyncio.Task[Any] = asyncio.create_task(self._stay_connected())
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

    async def _stay_connected(self) -> NoReturn:
        """One stream after the other, until an error that no new stream can mend."""
        settings = self._settings
        backoff = Backoff(settings.backoff_first_s, settings.backoff_cap_s, self._rng)
        electing = Backoff(settings.backoff_first_s, settings.election_cap_s, self._rng)
        while True:
            address = self._masters.next()
            try:
                await self._connect(address)
            except CroupierError as error:
                if is_fatal(error):
                    raise
                at_once = self._masters.failed(error)
                if self._lived_s() > settings.backoff_cap_s:
                    backoff.reset()
                    electing.reset()
                if isinstance(error, NotLeader):
                    # Somebody is there, so there is soon a leader: no reason to come back late.
                    backoff.reset()
                    wait_s = 0.0 if at_once else electing.next_s()
                else:
                    wait_s = backoff.next_s()
                self._log_end(address, error, wait_s)
            await asyncio.sleep(wait_s)

    def _log_end(self, address: Address, error: CroupierError, wait_s: float) -> None:
        name = "master_lost" if self._lived_s() else "master_unreachable"
        quiet = self._tearing_down
        if isinstance(error, NotLeader):
            name, quiet = "master_follows", True
        happening = (name, address, type(error))
        if name != "master_lost" and not self._repeats.is_due(happening, self._clock.now()):
            return
        log_event(
            logging.INFO if quiet else logging.WARNING,
            name,
            framework_id=self._standing.framework_id,
            master=str(address),
            error=str(error),
            retry_in_s=round(wait_s, 3),
        )

    async def _connect(self, address: Address) -> NoReturn:
        self._agents = AgentDirectory(self._clock)
        self._subscribed_at = None
        self._link = Link(self, address, self._settings, self._clock)
        try:
            await self._link.run(subscribe_call(self._identity, self._standing))
        finally:
            self._calls.detach()
            self._book.clear()
            self._link = None

    def _lived_s(self) -> float:
        """How long the latest stream was subscribed, in seconds; 0 if it never was."""
        return 0.0 if self._subscribed_at is None else self._clock.now() - self._subscribed_at

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
        assert self._link is not None
        if self._subscribed_at is not None:
            return
        self._subscribed_at = self._clock.now()
        self._repeats.forget()
        self._masters.served()
        self._standing.framework_id = subscribed.framework_id
        self._inbox.put(Subscribed(subscribed.framework_id))
        self._link.on_subscribed(from_milliseconds(subscribed.heartbeat_ms) or DEFAULT_HEARTBEAT_S)
        self._calls.attach(self._link, subscribed.max_message_bytes)
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
