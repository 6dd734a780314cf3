"""AgentService: sessions of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator

from croupier.master.core.events import Event
from croupier.master.services.stream import Context, serve_stream
from croupier.master.sessions import Sessions
from croupier.master.wire.from_agent import report_from_wire
from croupier.rpc.inbox import Inbox
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceServicer


class AgentService(AgentServiceServicer):
    """Translates between agents' streams and the core."""

    def __init__(self, sessions: Sessions, inbox: Inbox[Event]) -> None:
        """Feed `inbox`."""
        self._sessions, self._inbox = sessions, inbox

    # A coroutine that writes is the other shape of handler that grpc.aio takes.
    async def Connect(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[pb.AgentServiceConnectRequest],
        context: Context,
    ) -> None:
        """Serve one agent's session."""
        session = self._sessions.open_agent()

        async def handle(request: pb.AgentServiceConnectRequest) -> None:
            for report in request.reports:
                await self._inbox.put(report_from_wire(session.session_id, report))

        async def write(orders: list[pb.Order]) -> None:
            await context.write(pb.AgentServiceConnectResponse(orders=orders))

        try:
            await serve_stream(
                session, session.end, request_iterator, handle, write, context, self._inbox
            )
        finally:
            self._sessions.forget(session.session_id)
