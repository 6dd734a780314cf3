"""Waiting for a condition with a deadline, in place of fixed sleeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

# Between two looks: a tenth of the time waited so far, within these bounds. Looks cost, and what
# they wait for needs the processor too.
POLL_S = (0.01, 0.05)


async def eventually(
    predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 30.0, what: str = ""
) -> None:
    """Return once `predicate` (a function or a coroutine function) is true.

    Raises:
        AssertionError: if it is not within `timeout_s`; `what` names the condition.
    """
    began = time.monotonic()
    deadline = began + timeout_s
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return
        now = time.monotonic()
        if now >= deadline:
            wanted = what or getattr(predicate, "__qualname__", repr(predicate))
            raise AssertionError(f"not true within {timeout_s} s: {wanted} (last: {value!r})")
        shortest, longest = POLL_S
        await asyncio.sleep(min(longest, max(shortest, (now - began) / 10)))
