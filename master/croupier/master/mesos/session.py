"""The stream of a framework of Mesos: its calls go to the core in order, its events to the client.

Rule: one task hands all calls of a stream to the core, so their numbers rise. Each record is one
chunk of HTTP, and a heartbeat follows each burst: some clients deliver a record only when the next
one begins.

Mesos answers a call by events only. So a verdict becomes an update for each task that was refused,
and everything else in it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Final

from aiohttp import web

from croupier.master.core.events import Received
from croupier.master.core.messages import Placed, ToFramework, Updated
from croupier.master.driver import Driver
from croupier.master.mesos.calls import Known, Translated, subscribe_from_json, translate
from croupier.master.mesos.events import HEARTBEAT, Events, executor_end, operation_update
from croupier.master.mesos.executors import Executors
from croupier.master.mesos.tasks import executor_id_in
from croupier.master.services.stream import WRITE_TIMEOUT_S, run_stream
from croupier.master.services.stream_guard import StreamGuard
from croupier.master.session import FrameworkSession
from croupier.master.wire.from_framework import call_from_wire, split_call, subscribe_from_wire
from croupier.mesos.fields import Json, entry, record, typed
from croupier.model.errors import CroupierError, NotFound, TooSlow, Unavailable
from croupier.model.ids import TaskId
from croupier.model.task import Source, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from croupier.net.outbox import Encoded
from croupier.process.http.connections import Connection
from croupier.v1 import framework_pb2 as pb
from croupier.v1.task_pb2 import TaskInfo

BEAT: Final = Encoded(record(HEARTBEAT))
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


class MesosSession(FrameworkSession):
    """The stream of one SUBSCRIBE.

    Attributes:
        stream_id: a secret that its calls carry.
        has_body_credential: whether SUBSCRIBE itself held the credential, so that calls hold none.
    """

    has_body_credential = False

    def begin(self, subscribe: Json, master: Json, driver: Driver, guard: StreamGuard) -> None:
        """Begin with a SUBSCRIBE; `master` describes the master."""
        self.stream_id, self.audit = token_hex(16), guard.audit
        self._subscribe, self._guard, self._inbox = subscribe, guard, driver.inbox
        frameworks = driver.state.frameworks
        info = entry(subscribe, "subscribe", "framework_info")
        self._events = Events(info, master, driver.state.agents)
        self._executors = Executors(info, lambda: frameworks.get(self.framework_id))
        self._known_to_calls = Known(
            lambda: frameworks.get(self.framework_id), self._executors, self._events
        )
        self._waiting: asyncio.Queue[Translated] = asyncio.Queue(MOST_WAITING)
        # Calls without a verdict, by their numbers, and the numbers of the last call and verdict.
        self._undecided: dict[int, Translated] = {}
        self._last_call = self._last_verdict = 0
        self._acknowledged = pb.Acknowledge()

    async def serve(self, request: web.Request, first_call_s: float) -> web.StreamResponse:
        """Write events until the stream ends, and return the answer to the SUBSCRIBE."""
        response = _Chunks(
            headers={
                "Content-Type": "application/json",
                "Transfer-Encoding": "chunked",
                "Mesos-Stream-Id": self.stream_id,
                "Cache-Control": "no-store",
            }
        )
        response.force_close()
        await response.prepare(request)
        connection = None if request.transport is None else request.transport.get_protocol()
        assert isinstance(connection, Connection)
        connection.notify_end(self._abandon)

        async def write(batch: list[Encoded]) -> None:
            if batch[-1] is not BEAT and not len(self.outbox):
                batch.append(BEAT)
            await response.write(b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in batch))
            # What is written is as good as read: calls of Mesos are not repeated.
            self._inbox.put_now(Received(self.session_id, self._last_verdict))

        try:
            await run_stream(self, self._requests(), self._handle, write, self._inbox, first_call_s)
        except ConnectionError:
            return response
        if not self.is_accepted:
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
        call = await translate(of, self._known_to_calls)
        if call.wires and call.wires[0].HasField("acknowledge"):
            self._acknowledge(call.wires[0].acknowledge)
            return
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._waiting.put(call)
        except TimeoutError:
            for task in call.tasks():
                self._executors.ended(TaskId(task.task_id))
            raise Unavailable("the master has not taken the call; try again") from None

    def beat(self) -> None:
        """Queue a heartbeat."""
        self.outbox.put(BEAT)

    def _queue(self, message: ToFramework) -> bool:
        if isinstance(message, Verdict):
            self._last_verdict = message.seq
            found = self._on_verdict(message, self._undecided.pop(message.seq, None))
        elif isinstance(message, Updated | Placed):
            found = self._updates(message.statuses)
        else:
            found = self._events.of(message)
        return self._put(found)

    def _put(self, events: Iterable[Json]) -> bool:
        return all(self.outbox.put(Encoded(record(each))) for each in events)

    def _last(self, error: CroupierError) -> Encoded | None:
        if isinstance(error, Unavailable | TooSlow):
            # ERROR makes clients give up. At the mere end of its stream a client subscribes again.
            return None
        return Encoded(record(typed("ERROR", message=str(error))))

    def _ask(self, wire: pb.Call) -> None:
        """Make a call on behalf of the framework; it is dropped if too many wait."""
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait(Translated([wire]))

    def _acknowledge(self, acknowledge: pb.Acknowledge) -> None:
        """Collect acknowledgements for a moment: Mesos' clients send each by itself."""
        if not self._acknowledged.updates:
            asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, self._send_acknowledgements)
        self._acknowledged.updates.extend(acknowledge.updates)

    def _send_acknowledgements(self) -> None:
        # An agent sends an update again if its acknowledgement is lost.
        self._ask(pb.Call(acknowledge=self._acknowledged))
        self._acknowledged = pb.Acknowledge()

    def _abandon(self) -> None:
        """End the session: its connection is gone."""
        self.outbox.drop()
        self.end(None)

    async def _requests(self) -> AsyncIterator[Translated | None]:
        # The SUBSCRIBE.
        yield None
        while True:
            yield await self._waiting.get()

    async def _handle(self, call: Translated | None) -> None:
        if call is None:
            self.is_introduced = True
            subscribe = subscribe_from_json(self._subscribe, self.stream_id)
            event = subscribe_from_wire(self.session_id, subscribe)
            event = replace(event, principal=self.caller.principal)
            await self._guard.put(self._inbox, event, subscribe)
            return
        self._put(call.answers)
        for wire in call.wires:
            self._last_call += 1
            self._undecided[self._last_call] = call
            wire.seq = self._last_call
            called = await call_from_wire(self.session_id, wire, self.seal)
            for part in split_call(called):
                await self._guard.put(self._inbox, part, wire)

    def _updates(self, statuses: Iterable[TaskStatus]) -> Iterator[Json]:
        """Yield the events for statuses; those that Mesos does not have are acknowledged here."""
        for status in statuses:
            own = executor_id_in(status.task_id, status.agent_id)
            executor_id = "" if own else self._executors.executor_of(status.task_id)
            # In Mesos, only the executor of a task reports it as starting. It is staging before.
            is_staging = bool(executor_id) and (
                status.state is TaskState.STARTING and status.source is not Source.EXECUTOR
            )
            if status.sequence and (own or is_staging):
                update = pb.Acknowledge.Update(
                    agent_id=status.agent_id, task_id=status.task_id, sequence=status.sequence
                )
                self._acknowledge(pb.Acknowledge(updates=[update]))
            if is_staging and status.is_reconciled:
                staged = replace(status, state=TaskState.STAGING, sequence=0)
                yield from self._events.update(staged, executor_id)
            elif not (own or is_staging):
                yield from self._events.update(status, executor_id)
            is_end = own and status.state.is_terminal and not status.is_reconciled
            if is_end and self._executors.ended(TaskId(status.task_id)):
                yield executor_end(status)

    def _on_verdict(self, verdict: Verdict, call: Translated | None) -> Iterator[Json]:
        if call is None:
            return
        if call.reconciled and isinstance(verdict.error, NotFound):
            # Mesos answers a KILL of an unknown task as RECONCILE.
            self._ask(pb.Call(reconcile=pb.Reconcile(task_ids=[call.reconciled])))
        errors = {each.id: each.error for each in verdict.operations}
        for hold_id, operation_id in call.operations.items():
            error = errors.get(hold_id, verdict.error)
            state, why = ("FINISHED", "") if error is None else ("ERROR", str(error))
            yield from operation_update(operation_id, state, why)
        tasks = {task.task_id: task for task in call.tasks()}
        refused: dict[str, CroupierError] = {}
        for each in verdict.tasks:
            task = tasks.get(each.task_id, TaskInfo())
            if task.HasField("executor"):
                self._executors.decided(TaskId(each.task_id))
                if each.error is not None:
                    self._executors.ended(TaskId(each.task_id))
                    refused[each.task_id] = each.error
            elif each.error is not None:
                yield self._events.refused(
                    each.task_id,
                    call.agents.get(each.task_id, ""),
                    # A task follows its executor, and is refused with it.
                    refused.get(task.executor_id, each.error),
                    is_grouped=task.HasField("group"),
                    is_whole=verdict.error is not None,
                )
                if self._executors.is_left_by(TaskId(task.executor_id)):
                    self._ask(pb.Call(kill=pb.Kill(task_id=task.executor_id)))
