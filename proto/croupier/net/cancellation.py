"""Whose cancellation it is: gRPC mixes up a call that is cancelled and a task that is.

A stream that the peer cancels raises CancelledError in whoever reads it; and a call whose task
is cancelled just as it ends may end by a status instead. Taken at its word, the first ends a
task that nobody wants to end, and the second lets one live on that somebody waits for.
"""

from __future__ import annotations

import asyncio


def reraise_own_cancellation() -> None:
    """To be called where a call has ended by an exception.

    Raises:
        asyncio.CancelledError: if the current task itself was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
