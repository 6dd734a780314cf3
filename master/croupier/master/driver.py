"""The one task that owns the state: decide a batch, make it durable, then perform it.

When no event waits, the master allocates at once, else after at most `COALESCE_S`. So a burst of
changes costs one pass, and a single change is not delayed. While agents register one after the
other, passes are at least `REGISTER_S` apart: thousands that return cost a few passes each second,
and offers for many of them reach a framework as one message.

A master that stalled (slow disk, overload, SIGSTOP) has not read what peers sent meanwhile. It
reads for a grace period, and decides all events that arrived by then, before deadlines may
expire. After `MAX_STALLS` stalls in a row deadlines expire all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, Protocol, TypeVar, assert_never, cast

from croupier.master.batch import Batch, event_cost, in_turns, joined
from croupier.master.core.effects import (
    AccessChanged,
    Answer,
    Close,
    Deposed,
    Effect,
    Happened,
    Save,
    Send,
)
from croupier.master.core.events import Query, Question, Read, Received, Register
from croupier.master.core.facts import Fact
from croupier.master.core.records import ForgetTask, Record, TaskRecord
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.store import Committing
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, FailedOver, Unavailable
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.inbox import Inbox
from croupier.process.time_slice import TimeSlice

MIN_STALL_S: Final = 1.0
GRACE_S: Final = 1.0
MAX_STALLS: Final = 5

COALESCE_S = 0.020
REGISTER_S = 0.050
# About 10 ms of work, in units of `event_cost`.
BATCH = 500
# The longest time that a batch holds the loop before other tasks get a turn.
SLICE_S = 0.010
# Effects are performed between two looks at the clock.
CHECK_EVERY = 10
ASK_TIMEOUT_S = 10.0
T = TypeVar("T")


class StallGuard:
    """Decides whether deadlines may expire. All times are seconds on one monotonic clock.

    `grace_until`: end of the grace period; None if the master has not stalled.
    """

    def __init__(self) -> None:
        self.grace_until: float | None = None
        self._backlog: int | None = None
        self._stalls = 0

    def add_gap(self, seconds: float, now: float) -> None:
        """Note that the master read nothing for `seconds` up to `now`; a long gap is a stall."""
        if seconds > MIN_STALL_S and self._stalls < MAX_STALLS:
            self._stalls += 1
            self.grace_until, self._backlog = now + GRACE_S, None

    def take(self, number: int) -> None:
        """Note that the oldest `number` events of the inbox are being decided."""
        if self._backlog is not None:
            self._backlog = max(0, self._backlog - number)

    def may_expire(self, now: float, waiting: int) -> bool:
        """Return whether deadlines may expire, with `waiting` events in the inbox."""
        if self.grace_until is None:
            return True
        if now < self.grace_until:
            return False
        if self._backlog is None:
            self._backlog = waiting
        if self._backlog:
            return False
        self.grace_until, self._backlog, self._stalls = None, None, 0
        return True


class Observer(Protocol):
    """Measures the driver; times are in seconds."""

    def stepped(self, seconds: float, events: int) -> None:
        """Note that a batch was decided; other tasks may have run meanwhile."""

    def allocated(self, seconds: float, waited_s: float) -> None:
        """Note a slice of an allocation pass, `waited_s` after agents became dirty."""

    def committed(self, seconds: float) -> None:
        """Note that records were made durable."""

    def happened(self, fact: Fact) -> None:
        """Note a fact that the core reported."""

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId) -> None:
        """Note that the terminal status of a task was acknowledged; perhaps several times."""


class Peers(Protocol):
    """The sessions that effects go to; no method waits."""

    def send(self, effect: Send) -> None:
        """Queue a message for a session."""

    def close(self, effect: Close) -> None:
        """End a session."""


class Driver:
    """Feeds events to the core until it is cancelled or fails."""

    def __init__(
        self,
        state: State,
        store: Committing,
        peers: Peers,
        observer: Observer,
        clock: Clock,
        recorder: FileRecorder | None = None,
        leads: Callable[[], bool] = lambda: True,
        on_access: Callable[[AccessChanged], None] = lambda _: None,
        on_fact: Sequence[Callable[[Fact], None]] = (),
    ) -> None:
        """Own `state` from now on; check `leads` before effects are performed.

        `on_fact` are told facts after the observer.
        """
        self.state = state
        self.inbox: Inbox[Event] = Inbox(event_cost, lambda event: isinstance(event, Received))
        self._slice = TimeSlice(SLICE_S)
        self._store, self._peers = store, peers
        self._observer, self._clock = observer, clock
        self._recorder = recorder
        self._leads, self._on_access = leads, on_access
        self._on_fact = (observer.happened, *on_fact)
        self._closed: CroupierError | None = None
        self._requests = count(1)
        self._answers: dict[int, asyncio.Future[object]] = {}
        self._dirty_at: float | None = None
        self._passed_at = self._pass_not_before = -REGISTER_S
        self._stall_guard = StallGuard()
        self._read_at = clock.now()

    async def ask(self, make_event: Callable[[int], Question[T]]) -> T:
        """Ask the core, in order with all events, and wait for its answer.

        Raises CroupierError if that is the answer; Unavailable if there is none within 10 s.
        """
        if self._closed is not None:
            raise self._closed
        request = next(self._requests)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self.inbox.put(cast("Event", make_event(request)))
                result = await answer
        except TimeoutError:
            raise Unavailable("the master is too busy to answer") from None
        finally:
            del self._answers[request]
        if isinstance(result, CroupierError):
            raise result
        return cast("T", result)

    async def read(self, query: Query[T]) -> T:
        """Return the result of `query`, which must keep no reference into the state."""
        return cast("T", await self.ask(lambda request: Read(request, query)))

    def close(self, error: CroupierError) -> None:
        """Answer every question with `error` from now on; only the first such error counts."""
        if self._closed is None:
            self._closed = error
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(error)

    async def run(self) -> None:
        """Drive until cancelled, or until the core or the store fails.

        Raises FailedOver if this master no longer leads; no effect was performed since.
        """
        recorder = self._recorder
        while True:
            await self._wait()
            self._slice.begin()
            batch = Batch(self.state, recorder.decided if recorder else lambda *_: None)
            await self._decide(batch)
            if self._allocation_is_due():
                await self._allocate(batch)
            await self._commit(batch.records())
            self._check_leading()
            messages, others = in_turns(joined(batch.effects))
            self._slice.begin()
            await self._perform_all(messages)
            if messages and others:
                # The sessions' writers send the messages before logs and metrics are written.
                await self._give_way()
            await self._perform_all(others)
            if recorder is not None:
                recorder.flush(self.state)

    async def _wait(self) -> None:
        """Wait for an event or a deadline; do not wait while agents are dirty."""
        started = self._clock.now()
        # Work, a slow disk or a SIGSTOP may have taken the time since the last wait.
        self._stall_guard.add_gap(started - self._read_at, started)
        until = self._stall_guard.grace_until
        if self.state.allocator.has_dirty_agents:
            until = max(started, self._pass_not_before)
        elif until is None:
            until = self.state.next_deadline()
        await self.inbox.wait(None if until is None else until - started)
        self._read_at = self._clock.now()
        if until is not None:
            self._stall_guard.add_gap(self._read_at - max(until, started), self._read_at)

    def _check_leading(self) -> None:
        if not self._leads():
            raise FailedOver("this master can no longer prove that it leads")

    async def _decide(self, batch: Batch) -> None:
        started = self._clock.now()
        may_expire = self._stall_guard.may_expire(started, len(self.inbox))
        events = self.inbox.take(BATCH)
        self._stall_guard.take(len(events))
        await self._run(batch.decide(events, started, may_expire=may_expire))
        if any(isinstance(event, Register) for event in events):
            self._pass_not_before = self._passed_at + REGISTER_S
        if events:
            self._observer.stepped(self._clock.now() - started, len(events))

    async def _run(self, decisions: Iterator[None]) -> None:
        for _ in decisions:
            if self._slice.is_over:
                await self._slice.give_way()

    def _allocation_is_due(self) -> bool:
        if not self.state.allocator.has_dirty_agents:
            self._dirty_at = None
            return False
        now = self._clock.now()
        if self._dirty_at is None:
            self._dirty_at = now
        if now < self._pass_not_before:
            return False
        return not len(self.inbox) or now - self._dirty_at >= COALESCE_S

    async def _allocate(self, batch: Batch) -> None:
        assert self._dirty_at is not None
        started = self._clock.now()
        await self._run(batch.allocate(started))
        ended = self._clock.now()
        self._observer.allocated(ended - started, started - self._dirty_at)
        self._dirty_at = ended if self.state.allocator.has_dirty_agents else None
        self._passed_at = ended

    async def _commit(self, records: list[Record]) -> None:
        if records:
            started = self._clock.now()
            await self._store.commit(records)
            self._observer.committed(self._clock.now() - started)

    async def _perform_all(self, effects: list[Effect]) -> None:
        for number, effect in enumerate(effects):
            self._perform(effect)
            if number % CHECK_EVERY == 0 and self._slice.is_over:
                await self._give_way()

    async def _give_way(self) -> None:
        await self._slice.give_way()
        self._check_leading()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._peers.send(effect)
            case Happened(fact):
                for tell in self._on_fact:
                    tell(fact)
            case Close():
                self._peers.close(effect)
            case Answer(request, result):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    answer.set_result(result)
            case AccessChanged():
                self._on_access(effect)
            case Save(ForgetTask(framework_id, task_id)):
                self._observer.acknowledged(framework_id, task_id)
            case Save(TaskRecord(is_acknowledged=True) as record):
                self._observer.acknowledged(record.framework_id, record.info.task_id)
            case Save() | Deposed():
                pass
            case _:
                assert_never(effect)
