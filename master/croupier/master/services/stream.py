"""One bidirectional stream: a reader fills the inbox, a writer empties the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from croupier.master.core.events import SessionEnded
from croupier.master.core.step import Event
from croupier.master.session import Session
from croupier.model.errors import CroupierError, TooSlow, Unavailable
from croupier.net.address import Address
from croupier.net.errors import STATUS, nearest_status
from croupier.net.outbox import Encoded
from croupier.process.inbox import Inbox

# A peer that reads nothing for this long is cut off.
WRITE_TIMEOUT_S = 30.0
FIRST_CALL_STEPS = 10

Context = grpc.aio.ServicerContext[Any, Any]
RequestT = TypeVar("RequestT")


async def serve_stream(
    session: Session[Any],
    requests: AsyncIterator[RequestT],
    handle: Callable[[RequestT], Awaitable[None]],
    write: Callable[[list[Encoded]], Awaitable[None]],
    context: Context,
    inbox: Inbox[Event],
    first_call_s: float,
) -> None:
    """Serve a session of gRPC as `run_stream`, and end its stream with the status of its error."""
    await run_stream(session, requests, handle, write, inbox, first_call_s)
    if session.error is not None:
        await context.abort(
            STATUS.get(type(session.error), grpc.StatusCode.ABORTED), str(session.error)
        )


async def run_stream(
    session: Session[Any],
    requests: AsyncIterator[RequestT],
    handle: Callable[[RequestT], Awaitable[None]],
    write: Callable[[list[Encoded]], Awaitable[None]],
    inbox: Inbox[Event],
    first_call_s: float,
) -> None:
    """Run a session until its stream ends or the core closes it.

    A CroupierError from `handle` ends the session with that error. A session without SUBSCRIBE or
    REGISTER after `first_call_s` is ended too.
    """
    reader = asyncio.create_task(_read(session, requests, handle))
    _expect_first_call(session, first_call_s, FIRST_CALL_STEPS)
    message = "the stream ended"
    try:
        await _write(session, write)
    except TimeoutError:
        session.error = TooSlow(f"nothing was read for {WRITE_TIMEOUT_S:.0f} s")
        message = str(session.error)
    finally:
        session.outbox.close()
        reader.cancel()
        inbox.put_now(SessionEnded(session.session_id, message))
        await asyncio.wait([reader])
    if not reader.cancelled() and (failure := reader.exception()) is not None:
        raise failure


async def refuse(context: Context, response: object, refusal: CroupierError) -> NoReturn:
    """End the stream with `response`, which carries `refusal`, and with its status."""
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await context.write(response)
    await context.abort(nearest_status(refusal), str(refusal))
    raise AssertionError("abort raises")


def _expect_first_call(session: Session[Any], first_call_s: float, steps: int) -> None:
    """End a session whose first call does not come in time.

    A master that is busy after a failover may read calls late. So it waits in steps: each of them
    also runs every ready task once.
    """
    if session.is_introduced or session.outbox.is_closed:
        return
    if steps:
        wait_s = first_call_s / FIRST_CALL_STEPS
        loop = asyncio.get_running_loop()
        loop.call_later(wait_s, _expect_first_call, session, first_call_s, steps - 1)
        return
    session.end(
        Unavailable(f"the first call did not come within {first_call_s:g} s; connect again")
    )


async def _read(
    session: Session[Any],
    requests: AsyncIterator[RequestT],
    handle: Callable[[RequestT], Awaitable[None]],
) -> None:
    """Handle requests until they end, then end the session."""
    error: CroupierError | None = None
    try:
        async for request in requests:
            if session.is_cut:
                return
            await handle(request)
            # Not kept while the stream is idle.
            del request
    except CroupierError as refusal:
        # Its traceback would keep the request until the next collection of garbage.
        error = refusal.with_traceback(None)
    finally:
        session.end(error)


async def _write(session: Session[Any], write: Callable[[list[Encoded]], Awaitable[None]]) -> None:
    while batch := await session.outbox.take():
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await write(batch)


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer, such as `ipv4:10.0.0.1:4711`, without its port."""
    return peer.rpartition(":")[0]


def is_private(context: Context) -> bool:
    """Return whether the connection is encrypted or stays on this machine."""
    if b"ssl" in context.auth_context().get("transport_security_type", ()):
        return True
    return is_local(context.peer())


def is_local(peer: str) -> bool:
    """Return whether a gRPC peer, such as `ipv4:10.0.0.1:4711`, is on this machine."""
    kind, _, host = host_of(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer.startswith("unix:")
    # gRPC may percent-encode the brackets.
    host = host.replace("%5B", "").replace("%5D", "").strip("[]")
    return Address(host.removeprefix("::ffff:"), 0).is_loopback
