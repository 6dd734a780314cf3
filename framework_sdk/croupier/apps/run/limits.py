"""Time limits of a run, and of its wait for resources."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from croupier.apps.run.launcher import Launcher
from croupier.model.errors import InvalidRequest

# The time in which the master may tell what tasks wait for.
REASON_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds; None means no limit.

    Attributes:
        whole_s: the limit of the whole run.
        waiting_s: the limit of a time in which tasks wait and none starts.
    """

    whole_s: float | None = None
    waiting_s: float | None = None

    @property
    def bounds_waiting(self) -> bool:
        """Whether a run without resources ends."""
        return self.whole_s is not None or self.waiting_s is not None

    def __post_init__(self) -> None:
        for flag, limit in (("timeout", self.whole_s), ("wait-for-resources", self.waiting_s)):
            if limit is not None and not limit > 0:
                raise InvalidRequest(f"--{flag} must be more than 0")


async def limit_over(
    limits: Limits, launcher: Launcher, waits_for: Callable[[], Awaitable[str]]
) -> str:
    """Wait until a limit passes, for ever if there is none; return a message.

    `waits_for` returns what tasks wait for.
    """
    loop = asyncio.get_running_loop()
    whole = loop.time() + _or_never(limits.whole_s)
    while True:
        now = loop.time()
        waited_since = max(launcher.moved_at, launcher.pending_since)
        waiting = waited_since + _or_never(limits.waiting_s)
        if now >= whole:
            return f"not done after {limits.whole_s:g} s (--timeout); the tasks are killed"
        if launcher.progress.pending and now >= waiting:
            text = f"no task could be started for {limits.waiting_s:g} s (--wait-for-resources)"
            with suppress(TimeoutError):
                async with asyncio.timeout(REASON_S):
                    text += f": {await waits_for()}"
            return text
        # Tasks may start meanwhile, and wait again.
        due = min(whole, max(waiting, now + 0.1))
        await asyncio.sleep(min(due - now, 3600.0))


def _or_never(limit: float | None) -> float:
    return math.inf if limit is None else limit
