"""One bidirectional stream: a reader that feeds the inbox, a writer that empties the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from croupier.master.core.events import SessionEnded
from croupier.master.core.step import Event
from croupier.master.sessions import Session
from croupier.model.errors import CroupierError, TooSlow, Unavailable
from croupier.net.errors import STATUS
from croupier.net.outbox import Encoded
from croupier.process.inbox import Inbox

# A peer that takes nothing for this long is cut off.
WRITE_TIMEOUT_S = 30.0
FIRST_CALL_STEPS = 10

Context = grpc.aio.ServicerContext[Any, Any]
RequestT = TypeVar("RequestT")


async def serve_stream(
    session: Session,
    end: Callable[[CroupierError | None], None],
    requests: AsyncIterator[RequestT],
    handle: Callable[[RequestT], Awaitable[None]],
    write: Callable[[list[Encoded]], Awaitable[None]],
    context: Context,
    inbox: Inbox[Event],
    first_call_s: float,
) -> None:
    """Serve a session until its stream ends or the core closes it.

    `handle` may raise a CroupierError, which ends the session with it. So does a peer that has
    not said who it is after `first_call_s`.
    """
    reader = asyncio.create_task(_read(end, requests, handle))
    deadline = asyncio.create_task(_end_unintroduced(session, end, first_call_s))
    message = "the stream ended"
    try:
        await _write(session, write)
    except TimeoutError:
        session.error = TooSlow(f"nothing was read for {WRITE_TIMEOUT_S:.0f} s")
        message = str(session.error)
    finally:
        deadline.cancel()
        session.outbox.close()
        reader.cancel()
        inbox.put_now(SessionEnded(session.session_id, message))
        await asyncio.wait([reader])
    if not reader.cancelled() and (failure := reader.exception()) is not None:
        raise failure
    if session.error is not None:
        await context.abort(
            STATUS.get(type(session.error), grpc.StatusCode.ABORTED), str(session.error)
        )


async def refuse(
    context: Context, write: Callable[[CroupierError], Awaitable[None]], refusal: CroupierError
) -> NoReturn:
    """Say why there is no session here, in the stream as typed as in its status, and end it."""
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await write(refusal)
    await context.abort(STATUS[type(refusal)], str(refusal))
    raise AssertionError("abort raises")


async def _end_unintroduced(
    session: Session, end: Callable[[CroupierError | None], None], first_call_s: float
) -> None:
    """End a session that has no first call in time.

    A master that is busy, as after a failover, may take long to read a call that has come. So it
    waits in steps: each takes as long as one round of all that is ready.
    """
    for _ in range(FIRST_CALL_STEPS):
        await asyncio.sleep(first_call_s / FIRST_CALL_STEPS)
        if session.is_introduced:
            return
    end(Unavailable(f"the first call did not come within {first_call_s:g} s; connect again"))


async def _read(
    end: Callable[[CroupierError | None], None],
    requests: AsyncIterator[RequestT],
    handle: Callable[[RequestT], Awaitable[None]],
) -> None:
    """Handle requests; their end, for whatever reason, is the session's."""
    error: CroupierError | None = None
    try:
        async for request in requests:
            await handle(request)
    except CroupierError as refusal:
        error = refusal
    finally:
        end(error)


async def _write(session: Session, write: Callable[[list[Encoded]], Awaitable[None]]) -> None:
    while batch := await session.outbox.take():
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await write(batch)
