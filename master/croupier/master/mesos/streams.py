"""One stream of a scheduler: its calls go to the core in order, its events to the client.

Rule: one task hands all calls of a stream to the core, so their numbers rise. Each record is one
chunk of HTTP, and a heartbeat follows each burst: some clients deliver a record only when the next
one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from aiohttp import web

from croupier.master.core.events import Received
from croupier.master.driver import Driver
from croupier.master.mesos.calls import (
    Known,
    Translated,
    capabilities_of,
    in_parts,
    subscribe_from_json,
    translate,
)
from croupier.master.mesos.events import Events
from croupier.master.mesos.executors import Executors
from croupier.master.mesos.offers import Offers
from croupier.master.mesos.session import BEAT, MesosSession
from croupier.master.services.stream import WRITE_TIMEOUT_S, run_stream
from croupier.master.services.stream_guard import StreamGuard
from croupier.master.wire.from_framework import call_from_wire, split_call, subscribe_from_wire
from croupier.mesos.fields import Json, entry
from croupier.model.errors import Unavailable
from croupier.model.ids import TaskId
from croupier.net.outbox import Encoded
from croupier.process.http.connections import Connection
from croupier.v1 import framework_pb2 as pb

# Calls of one stream that were accepted, and wait for the core.
MOST_WAITING: Final = 64
# Time for which an acknowledgement waits for others. The SDK lets them wait longer.
ACKNOWLEDGE_S: Final = 0.05
# Pause before the end of a stream that was refused: some clients subscribe again at once.
HOLD_S: Final = 1.5


class _Chunks(web.StreamResponse):
    """An answer whose chunks are made here, so that one write holds many of them."""

    # As in the answer to WebSockets: aiohttp leaves the body as it is.
    _length_check = False

    async def write_records(self, records: Iterable[bytes]) -> None:
        """Write records, each as one chunk; raises ConnectionError if the client is gone."""
        framed = (b"%x\r\n%b\r\n" % (len(each), each) for each in records)
        await self.write(b"".join(framed))


class SchedulerStream:
    """The stream of one SUBSCRIBE.

    Attributes:
        session: the session, whose outbox holds records.
    """

    def __init__(
        self,
        session: MesosSession,
        subscribe: Json,
        master: Json,
        driver: Driver,
        guard: StreamGuard,
    ) -> None:
        """Begin with a SUBSCRIBE; `master` describes the master."""
        self.session, self._guard, self._inbox = session, guard, driver.inbox
        frameworks = driver.state.frameworks
        info = entry(subscribe, "subscribe", "framework_info")
        executors = Executors(info, lambda: frameworks.get(session.framework_id))
        self._known = Known(executors, Offers())
        self._subscribe = subscribe
        self._acknowledged = pb.Acknowledge()
        self._calls: asyncio.Queue[Translated] = asyncio.Queue(MOST_WAITING)
        session.audit = guard.audit
        events = Events(capabilities_of(subscribe), master)
        session.introduce(events, self._known, self._ask)

    async def serve(self, request: web.Request, first_call_s: float) -> web.StreamResponse:
        """Write events until the stream ends, and return the answer to the SUBSCRIBE."""
        response = _Chunks(
            headers={
                "Content-Type": "application/json",
                "Transfer-Encoding": "chunked",
                "Mesos-Stream-Id": self.session.stream_id,
                "Cache-Control": "no-store",
            }
        )
        response.force_close()
        await response.prepare(request)
        connection = None if request.transport is None else request.transport.get_protocol()
        assert isinstance(connection, Connection)
        connection.notify_end(self._abandon)

        async def write(batch: list[Encoded]) -> None:
            if batch[-1] is not BEAT and not len(self.session.outbox):
                batch.append(BEAT)
            await response.write_records(batch)
            # What is written is as good as read: calls of Mesos are not repeated.
            self._inbox.put_now(Received(self.session.session_id, self.session.verdicts_seen))

        try:
            await run_stream(
                self.session, self._requests(), self._handle, write, self._inbox, first_call_s
            )
        except ConnectionError:
            return response
        if not self.session.is_accepted:
            await asyncio.sleep(HOLD_S)
        with suppress(ConnectionError):
            # The last chunk.
            await response.write(b"0\r\n\r\n")
        return response

    async def call(self, of: Json) -> None:
        """Accept a call of the framework.

        Raises:
            InvalidRequest: if it is malformed.
            Unavailable: if the core does not take it in time.
        """
        translated = await translate(of, self._known)
        if translated.is_acknowledgement:
            self._acknowledge(translated)
            return
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._calls.put(translated)
        except TimeoutError:
            for executor in translated.started:
                self._known.executors.ended(TaskId(executor))
            raise Unavailable("the master has not taken the call; try again") from None

    def _ask(self, call: Translated) -> None:
        """Make a call on behalf of the framework; it is dropped if too many wait."""
        if call.is_acknowledgement:
            self._acknowledge(call)
            return
        with suppress(asyncio.QueueFull):
            self._calls.put_nowait(call)

    def _acknowledge(self, call: Translated) -> None:
        """Collect acknowledgements for a moment: Mesos' clients send each by itself."""
        assert call.wire is not None
        if not self._acknowledged.updates:
            asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, self._send_acknowledgements)
        self._acknowledged.updates.extend(call.wire.acknowledge.updates)

    def _send_acknowledgements(self) -> None:
        # An agent sends an update again if its acknowledgement is lost.
        call = Translated(pb.Call(acknowledge=self._acknowledged))
        self._acknowledged = pb.Acknowledge()
        with suppress(asyncio.QueueFull):
            self._calls.put_nowait(call)

    def _abandon(self) -> None:
        """End the session: its connection is gone."""
        self.session.outbox.drop()
        self.session.end(None)

    async def _requests(self) -> AsyncIterator[Translated | None]:
        # The SUBSCRIBE.
        yield None
        while True:
            yield await self._calls.get()

    async def _handle(self, call: Translated | None) -> None:
        session = self.session
        if call is None:
            session.is_introduced = True
            subscribe = subscribe_from_json(self._subscribe, session.stream_id)
            event = subscribe_from_wire(session.session_id, subscribe)
            event = replace(event, principal=session.caller.principal)
            await self._guard.put(self._inbox, event, subscribe)
            return
        session.refuse(call)
        if call.wire is None:
            return
        for wire in in_parts(call.wire):
            wire.seq = session.number(call)
            called = await call_from_wire(session.session_id, wire, session.seal)
            for part in split_call(called):
                await self._guard.put(self._inbox, part, wire)
