"""Waiting for a condition with a deadline, in place of fixed sleeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.01


async def eventually(
    predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 10.0, what: str = ""
) -> None:
    """Return once `predicate` (a function or a coroutine function) is true.

    Raises:
        AssertionError: if it is not within `timeout_s`; `what` names the condition.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return
        if time.monotonic() >= deadline:
            wanted = what or getattr(predicate, "__qualname__", repr(predicate))
            raise AssertionError(f"not true within {timeout_s} s: {wanted} (last: {value!r})")
        await asyncio.sleep(POLL_S)
