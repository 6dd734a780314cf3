"""Rate limits of each principal, so that none slows down the others.

Rule: a call on a stream is never refused for its rate: the master reads that stream later. A unary
call waits for at most `PATIENCE_S`, and is refused if that is not enough.

Calls on streams count by their cost in the core, in units of about 20 us. Two limits apply to
them: a rate, and the cost that waits in the inbox at once. The second is what others wait for. It
is small only while other principals are active, so one that is alone has the whole master.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.model.token_bucket import Bucket
from croupier.process.inbox import Inbox

# Requests of unary calls of one principal that are read at once; each has up to 2 MiB.
MOST_READING: Final = 16
# The longest that a unary call waits before it is decided.
PATIENCE_S: Final = 2.0
# Bytes of a response that cost as much as one call.
RESPONSE_BYTES: Final = 16 * 1024
# Seconds of reading the state that cost as much as one call, and the most that one call is charged:
# the caller's next call is only delayed by that.
READ_S: Final = 0.001
MOST_READ_S: Final = 0.1
# The longest single pause in reading a stream, far below the time after which a peer is silent.
LONGEST_PAUSE_S: Final = 5.0
# Shorter pauses cost more than they save.
SHORTEST_PAUSE_S: Final = 0.002
MOST_PRINCIPALS: Final = 50_000
# Cost of a call beside its decision: to parse it, encode the answer and audit it. As measured, a
# flood of 2,500 small calls a second doubles the latency of others. Heartbeats and calls that are
# unknown or empty cost as much.
OVERHEAD: Final = 16
# Cost of the calls of one principal in the inbox, alone and beside others. The second is that of
# one batch of the driver, for which others wait anyway; less would make smaller batches.
WAITING_ALONE: Final = 2_000
WAITING: Final = 500
# A principal is active for this time after a call.
ACTIVE_S: Final = 0.25
# Bytes of messages of one principal that are read and not handled, over all its streams. A larger
# message than the second bound is refused beyond the first; a smaller one waits.
HELD_BYTES: Final = 16 * 1024 * 1024
SMALL_HELD_BYTES: Final = 64 * 1024
# Calls without a valid credential from one address; beyond that their refusal is delayed.
FAILURES_PER_S: Final = 20.0
FAILURE_BURST: Final = 200.0
LONGEST_REFUSAL_S: Final = 10.0
# The key of uses by all callers together.
ALL: Final = "*"

EventT = TypeVar("EventT")

# Bytes a second.
BYTES_PER_S: Final = 64 << 20
# The pace may be exceeded for this time.
BURST_S: Final = 0.02


class RateExceeded(Unavailable):
    """The principal makes too many calls."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of one principal, all its connections together.

    Attributes:
        calls_per_s: unary calls; twice as many at once.
        stream_units_per_s: calls on streams, in units of about 20 us of the master's time.
        stream_bytes_per_s: bytes on streams.
    """

    calls_per_s: float = 200.0
    stream_units_per_s: float = 250_000.0
    stream_bytes_per_s: float = 32.0 * 1024 * 1024


class Usage:
    """The recent usage of one principal."""

    def __init__(self, limits: RateLimits, now: float) -> None:
        self.calls = Bucket(limits.calls_per_s, 2 * limits.calls_per_s, now)
        self.units = Bucket(limits.stream_units_per_s, limits.stream_units_per_s / 10, now)
        self.bytes = Bucket(limits.stream_bytes_per_s, limits.stream_bytes_per_s, now)
        # Unary calls whose request is being read.
        self.reading = asyncio.Semaphore(MOST_READING)
        # Held while a request is parsed and converted.
        self.lane = asyncio.Lock()
        self.held = 0
        self.active_at = now
        # Positions and costs of calls in the inbox of the current term.
        self._waiting: deque[tuple[int, int]] = deque()
        self._cost = 0
        self._inbox: object = None

    async def wait_for_room(self, inbox: Inbox[Any], most: int) -> None:
        """Wait until calls of a cost below `most` wait in the inbox."""
        while self._cost_in(inbox) >= most:
            await inbox.wait_until_passed(self._waiting[0][0])

    def note(self, inbox: Inbox[Any], cost: int) -> None:
        """Note that a call was put into the inbox."""
        self._cost_in(inbox)
        self._waiting.append((inbox.position, cost))
        self._cost += cost

    def _cost_in(self, inbox: Inbox[Any]) -> int:
        if inbox is not self._inbox:
            self._inbox, self._cost = inbox, 0
            self._waiting.clear()
        while self._waiting and inbox.has_passed(self._waiting[0][0]):
            self._cost -= self._waiting.popleft()[1]
        return self._cost


class RateLimiter:
    """The usage of all principals; counts `refused` calls, and pauses of `delayed` streams."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self.limits = limits
        self.refused = self.delayed = 0
        self._clock = clock
        self._usage: OrderedDict[str, Usage] = OrderedDict()
        self._failures: OrderedDict[str, Bucket] = OrderedDict()
        # The two principals that were active last.
        self._latest: Usage | None = None
        self._before: Usage | None = None

    def change(self, limits: RateLimits) -> None:
        """Apply other limits from now on; each principal has its full rate again."""
        self.limits = limits
        self._usage.clear()

    def usage(self, name: str) -> Usage:
        """Return the usage of the principal, or of the address, `name`."""
        found = self._usage.get(name)
        if found is None:
            found = self._usage[name] = Usage(self.limits, self._clock.now())
            if len(self._usage) > MOST_PRINCIPALS:
                # A principal that was not seen for long has its full rate again.
                self._usage.popitem(last=False)
        else:
            self._usage.move_to_end(name)
        return found

    async def admit(self, name: str) -> Usage:
        """Admit a unary call at the rate of its caller; raises RateExceeded if the wait is long."""
        usage, now = self.usage(name), self._clock.now()
        wait_s = usage.calls.debt_s(now)
        if wait_s > PATIENCE_S:
            self.refused += 1
            # A refusal costs nearly as much as an answer.
            await asyncio.sleep(PATIENCE_S)
            raise RateExceeded(
                f"{name} makes more than {self.limits.calls_per_s:g} calls a second, large answers"
                f" counting as several; try again in {wait_s:.0f} s"
            )
        usage.calls.take(1, now)
        self._note_active(usage, now)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return usage

    def answered(self, usage: Usage, size: int) -> None:
        """Count an answer of `size` bytes."""
        if size > RESPONSE_BYTES:
            usage.calls.take(size / RESPONSE_BYTES, self._clock.now())

    def read(self, usage: Usage, seconds: float) -> None:
        """Count `seconds` for which a unary call has read the state; lists read all of it."""
        usage.calls.take(min(seconds, MOST_READ_S) / READ_S, self._clock.now())

    @contextmanager
    def holding(self, usage: Usage | None, size: int) -> Iterator[None]:
        """Count and hold a message for the block; None is not limited. Raises RateExceeded."""
        if usage is None:
            yield
            return
        usage.bytes.take(size, self._clock.now())
        if size > SMALL_HELD_BYTES and usage.held + size > HELD_BYTES:
            self.refused += 1
            raise RateExceeded(
                f"you have sent {usage.held + size} bytes that the master has not handled yet; at"
                f" most {HELD_BYTES} are accepted over all your streams; connect again"
            )
        usage.held += size
        try:
            yield
        finally:
            usage.held -= size

    async def counted(self, usage: Usage | None, calls: int) -> None:
        """Count calls of a stream, unless None, before they are parsed; wait if too fast."""
        if usage is not None:
            usage.units.take(calls * OVERHEAD, self._clock.now())
            await self.settle(usage)

    async def settle(self, usage: Usage | None) -> None:
        """Wait while bytes and calls of streams came too fast; None is not limited."""
        if usage is not None:
            now = self._clock.now()
            await self._pause(max(usage.bytes.debt_s(now), usage.units.debt_s(now)))

    async def put(self, usage: Usage, inbox: Inbox[EventT], event: EventT, cost: int) -> None:
        """Put a call on a stream into the inbox when it is its principal's turn.

        `counted` has counted the call; its cost is counted here, and the next call waits for it.
        """
        now = self._clock.now()
        self._note_active(usage, now)
        most = WAITING if self._has_others(usage, now) else WAITING_ALONE
        await usage.wait_for_room(inbox, most)
        await inbox.put(event)
        usage.note(inbox, cost + OVERHEAD)
        usage.units.take(cost, self._clock.now())

    async def failed(self, address: str) -> None:
        """Count a call without a valid credential; wait if many come from the address."""
        now = self._clock.now()
        bucket = self._failures.pop(address, None) or Bucket(FAILURES_PER_S, FAILURE_BURST, now)
        self._failures[address] = bucket
        if len(self._failures) > MOST_PRINCIPALS:
            self._failures.popitem(last=False)
        wait_s = min(bucket.debt_s(now), LONGEST_REFUSAL_S)
        bucket.take(1, now)
        if wait_s > 0:
            # Not `delayed`: no principal is limited, and failures have a count of their own.
            await asyncio.sleep(wait_s)

    def _note_active(self, usage: Usage, now: float) -> None:
        usage.active_at = now
        if usage is not self._latest:
            self._latest, self._before = usage, self._latest

    def _has_others(self, usage: Usage, now: float) -> bool:
        other = self._before if usage is self._latest else self._latest
        return other is not None and now - other.active_at < ACTIVE_S

    async def _pause(self, wait_s: float) -> None:
        if wait_s >= SHORTEST_PAUSE_S:
            self.delayed += 1
            await asyncio.sleep(min(wait_s, LONGEST_PAUSE_S))


@contextmanager
def counted(uses: Counter[str], key: str, most: int, refusal: str) -> Iterator[None]:
    """Count a use for the block; raises Unavailable if `key` has `most` uses already."""
    if uses[key] >= most:
        raise Unavailable(refusal)
    uses[key] += 1
    try:
        yield
    finally:
        uses[key] -= 1
        if not uses[key]:
            del uses[key]


class Pace:
    """The pace of all streams of one kind together."""

    def __init__(self, clock: Clock) -> None:
        """Start without a debt."""
        self._clock = clock
        self._free_at = 0.0

    async def passed(self, size: int) -> None:
        """Count `size` bytes; wait until all others had a turn, and while the pace is exceeded."""
        now = self._clock.now()
        self._free_at = max(now, self._free_at) + size / BYTES_PER_S
        await asyncio.sleep(max(0.0, self._free_at - now - BURST_S))
