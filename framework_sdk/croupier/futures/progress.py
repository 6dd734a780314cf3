"""How far an executor is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A count of calls and workers; a chunk of a map is one call.

    Attributes:
        waiting: calls that no worker has.
        running: calls that workers have.
        done: calls with a result.
        failed: calls with an exception, and cancelled ones that had begun.
        retried: further attempts at calls.
        workers: workers that take calls.
        starting: workers that were launched and do not take calls yet.
    """

    waiting: int
    running: int
    done: int
    failed: int
    retried: int
    workers: int
    starting: int
