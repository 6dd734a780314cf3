"""FrameworkService: sessions of frameworks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NoReturn

from croupier.master.access.caller import current_call
from croupier.master.core.events import Received
from croupier.master.core.step import Event
from croupier.master.leadership.leadership import Leadership
from croupier.master.services.checks import Checks
from croupier.master.services.stream import Context, is_private, refuse, serve_stream
from croupier.master.services.stream_guard import NO_GUARD, StreamGuard
from croupier.master.session import FrameworkSession
from croupier.master.wire.from_framework import call_from_wire, split_call, subscribe_from_wire
from croupier.model.errors import CroupierError, Unavailable
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Encoded, joined
from croupier.process.inbox import Inbox
from croupier.process.time_slice import TimeSlice
from croupier.v1 import framework_pb2 as pb
from croupier.v1.framework_pb2_grpc import FrameworkServiceServicer


class FrameworkService(FrameworkServiceServicer):
    """Translates between frameworks' streams and the core."""

    def __init__(self, leadership: Leadership, checks: Checks) -> None:
        """Serve the term of `leadership`; `checks` limit and audit the calls."""
        self._leadership, self._checks = leadership, checks

    # grpc.aio also accepts a coroutine that writes; the generated type does not say so.
    async def Connect(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.FrameworkServiceConnectRequest], context: Context
    ) -> None:
        """Serve one framework's session, or redirect it to the leader."""
        call = current_call()
        try:
            term = self._leadership.term()
            session = term.sessions.open_framework(call.caller, is_private=is_private(context))
        except Unavailable as refusal:
            await refuse_framework(context, call.caller.redirected(refusal))
        first_call_s = term.sessions.limits.first_call_s
        guard = self._checks.stream_guard(call)
        session.audit = guard.audit
        try:
            await serve_framework(
                session, term.driver.inbox, first_call_s, request_iterator, context, guard
            )
        finally:
            term.sessions.forget(session.session_id)


async def refuse_framework(context: Context, refusal: CroupierError) -> NoReturn:
    """End a framework's stream with `refusal`, before there is a session."""
    event = pb.Event(error=error_to_wire(refusal))
    await refuse(context, pb.FrameworkServiceConnectResponse(events=[event]), refusal)


async def serve_framework(
    session: FrameworkSession,
    inbox: Inbox[Event],
    first_call_s: float,
    requests: AsyncIterator[pb.FrameworkServiceConnectRequest],
    context: Context,
    guard: StreamGuard = NO_GUARD,
) -> None:
    """Serve a framework's session until its stream ends or the core closes it."""

    async def handle(request: pb.FrameworkServiceConnectRequest) -> None:
        session.is_introduced |= any(call.HasField("subscribe") for call in request.calls)
        await _put(inbox, session, request, guard)

    async def write(events: list[Encoded]) -> None:
        await context.write(joined(events))

    await serve_stream(session, requests, handle, write, context, inbox, first_call_s)


async def _put(
    inbox: Inbox[Event],
    session: FrameworkSession,
    request: pb.FrameworkServiceConnectRequest,
    guard: StreamGuard,
) -> None:
    session_id = session.session_id
    await inbox.put(Received(session_id, request.verdicts_seen))
    held = TimeSlice()
    for call in request.calls:
        if held.is_over:
            await held.give_way()
        match call.WhichOneof("call"):
            case "heartbeat":
                pass
            case "subscribe":
                event = subscribe_from_wire(session_id, call.subscribe)
                event = replace(event, principal=session.caller.principal)
                await guard.put(inbox, event, call)
            case _:
                called = await call_from_wire(session_id, call, session.seal)
                for part in split_call(called):
                    await guard.put(inbox, part, call)
