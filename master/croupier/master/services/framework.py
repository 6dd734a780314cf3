"""FrameworkService: sessions of frameworks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from croupier.master.core.events import Event, Heard
from croupier.master.services.stream import Context, serve_stream
from croupier.master.sessions import FrameworkSession, Sessions
from croupier.master.wire.from_framework import call_from_wire, subscribe_from_wire
from croupier.rpc.inbox import Inbox
from croupier.v1 import framework_pb2 as pb
from croupier.v1.framework_pb2_grpc import FrameworkServiceServicer


class FrameworkService(FrameworkServiceServicer):
    """Translates between frameworks' streams and the core."""

    def __init__(self, sessions: Sessions, inbox: Inbox[Event]) -> None:
        """Feed `inbox`."""
        self._sessions, self._inbox = sessions, inbox

    # A coroutine that writes is the other shape of handler that grpc.aio takes.
    async def Connect(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[pb.FrameworkServiceConnectRequest],
        context: Context,
    ) -> None:
        """Serve one framework's session."""
        session = self._sessions.open_framework()

        async def handle(request: pb.FrameworkServiceConnectRequest) -> None:
            await self._handle(session, request)

        async def write(events: list[pb.Event]) -> None:
            await context.write(pb.FrameworkServiceConnectResponse(events=events))

        try:
            await serve_stream(
                session, session.end, request_iterator, handle, write, context, self._inbox
            )
        finally:
            self._sessions.forget(session.session_id)

    async def _handle(
        self, session: FrameworkSession, request: pb.FrameworkServiceConnectRequest
    ) -> None:
        await self._inbox.put(Heard(session.session_id, request.verdicts_seen))
        for call in request.calls:
            match call.WhichOneof("call"):
                case "heartbeat":
                    pass
                case "subscribe":
                    event = subscribe_from_wire(session.session_id, call.subscribe)
                    await self._inbox.put(event)
                case _:
                    await self._inbox.put(call_from_wire(session.session_id, call))
