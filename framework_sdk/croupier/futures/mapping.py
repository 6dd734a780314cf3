"""The results of a map, in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


def chunks_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def results_in_order(
    submitted: Iterator[Future[Any]], ahead: int | None, timeout: float | None
) -> Iterator[Any]:
    """Submit, and return an iterator of the results; what is left is cancelled at its end.

    Args:
        submitted: submits the next call each time that it is asked.
        ahead: how many calls are submitted beyond the results that were taken; None is all.
        timeout: seconds from now for all results.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    futures = deque(submitted if ahead is None else islice(submitted, ahead))
    return _results(futures, submitted, deadline)


def _results(
    futures: deque[Future[Any]], submitted: Iterator[Future[Any]], deadline: float | None
) -> Iterator[Any]:
    try:
        while futures:
            futures.extend(islice(submitted, 1))
            left = None if deadline is None else deadline - time.monotonic()
            # No name keeps a result alive after it was taken.
            yield _taken(futures, left)
    finally:
        for future in futures:
            future.cancel()


def _taken(futures: deque[Future[Any]], timeout: float | None) -> Any:
    try:
        result = futures[0].result(timeout)
    finally:
        futures[0].cancel()
    futures.popleft()
    return result
