"""A call, from `submit` to its result, and the results of several in order."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from croupier.futures.shape import Shape

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Function:
    """A pickled function that several calls share; workers keep it under its number."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of calls.

    Attributes:
        retries: how often a call is run again after its worker died.
        retry_on: exceptions of the call after which it is run again, too.
        can_stop: whether `Future.cancel` ends a call that runs, by ending its worker's process.
    """

    shape: Shape
    retries: int = 0
    retry_on: tuple[type[BaseException], ...] = ()
    can_stop: bool = False


class CallFuture(Future[T]):
    """The future of a call.

    `cancel` also ends a call that runs, if the call's options have `cancel_running`.
    """

    def __init__(self, *, can_stop: bool = False) -> None:
        super().__init__()
        self._can_stop = can_stop
        self._runs = self._is_told = False
        # A weak reference: who keeps a future keeps no arguments.
        self._call: weakref.ref[Call] | None = None
        self._on_cancelled: Callable[[Call], None] | None = None

    def attach(self, call: Call, on_cancelled: Callable[[Call], None]) -> None:
        """Have `on_cancelled` called with the call, if it is cancelled before its end."""
        self._call, self._on_cancelled = weakref.ref(call), on_cancelled

    def cancel(self) -> bool:
        """Cancel the call if it has not begun, or may be stopped. Return whether it is."""
        was_cancelled = self.cancelled()
        is_cancelled = super().cancel()
        call = None if self._call is None else self._call()
        if is_cancelled and not was_cancelled and call and self._on_cancelled is not None:
            self._on_cancelled(call)
        return is_cancelled

    def set_running_or_notify_cancel(self) -> bool:
        """Begin, or notify the waiters, once, that it was cancelled."""
        if self.cancelled():
            if self._is_told:
                return False
            self._is_told = True
        return super().set_running_or_notify_cancel()

    def running(self) -> bool:
        """Return whether the call has been handed to a worker and is not over."""
        return super().running() or (self._runs and not self.done())

    def begin(self) -> bool:
        """Record that a worker gets the call; return False if it was cancelled."""
        if self._can_stop:
            # Future.cancel refuses a future that is RUNNING, so this one stays PENDING.
            self._runs = True
            return not self.cancelled() or self.set_running_or_notify_cancel()
        return super().running() or self.set_running_or_notify_cancel()

    def wait_again(self) -> None:
        """Record that the call waits for another worker."""
        self._runs = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class Call:
    """A call and its state.

    Attributes:
        number: unique in its executor.
        payload: the pickled arguments, and the function unless that is shared.
        is_chunk: whether the payload has the arguments of several calls of a map.
        attempts: how often a worker began it.
        size: bytes that are sent for it, if the worker does not have its function.
    """

    number: int
    terms: Terms
    future: CallFuture[Any]
    payload: bytes
    function: Function | None = None
    is_chunk: bool = False
    attempts: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.payload) + (len(self.function.body) if self.function else 0)


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
