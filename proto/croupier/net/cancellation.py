"""Cancellation: gRPC confuses a cancelled call with a cancelled task.

A stream that the peer cancels raises CancelledError in its reader, although its task is not
cancelled. A call whose task is cancelled just as the call ends may raise its status instead of
CancelledError, and the task would continue.
"""

from __future__ import annotations

import asyncio


def reraise_own_cancellation() -> None:
    """Raise CancelledError if the current task itself was cancelled.

    Call this where a gRPC call has ended by an exception.

    Raises:
        asyncio.CancelledError: if the current task itself was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
