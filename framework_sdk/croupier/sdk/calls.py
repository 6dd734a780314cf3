"""Calls to the master: each gets a verdict or a named error.

Rule: a call gets its number when it may be sent, keeps it on all streams, and ends with its
verdict. The caller's wait may time out earlier; the call stays open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.model.task import TaskStatus
from croupier.model.verdict import Verdict
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.sdk.core.calls import CallLedger, OpenCall
from croupier.sdk.core.subscription import AcceptedTasks, Demands, Subscription
from croupier.sdk.settings import Settings
from croupier.sdk.wire import demand_call, verdict_from_wire
from croupier.v1 import framework_pb2 as pb

# Ids may be long: a thousand acknowledgements stay well under the size of one call.
ACKNOWLEDGED_AT_ONCE = 1000
# Acknowledgements wait so long for others and for another call: each message costs the master a
# commit, a verdict, and a message to each agent. Until then, an update may be shown again.
ACKNOWLEDGE_WITHIN_S = 0.1
# The most bytes that its number adds to a call.
_SEQ_BYTES = 11


@dataclass(slots=True)
class _Pending:
    """A call that was made.

    Attributes:
        due: when the caller's wait times out, in connected seconds.
        waiter: the caller's; None for the SDK's own calls.
        demands: of an UPDATE_DEMAND; None for all other calls.
        launch: the tasks of an ACCEPT; None for all other calls.
    """

    call: pb.Call
    due: float = float("inf")
    waiter: asyncio.Future[Verdict] | None = None
    demands: Demands | None = None
    launch: AcceptedTasks | None = None


class Calls:
    """The calls of one framework, over all its streams; `awaited` callers wait for a verdict."""

    def __init__(self, subscription: Subscription, settings: Settings, clock: Clock) -> None:
        self._subscription, self._settings, self._clock = subscription, settings, clock
        self._ledger = CallLedger[_Pending](settings.unanswered_limit)
        self._backlog: dict[bool, deque[_Pending]] = {False: deque(), True: deque()}
        self._acks: dict[str, tuple[str, int]] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self.awaited = 0
        self._send: Callable[[pb.Call], None] | None = None
        self._stream = 0
        self._connected_s, self._connected_at = 0.0, 0.0
        self._max_bytes = MAX_MESSAGE_BYTES
        self._failed: CroupierError | None = None
        self._changed = asyncio.Event()

    @property
    def verdicts_seen(self) -> int:
        """The highest number such that all verdicts up to it have arrived."""
        return self._ledger.seen

    @property
    def max_bytes(self) -> int:
        """The size of the largest call that the master takes, without its number."""
        return self._max_bytes - _SEQ_BYTES

    def attach(self, send: Callable[[pb.Call], None], max_bytes: int) -> None:
        """Send unanswered calls, and then waiting ones, on the stream that is subscribed now."""
        self._send, self._connected_at = send, self._clock.now()
        self._stream += 1
        self._max_bytes = max_bytes or MAX_MESSAGE_BYTES
        self._give_up_messages()
        for entry in self._ledger.carry(self._stream):
            send(entry.call.call)
        self._pump()

    def _give_up_messages(self) -> None:
        """End the calls with messages that an earlier stream carried: they arrive at most once."""
        for entry in self._ledger.give_up():
            waiter = entry.call.waiter
            if waiter is not None and not waiter.done():
                lost = Unavailable("the connection to the master broke; the message may be lost")
                waiter.set_exception(lost)

    def detach(self) -> None:
        """Make calls wait for the next stream."""
        if self._send is not None:
            self._connected_s += self._clock.now() - self._connected_at
            self._send = None
            self._changed.set()

    def check(self, call: pb.Call) -> None:
        """Check that `call` can be made.

        Raises:
            InvalidRequest: if it is larger than the master takes.
            CroupierError: the error that ended the framework, if it has ended.
        """
        if self._failed is not None:
            raise _copy(self._failed)
        size = call.ByteSize() + _SEQ_BYTES
        if size > self._max_bytes:
            raise InvalidRequest(
                f"the call has {size} bytes; the master accepts at most {self._max_bytes}"
            )

    async def make(
        self, call: pb.Call, demands: Demands | None = None, launch: AcceptedTasks | None = None
    ) -> Verdict:
        """Make `call`, which `check` accepted, and wait for its verdict.

        Raises:
            Unavailable: if there is none within 30 s of connected time.
            CroupierError: the error that ended the framework, if it ended meanwhile.
        """
        waiter: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        due = self._connected_now() + self._settings.call_timeout_s
        self._backlog[False].append(_Pending(call, due, waiter, demands, launch))
        self.awaited += 1
        try:
            self._pump()
            return await waiter
        finally:
            self.awaited -= 1

    def post(self, call: pb.Call, demands: Demands | None = None) -> None:
        """Make one of the SDK's own calls, without waiting for the verdict."""
        if self._failed is None:
            self._backlog[True].append(_Pending(call, demands=demands))
            self._pump()

    def acknowledge(self, status: TaskStatus) -> None:
        """Acknowledge an update, with the next call or within 100 ms.

        All acknowledgements that wait are one call, and a task's latest covers its earlier ones.
        """
        _, sequence = self._acks.get(status.task_id, ("", 0))
        self._acks[status.task_id] = (status.agent_id, max(status.sequence, sequence))
        if len(self._acks) >= ACKNOWLEDGED_AT_ONCE:
            self._flush()
        elif self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(ACKNOWLEDGE_WITHIN_S, self._flush)

    def on_verdict(self, wire: pb.Verdict) -> None:
        """End the call that a verdict answers; ignore a repeated verdict."""
        entry = self._ledger.close(wire.seq)
        if entry is None:
            return
        verdict = verdict_from_wire(wire)
        self._apply(entry, verdict)
        waiter = entry.call.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(verdict)
        self._pump()

    def on_tick(self) -> None:
        """Time out the waits that are due."""
        now = self._connected_now()
        for pending in self._pending():
            if pending.due <= now and pending.waiter is not None and not pending.waiter.done():
                kind = pending.call.WhichOneof("call")
                pending.waiter.set_exception(Unavailable(f"the master did not answer {kind}"))

    def fail(self, error: CroupierError) -> None:
        """Fail all calls with the error that ended the framework."""
        self._failed = self._failed or error
        for pending in self._pending():
            if pending.waiter is not None and not pending.waiter.done():
                pending.waiter.set_exception(_copy(error))
        self._changed.set()

    async def drained(self) -> None:
        """Wait until every call is answered, or there is no stream."""
        self._flush()
        while self._send is not None and (self._acks or any(True for _ in self._pending())):
            self._changed.clear()
            await self._changed.wait()

    def _pending(self) -> Iterator[_Pending]:
        for entry in self._ledger.open_calls():
            yield entry.call
        yield from self._backlog[True]
        yield from self._backlog[False]

    def _connected_now(self) -> float:
        since = self._clock.now() - self._connected_at if self._send is not None else 0.0
        return self._connected_s + since

    def _pump(self) -> None:
        """Open waiting calls while there is room, and send them if there is a stream."""
        has_opened = False
        for internal, backlog in self._backlog.items():
            while backlog and self._ledger.has_room(internal):
                pending = backlog.popleft()
                if pending.waiter is None or not pending.waiter.done():
                    self._open(pending, internal)
                    has_opened = True
        # Without a timer, they were due when there was no room.
        if has_opened or self._flush_timer is None:
            self._flush()
        self._changed.set()

    def _open(self, pending: _Pending, internal: bool) -> None:
        once = pending.call.HasField("send_message")
        entry = self._ledger.open(pending, internal=internal, once=once)
        pending.call.seq = entry.seq
        if pending.demands is not None:
            self._subscription.on_demands_sent(entry.seq, pending.demands)
        if self._send is not None:
            entry.stream = self._stream
            self._send(pending.call)

    def _flush(self) -> None:
        """Send the collected acknowledgements."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        while self._acks and self._failed is None and self._ledger.has_room(internal=True):
            acknowledge = pb.Acknowledge()
            for task_id in list(islice(self._acks, ACKNOWLEDGED_AT_ONCE)):
                agent_id, sequence = self._acks.pop(task_id)
                acknowledge.updates.add(agent_id=agent_id, task_id=task_id, sequence=sequence)
            self._open(_Pending(pb.Call(acknowledge=acknowledge)), internal=True)

    def _apply(self, entry: OpenCall[_Pending], verdict: Verdict) -> None:
        """Apply a verdict to the subscription, even if the caller's wait timed out."""
        launch = entry.call.launch
        if entry.call.demands is not None:
            self._subscription.on_demands_answered(entry.seq, verdict.error is None)
        elif launch is not None:
            is_resent = entry.stream != self._stream
            tasks = tuple(launch.tasks[n] for n in verdict.launched if n < len(launch.tasks))
            if self._subscription.on_launched(entry.seq, replace(launch, tasks=tasks), is_resent):
                demands = self._subscription.demands
                self.post(demand_call(demands), demands)


def _copy(error: CroupierError) -> CroupierError:
    """Return a copy to raise: one exception raised in many places collects all tracebacks."""
    return type(error)(*error.args)
