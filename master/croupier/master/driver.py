"""The one task that owns the state: decide, make durable, then tell the world.

Agents that changed are dealt at once when nothing else waits, and else after at most
`COALESCE_S`, so that a burst of changes costs one pass and a lone one waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeVar, cast

from croupier.master.core.effects import (
    Answer,
    Close,
    Deposed,
    Effect,
    Happened,
    Pause,
    Save,
    Send,
)
from croupier.master.core.events import AllocationDue, Event, Read, TimePassed
from croupier.master.core.facts import Fact
from croupier.master.core.state import State
from croupier.master.core.step import steps
from croupier.master.event_cost import event_cost
from croupier.master.eventlog.recorder import NoRecorder, Recorder
from croupier.master.stall_guard import Listening
from croupier.master.store import Committing
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, FailedOver, Unavailable
from croupier.process.inbox import Inbox
from croupier.process.time_slice import TimeSlice

COALESCE_S = 0.020
# About 10 ms of work, by what events cost.
BATCH = 500
# How long a batch may hold the loop before everybody else has a turn.
SLICE_S = 0.010
PASS_BUDGET = 1000
ASK_TIMEOUT_S = 10.0
T = TypeVar("T")


class Watcher(Protocol):
    """Who measures the driver at work; times are in seconds."""

    def stepped(self, seconds: float, events: int) -> None:
        """A batch was decided; others had turns meanwhile if it took long."""

    def allocated(self, seconds: float, waited_s: float) -> None:
        """A slice of a pass was made, so long after agents became unsettled."""

    def committed(self, seconds: float) -> None:
        """Records were made durable."""

    def happened(self, fact: Fact) -> None:
        """The core reported a fact."""


class Outside(Protocol):
    """Where effects go; none of these waits."""

    def send(self, effect: Send) -> None:
        """Queue a message for a session."""

    def close(self, effect: Close) -> None:
        """End a session."""


class Driver:
    """Feeds events to the core for ever."""

    def __init__(
        self,
        state: State,
        store: Committing,
        outside: Outside,
        watcher: Watcher,
        clock: Clock,
        recorder: Recorder | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Own `state` from now on.

        Args:
            state: of a term that has just begun.
            store: where records are made durable.
            outside: where messages go.
            watcher: is told how long things take.
            clock: monotonic.
            recorder: keeps a log of what the core is given.
            leads: whether this master still leads; asked before anything is told.
        """
        self.state = state
        self.inbox: Inbox[Event] = Inbox(event_cost)
        self._held = TimeSlice(SLICE_S)
        self._store, self._outside = store, outside
        self._watcher, self._clock = watcher, clock
        self._recorder: Recorder = recorder or NoRecorder()
        self._leads = leads
        self._closed: CroupierError | None = None
        self._requests = count(1)
        self._answers: dict[int, asyncio.Future[object]] = {}
        self._unsettled_at: float | None = None
        self._listening = Listening()
        self._listened_at = clock.now()

    async def ask(self, make_event: Callable[[int], Event]) -> object:
        """Put a question to the core and wait for its answer, in order with all events.

        Raises:
            CroupierError: if that is the answer.
            Unavailable: if there is none within 10 s.
        """
        if self._closed is not None:
            raise self._closed
        request = next(self._requests)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self.inbox.put(make_event(request))
                result = await answer
        except TimeoutError:
            raise Unavailable("the master is too busy to answer") from None
        finally:
            del self._answers[request]
        if isinstance(result, CroupierError):
            raise result
        return result

    async def read(self, query: Callable[[State], T]) -> T:
        """What `query` sees of the state, at one moment; it must keep no reference into it."""
        return cast("T", await self.ask(lambda request: Read(request, query)))

    def close(self, error: CroupierError) -> None:
        """Answer every question with `error`, from now on; the first such error counts."""
        if self._closed is None:
            self._closed = error
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(error)

    async def run(self) -> None:
        """Drive until cancelled. An error of the core's or the store's ends it.

        Raises:
            FailedOver: if this master does not lead any more; nothing was told since.
        """
        while True:
            await self._wait()
            self._held.begin()
            effects = await self._decide_batch()
            if self._allocation_is_due():
                effects += await self._allocate()
            await self._commit(effects)
            self._check_leading()
            self._held.begin()
            for effect in effects:
                self._perform(effect)
                if self._held.is_over:
                    await self._held.give_way()
                    self._check_leading()
            self._recorder.flush(self.state)

    async def _wait(self) -> None:
        """Wait for an event or a deadline: not at all while agents are unsettled."""
        started = self._clock.now()
        # Whatever took the time since we listened last: work, a slow disk, or a SIGSTOP.
        self._listening.was_away(started - self._listened_at, started)
        until = self._listening.until
        if self.state.allocator.is_unsettled:
            until = started
        elif until is None:
            until = self.state.next_deadline()
        await self.inbox.wait(None if until is None else until - started)
        self._listened_at = self._clock.now()
        if until is not None:
            self._listening.was_away(self._listened_at - max(until, started), self._listened_at)

    def _check_leading(self) -> None:
        if not self._leads():
            raise FailedOver("this master cannot prove any more that it leads")

    async def _decide_batch(self) -> list[Effect]:
        started = self._clock.now()
        effects: list[Effect] = []
        deadline = self.state.next_deadline()
        is_due = deadline is not None and deadline <= started
        if self._listening.is_over(started, len(self.inbox)) and is_due:
            effects += await self._step(TimePassed(), started)
        batch = self.inbox.take(BATCH)
        self._listening.took(len(batch))
        for event in batch:
            effects += await self._step(event, started)
        if batch:
            self._watcher.stepped(self._clock.now() - started, len(batch))
        return effects

    async def _step(self, event: Event, now: float) -> list[Effect]:
        """Decide an event, in slices: a step may be long, and the loop is not for it alone."""
        effects: list[Effect] = []
        try:
            for effect in steps(self.state, event, now):
                if not isinstance(effect, Pause):
                    effects.append(effect)
                if self._held.is_over:
                    await self._held.give_way()
        except Exception:
            # What broke the core is what a log is wanted for.
            self._recorder.decided(event, now, ())
            raise
        self._recorder.decided(event, now, effects)
        return effects

    def _allocation_is_due(self) -> bool:
        if not self.state.allocator.is_unsettled:
            self._unsettled_at = None
            return False
        now = self._clock.now()
        if self._unsettled_at is None:
            self._unsettled_at = now
        return not len(self.inbox) or now - self._unsettled_at >= COALESCE_S

    async def _allocate(self) -> list[Effect]:
        assert self._unsettled_at is not None
        started = self._clock.now()
        effects = await self._step(AllocationDue(PASS_BUDGET), started)
        ended = self._clock.now()
        self._watcher.allocated(ended - started, started - self._unsettled_at)
        self._unsettled_at = ended if self.state.allocator.is_unsettled else None
        return effects

    async def _commit(self, effects: list[Effect]) -> None:
        deposed = next((effect for effect in effects if isinstance(effect, Deposed)), None)
        if deposed is not None:
            raise FailedOver(deposed.message)
        records = [effect.record for effect in effects if isinstance(effect, Save)]
        if records:
            started = self._clock.now()
            await self._store.commit(records)
            self._watcher.committed(self._clock.now() - started)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._outside.send(effect)
            case Happened(fact):
                self._watcher.happened(fact)
            case Close():
                self._outside.close(effect)
            case Answer(request, result):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    answer.set_result(result)
            case Save() | Deposed():
                pass
