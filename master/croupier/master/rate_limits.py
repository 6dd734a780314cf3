"""Limits of what one principal may ask for in a time, so that none slows down the others.

Rule: a call on a stream is never refused for its rate: the master reads that stream later. A unary
call waits for at most `PATIENCE_S`, and is refused if that is not enough.

Calls on streams count by their cost in the core, in units of about 20 us.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from croupier.model.clock import Clock
from croupier.model.errors import Unavailable

# The longest that a unary call waits before it is decided.
PATIENCE_S: Final = 2.0
# Bytes of a response that cost as much as one call.
RESPONSE_BYTES: Final = 16 * 1024
# The longest single pause in reading a stream, far below the time after which a peer is silent.
LONGEST_PAUSE_S: Final = 5.0
# Shorter pauses cost more than they save.
SHORTEST_PAUSE_S: Final = 0.002
MOST_PRINCIPALS: Final = 50_000


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
    stream_units_per_s: float = 25_000.0
    stream_bytes_per_s: float = 32.0 * 1024 * 1024


class Bucket:
    """A token bucket that may go into debt."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        """Start full; `now`: seconds on a monotonic clock."""
        self._per_s, self._burst = per_s, burst
        self._left, self._at = burst, now

    def take(self, amount: float, now: float) -> None:
        """Take out `amount`, even if there is less."""
        self._refill(now)
        self._left -= amount

    def debt_s(self, now: float) -> float:
        """Return the seconds until the bucket is out of debt; 0 if it is not in debt."""
        self._refill(now)
        return 0.0 if self._left >= 0 else -self._left / self._per_s

    def _refill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now


class Usage:
    """What one principal has used lately."""

    def __init__(self, limits: RateLimits, now: float) -> None:
        self.calls = Bucket(limits.calls_per_s, 2 * limits.calls_per_s, now)
        # A tenth of a second: what is queued for the core at once delays everybody.
        self.units = Bucket(limits.stream_units_per_s, limits.stream_units_per_s / 10, now)
        self.bytes = Bucket(limits.stream_bytes_per_s, limits.stream_bytes_per_s, now)


class RateLimiter:
    """The usage of all principals.

    Attributes:
        refused: unary calls that were refused.
        delayed: pauses in reading streams.
    """

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self.limits = limits
        self.refused = self.delayed = 0
        self._clock = clock
        self._usage: OrderedDict[str, Usage] = OrderedDict()

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
        """Admit a unary call; wait if the principal has used up its rate.

        Raises:
            RateExceeded: if it would have to wait for long.
        """
        usage, now = self.usage(name), self._clock.now()
        wait_s = usage.calls.debt_s(now)
        if wait_s > PATIENCE_S:
            self.refused += 1
            raise RateExceeded(
                f"{name} makes more than {self.limits.calls_per_s:g} calls a second, large answers"
                f" counting as several; try again in {wait_s:.0f} s"
            )
        usage.calls.take(1, now)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return usage

    def answered(self, usage: Usage, size: int) -> None:
        """Count an answer of `size` bytes."""
        if size > RESPONSE_BYTES:
            usage.calls.take(size / RESPONSE_BYTES, self._clock.now())

    async def received(self, usage: Usage, size: int) -> None:
        """Count `size` bytes on a stream; wait if they come too fast."""
        now = self._clock.now()
        usage.bytes.take(size, now)
        await self._pause(usage.bytes.debt_s(now))

    async def queued(self, usage: Usage, units: int) -> None:
        """Count calls on a stream; wait if they come too fast."""
        now = self._clock.now()
        usage.units.take(units, now)
        await self._pause(usage.units.debt_s(now))

    async def _pause(self, wait_s: float) -> None:
        if wait_s >= SHORTEST_PAUSE_S:
            self.delayed += 1
            await asyncio.sleep(min(wait_s, LONGEST_PAUSE_S))
