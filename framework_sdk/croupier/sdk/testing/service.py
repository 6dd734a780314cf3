"""The protocol side of a fake master.

Rule: it keeps the framework protocol as strictly as the real master. The first call must be
SUBSCRIBE, numbers must rise by one, a repeated call is answered and not done again, offers
die with their stream or lease, and updates are sent again until they are acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from croupier.model.clock import Clock
from croupier.model.errors import (
    CroupierError,
    FailedOver,
    InvalidRequest,
    NotLeader,
    ProtocolViolation,
    Removed,
)
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import Source, TaskState, TaskStatus
from croupier.net.task_scope import end
from croupier.sdk.testing.cluster import Cluster
from croupier.sdk.testing.recorded import RecordedCall, record
from croupier.sdk.testing.stream import Context, Request, Response, Stream
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc
from croupier.wire.task import status_to_wire

_TICK_S = 0.02
_CALLS_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Manner:
    """How a fake master behaves by itself; see `FakeMaster`."""

    auto_run: bool
    heartbeat_s: float
    max_message_bytes: int
    resend_s: float


@dataclass(slots=True)
class _Client:
    """What is remembered of one run of a framework's program."""

    next_seq: int
    verdicts: dict[int, pb.Verdict] = field(default_factory=dict)


class Service(rpc.FrameworkServiceServicer):
    """Serves the stream of one framework at a time, and records its calls.

    Attributes:
        changed: set whenever something happened that a test may wait for.
        refusals: what to answer the next calls with.
        agents_told: descriptions that the current stream has been sent.
        follows: why it takes nobody in; None while it leads.
        refused: how many SUBSCRIBEs were sent away because it follows.
    """

    def __init__(self, manner: Manner, clock: Clock) -> None:
        """Start without a framework."""
        self._manner, self._clock = manner, clock
        self._clients: dict[str, _Client] = {}
        self._client = _Client(1)
        self._removed: set[str] = set()
        self._frameworks = 0
        self._beaten_at = self._resent_at = 0.0
        self.cluster = Cluster()
        self.stream: Stream | None = None
        self.agents_told: dict[str, pb.AgentDescription] = {}
        self.refusals: deque[CroupierError] = deque()
        self.calls: deque[RecordedCall] = deque(maxlen=_CALLS_KEPT)
        self.changed = asyncio.Event()
        self.follows: NotLeader | None = None
        self.refused = 0

    async def Connect(  # noqa: N802 - the name in the contract
        self, request_iterator: AsyncIterator[Request], _: Context
    ) -> AsyncIterator[Response]:
        """Serve one stream."""
        stream = Stream()
        reading = asyncio.create_task(self._read(stream, request_iterator))
        try:
            async for response in stream.responses():
                yield response
            if reading.done():
                reading.result()
        finally:
            # First of all: gRPC may cancel what is awaited here.
            self.forget(stream)
            await end(reading)

    def send(self, event: pb.Event) -> None:
        """Send `event` if a framework is subscribed."""
        if self.stream is not None:
            self.stream.send(event)

    def send_updates(self, statuses: Iterable[TaskStatus]) -> None:
        """Send status updates, if there are any and a framework is subscribed."""
        update = pb.Update(statuses=[status_to_wire(status) for status in statuses])
        if update.statuses:
            self.send(pb.Event(update=update))

    def forget(self, stream: Stream) -> None:
        """`stream` is over: if it was the framework's, all offers are void."""
        if stream is self.stream:
            self.stream = None
            self.cluster.offers.clear()
            self.changed.set()

    def follow(self, refusal: NotLeader) -> None:
        """End the stream, and every one that comes, by `refusal`."""
        self.follows = refusal
        if self.stream is not None:
            self.stream.close(refusal)
            self.forget(self.stream)

    def inherit(self, other: Service) -> None:
        """Know what a new leader reads in the registry: the framework, and its tasks."""
        self.follows = None
        self.cluster = replace(other.cluster, offers={}, made=set(other.cluster.made))
        self._removed, self._frameworks = set(other._removed), other._frameworks
        # Verdicts are not among it, but what an ACCEPT has launched is.
        self._clients.clear()

    async def tick(self) -> None:
        """Keep the master's pace: heartbeats, ends of leases, updates sent again. For ever."""
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._clock.now()
            for offer in list(self.cluster.offers.values()):
                if offer.expires_at <= now:
                    del self.cluster.offers[offer.offer_id]
                    rescind = pb.Rescind(offer_id=offer.offer_id, reason="the lease ended")
                    self.send(pb.Event(rescind=rescind))
            if now - self._beaten_at >= self._manner.heartbeat_s:
                self._beaten_at = now
                self.send(pb.Event(heartbeat=pb.Heartbeat()))
            if now - self._resent_at >= self._manner.resend_s:
                self._resent_at = now
                self.send_updates(self.cluster.waiting())

    async def _read(self, stream: Stream, requests: AsyncIterator[Request]) -> None:
        """Decide all that arrives, until the stream or its requests end."""
        try:
            async for request in requests:
                for call in request.calls:
                    if stream.is_open:
                        self._on_call(stream, call, request.verdicts_seen)
        except CroupierError as error:
            stream.close(error)
        except BaseException:
            stream.drop()
            raise
        else:
            stream.drop()

    def _on_call(self, stream: Stream, call: pb.Call, seen: int) -> None:
        if stream is not self.stream:
            if not call.HasField("subscribe"):
                raise ProtocolViolation("the first call must be SUBSCRIBE")
            self._on_subscribe(stream, call, seen)
        elif call.HasField("subscribe"):
            raise ProtocolViolation("SUBSCRIBE on a stream that is subscribed")
        elif call.HasField("heartbeat"):
            self._record(call, seen, again=False)
        else:
            self._on_numbered(stream, call, seen)

    def _on_subscribe(self, stream: Stream, call: pb.Call, seen: int) -> None:
        if self.follows is not None:
            self.refused += 1
            raise self.follows
        if self.refusals:
            raise self.refusals.popleft()
        subscribe = call.subscribe
        Cluster().subscribe(subscribe)  # what is refused must not end an older session
        framework_id = self._admit(subscribe.framework.framework_id)
        if framework_id != self.cluster.framework_id:
            self.cluster = Cluster(framework_id)
        self.cluster.subscribe(subscribe)
        self._client = self._clients.setdefault(subscribe.client_id, _Client(seen + 1))
        self.cluster.client_id = subscribe.client_id
        self.stream, self.agents_told = stream, {}
        self._beaten_at = self._resent_at = self._clock.now()
        subscribed = pb.Subscribed(
            framework_id=framework_id,
            heartbeat_ms=round(self._manner.heartbeat_s * 1000),
            master_id="fake",
            max_message_bytes=self._manner.max_message_bytes,
        )
        stream.send(pb.Event(subscribed=subscribed))
        self.send_updates(self.cluster.waiting())
        self._record(call, seen, again=False)

    def _admit(self, framework_id: str) -> str:
        """The id of the framework that subscribes, whose older session is ended."""
        if framework_id in self._removed:
            raise Removed(f"framework {framework_id} was removed")
        if self.stream is not None:
            if framework_id != self.cluster.framework_id:
                raise InvalidRequest("a fake master takes one framework at a time")
            self.stream.close(FailedOver("a newer session has taken over"))
            self.forget(self.stream)
        if not framework_id:
            self._frameworks += 1
            framework_id = f"F{self._frameworks}"
        return framework_id

    def _on_numbered(self, stream: Stream, call: pb.Call, seen: int) -> None:
        client = self._client
        if call.seq > client.next_seq:
            raise ProtocolViolation(f"call {call.seq} where {client.next_seq} is due")
        for seq in [seq for seq in client.verdicts if seq <= seen]:
            del client.verdicts[seq]
        if call.seq < client.next_seq:
            if call.seq not in client.verdicts:
                raise ProtocolViolation(f"call {call.seq} again, whose verdict was seen")
            stream.send(pb.Event(verdict=client.verdicts[call.seq]))
            self._record(call, seen, again=True)
            return
        client.next_seq += 1
        verdict = client.verdicts[call.seq] = self.cluster.decide(call, self._refusal_of(call))
        stream.send(pb.Event(verdict=verdict))
        self._record(call, seen, again=False)
        if not verdict.HasField("error"):
            self._after(stream, call, verdict)

    def _refusal_of(self, call: pb.Call) -> CroupierError | None:
        if self.refusals:
            return self.refusals.popleft()
        if call.ByteSize() > self._manner.max_message_bytes:
            return InvalidRequest(f"a call of {call.ByteSize()} bytes")
        return None

    def _after(self, stream: Stream, call: pb.Call, verdict: pb.Verdict) -> None:
        """What follows from a call that was taken."""
        if call.HasField("reconcile"):
            self.send_updates(self.cluster.reconcile(call.reconcile.task_ids))
        elif call.HasField("teardown"):
            self._removed.add(self.cluster.framework_id)
            stream.close()
        elif self._manner.auto_run:
            for task in verdict.tasks:
                if not task.HasField("error"):
                    self._run(task.task_id)

    def _run(self, task_id: str) -> None:
        for state in (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED):
            wanted = TaskStatus(
                framework_id=FrameworkId(self.cluster.framework_id),
                task_id=TaskId(task_id),
                agent_id=AgentId(""),
                state=state,
                source=Source.EXECUTOR,
                time_ms=self._clock.wall_ms(),
                exit_code=0 if state is TaskState.FINISHED else None,
            )
            self.send_updates([self.cluster.update(wanted)])

    def _record(self, call: pb.Call, seen: int, *, again: bool) -> None:
        self.calls.append(record(call, self.cluster.framework_id, seen, again))
        self.changed.set()
