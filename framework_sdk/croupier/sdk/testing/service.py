"""The streams of a fake master, served as a real master serves them, and observed by tests.

Rule: the core decides every call that the test does not refuse. A call is recorded once it is
decided.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, SessionEnded, Subscribe, TimePassed
from croupier.master.core.frameworks import Framework
from croupier.master.core.step import Event
from croupier.master.core.tasks import Task
from croupier.master.services.framework import refuse_framework, serve_framework
from croupier.master.services.stream import Context
from croupier.master.session import FrameworkSession
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, NotLeader
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import TaskState
from croupier.process.inbox import Inbox
from croupier.sdk.testing.core import Behaviour, Core, Durable, Streams
from croupier.sdk.testing.recorded import RecordedCall, record
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc

Request = pb.FrameworkServiceConnectRequest

_TICK_S = 0.02
_CALLS_KEPT = 100_000
FoundT = TypeVar("FoundT")


class Service(rpc.FrameworkServiceServicer):
    """Serves one framework at a time, and records its calls.

    Attributes:
        streams: open streams.
        core: the core of the current term.
        framework_id: the framework that subscribed last.
        calls: recorded calls, oldest first.
        changed: set whenever a test's wait may be over.
        refusals: what the next calls are refused with, of one kind or of any.
        follows: what every stream is refused with; None while this master leads.
        refused: streams refused because this master follows.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.streams = Streams(behaviour.max_message_bytes)
        self.core = Core(self.streams, behaviour, Durable())
        self.framework_id = FrameworkId("")
        self.calls: deque[RecordedCall] = deque(maxlen=_CALLS_KEPT)
        self.changed = asyncio.Event()
        self.refusals: deque[tuple[str | None, CroupierError]] = deque()
        self.follows: NotLeader | None = None
        self.refused = 0

    def refusal(self, kind: str) -> CroupierError | None:
        """Return the error that this call is refused with, once; None if it is decided."""
        wanted = next((each for each in self.refusals if each[0] in (None, kind)), None)
        if wanted is None:
            return None
        self.refusals.remove(wanted)
        return wanted[1]

    @property
    def framework(self) -> Framework | None:
        """The framework that subscribed last; None once it is removed."""
        return self.core.state.frameworks.get(self.framework_id)

    # grpc.aio also accepts a coroutine that writes.
    async def Connect(  # type: ignore[override]  # noqa: N802 - the name in the contract
        self, request_iterator: AsyncIterator[Request], context: Context
    ) -> None:
        """Serve one stream."""
        if self.follows is not None:
            self.refused += 1
            await refuse_framework(context, self.follows)
        session = self.streams.open_framework()
        stream, limit_s = _Stream(self, session), self.streams.limits.first_call_s
        requests = stream.recorded(request_iterator)
        try:
            await serve_framework(session, stream, limit_s, requests, context)
        finally:
            self.streams.forget(session.session_id)

    def end(self, session_id: SessionId, error: CroupierError | None) -> None:
        """End a stream with `error` after all that is queued, or at once and without one."""
        self.streams.cut(session_id, error)
        self.core.decide(SessionEnded(session_id, "the test ended the stream"))
        self.changed.set()

    def end_all(self, error: CroupierError | None) -> None:
        """End all streams, as by `end`."""
        for session_id in self.streams.open():
            self.end(session_id, error)

    def take_over(self, other: Service) -> None:
        """Lead with the framework, the registry and the agents of another master."""
        older = other.core
        agents, ended = older.state.agents.values(), older.state.ended
        older.durable.ended |= {(t.framework_id, t.info.task_id): t.status.state for t in ended}
        self.core = Core(self.streams, self._behaviour, older.durable, agents)
        self.framework_id, self.follows = other.framework_id, None

    async def tick(self) -> None:
        """Expire offers, send heartbeats and repeat updates, until cancelled."""
        beaten_at = resent_at = self.core.now()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self.core.now()
            if self.follows is not None:
                continue
            self.core.decide(TimePassed())
            if now - resent_at >= self._behaviour.resend_s:
                resent_at = now
                self.core.resend()
            if now - beaten_at >= self._behaviour.heartbeat_s:
                beaten_at = now
                self.streams.beat_all()


class _Stream(Inbox[Event]):
    """A stream that gives its events to the core at once."""

    def __init__(self, service: Service, session: FrameworkSession) -> None:
        super().__init__()
        self._service, self._session = service, session
        # Whether each call of the latest request was decided before, by number.
        self._decided: dict[int, bool] = {}

    async def recorded(self, requests: AsyncIterator[Request]) -> AsyncIterator[Request]:
        """Yield requests; record the calls of each once they are decided."""
        service = self._service
        async for request in requests:
            self._decided.clear()
            yield request
            for call in request.calls:
                # SUBSCRIBE and heartbeats have no number.
                if call.seq in self._decided or call.HasField("heartbeat"):
                    again, seen = self._decided.get(call.seq, False), request.verdicts_seen
                    service.calls.append(record(call, service.framework_id, seen, again))
            service.changed.set()

    async def put(self, event: Event) -> None:
        self.put_now(event)

    def put_now(self, event: Event) -> None:
        match event:
            case Subscribe():
                self._subscribe(event)
            case FrameworkCalled():
                self._call(event)
            case _:
                self._service.core.decide(event)
                if isinstance(event, SessionEnded):
                    self._service.changed.set()

    def _subscribe(self, event: Subscribe) -> None:
        service, other = self._service, self._service.framework
        if (refusal := service.refusal("subscribe")) is not None:
            self._session.end(refusal)
        elif other and other.session and other.framework_id != event.framework_id:
            self._session.end(InvalidRequest("a fake master takes one framework at a time"))
        else:
            service.core.decide(event)
            framework = service.core.state.peers.get(event.session)
            if isinstance(framework, Framework):
                service.framework_id = framework.framework_id
                self._decided[0] = False

    def _call(self, event: FrameworkCalled) -> None:
        service, framework = self._service, self._service.core.state.peers.get(event.session)
        if isinstance(framework, Framework):
            again = self._decided[event.seq] = event.seq <= framework.last_seq
            refusal = None if again else service.refusal(calls.call_name(event.call))
            if refusal is not None:
                event = replace(event, call=_refused(event.call, refusal))
        service.core.decide(event)


def _refused(call: calls.Call, error: CroupierError) -> calls.Malformed:
    """Return a call that the core refuses with `error`."""
    tasks = call.all_tasks if isinstance(call, calls.Accept | calls.Submit) else ()
    return calls.Malformed(calls.call_name(call), error, tuple(task.task_id for task in tasks))


class Observed:
    """The state of a service of one framework, and waits for its changes."""

    def __init__(self, service: Service, timeout_s: float) -> None:
        self._service, self._timeout_s = service, timeout_s

    @property
    def demand(self) -> Demand | None:
        """The first of `demands`; None if there is none."""
        return next(iter(self.demands), None)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The framework's demands, counted down by the tasks that were launched."""
        framework, queries = self._service.framework, self._service.core.state.allocator.queries
        return queries.demands(framework.framework_id) if framework is not None else ()

    @property
    def is_suppressed(self) -> bool:
        """Whether the framework suppresses offers in all its roles."""
        framework = self._service.framework
        return framework is not None and self.suppressed_roles == set(framework.roles)

    @property
    def suppressed_roles(self) -> frozenset[str]:
        """The roles in which the framework suppresses offers."""
        framework, queries = self._service.framework, self._service.core.state.allocator.queries
        roles = queries.suppressed_roles(framework.framework_id) if framework is not None else ()
        return frozenset(roles)

    @property
    def is_connected(self) -> bool:
        """Whether a framework is subscribed now."""
        framework = self._service.framework
        return framework is not None and framework.session is not None

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls, except heartbeats, that `next_call` has not returned yet."""
        return tuple(call for call in self._service.calls if call.kind != "heartbeat")

    @property
    def refused(self) -> int:
        """The number of streams that were refused because this master follows."""
        return self._service.refused

    def task_state(self, task_id: str) -> TaskState:
        """Return the state of a task that was launched.

        Raises:
            NotFound: if it was not.
        """
        state = self._find_task_state(task_id)
        if state is None:
            raise NotFound(f"no task {task_id} was launched")
        return state

    async def subscribed(self) -> RecordedCall:
        """Wait for the next SUBSCRIBE that the master admitted; return each once."""
        return await self.next_call("subscribe")

    async def next_call(self, kind: str) -> RecordedCall:
        """Wait for the next call of that kind, in lower case; return each once."""

        def find() -> RecordedCall | None:
            call = next((call for call in self._service.calls if call.kind == kind), None)
            if call is not None:
                self._service.calls.remove(call)
            return call

        return await self._until(find, f"call {kind}")

    async def acknowledged(self, task_id: str, sequence: int) -> None:
        """Wait until the framework has acknowledged the task's updates up to `sequence`."""

        def find() -> bool | None:
            framework = self._service.framework
            task = framework.tasks.get(TaskId(task_id)) if framework is not None else None
            if task is not None:
                return task.acknowledged >= sequence or None
            # The core drops a task when its end is acknowledged.
            return self._find_task_state(task_id) is not None or None

        await self._until(find, f"acknowledgement of update {sequence} of {task_id}")

    def _subscribed(self) -> tuple[Framework, SessionId]:
        framework = self._service.framework
        if framework is None or framework.session is None:
            raise Conflict("no framework is subscribed")
        return framework, framework.session

    def _queued(self, task_ids: tuple[str, ...]) -> list[Task] | None:
        """Return the named tasks if all are queued; without names, all that are queued."""
        framework = self._service.framework
        queued = {task.task_id: task for task in framework.queues} if framework is not None else {}
        if not all(task_id in queued for task_id in task_ids):
            return None
        return [queued[TaskId(task_id)] for task_id in task_ids or queued] or None

    def _find_task_state(self, task_id: str) -> TaskState | None:
        service, key = self._service, TaskId(task_id)
        task = service.framework.tasks.get(key) if service.framework is not None else None
        if task is not None:
            return task.state
        ended = service.core.state.ended.get(service.framework_id, key)
        earlier = service.core.durable.ended.get((service.framework_id, key))
        return ended.status.state if ended is not None else earlier

    async def _until(self, find: Callable[[], FoundT | None], what: str) -> FoundT:
        """Wait until `find` returns a value, and return it."""
        changed = self._service.changed
        try:
            async with asyncio.timeout(self._timeout_s):
                while (found := find()) is None:
                    changed.clear()
                    await changed.wait()
                return found
        except TimeoutError:
            came = ", ".join(call.kind for call in self.calls) or "nothing"
            raise AssertionError(f"no {what} within {self._timeout_s} s; came: {came}") from None
