"""AgentService: sessions of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from croupier.master.core.events import Register
from croupier.master.leadership import Leadership
from croupier.master.services.privacy import is_private
from croupier.master.services.registration import Registration
from croupier.master.services.stream import Context, refuse, serve_stream
from croupier.master.session_limits import host_of
from croupier.master.sessions import AgentSession
from croupier.master.term import Term
from croupier.master.wire.from_agent import report_from_wire, with_claim
from croupier.master.wire.to_agent import response_to_wire
from croupier.model.errors import Unavailable
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Encoded
from croupier.process.time_slice import TimeSlice
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceServicer


class AgentService(AgentServiceServicer):
    """Translates between agents' streams and the core."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    # grpc.aio also accepts a coroutine that writes; the generated type does not say so.
    async def Connect(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[pb.AgentServiceConnectRequest],
        context: Context,
    ) -> None:
        """Serve one agent's session, or redirect it to the leader."""
        try:
            term = self._leadership.term()
            session = term.sessions.open_agent(
                host_of(context.peer()), is_private=is_private(context)
            )
        except Unavailable as refusal:
            order = pb.Order(error=error_to_wire(refusal))
            await refuse(context, pb.AgentServiceConnectResponse(orders=[order]), refusal)
        try:
            await _serve(term, session, request_iterator, context)
        finally:
            term.sessions.forget(session.session_id)


async def _serve(
    term: Term,
    session: AgentSession,
    requests: AsyncIterator[pb.AgentServiceConnectRequest],
    context: Context,
) -> None:
    inbox, first_call_s = term.driver.inbox, term.sessions.limits.first_call_s
    lineage = term.lineage
    registration = Registration(term.sessions.registering, session.end)

    async def handle(request: pb.AgentServiceConnectRequest) -> None:
        held = TimeSlice()
        for report in request.reports:
            if held.is_over:
                await held.give_way()
            if report.HasField("register_page"):
                session.is_introduced = True
                await registration.add(report.register_page)
                continue
            event = await report_from_wire(session.session_id, report)
            if isinstance(event, Register):
                session.is_introduced = True
                event = with_claim(event, report.register, lineage)
                event = replace(event, takes_secrets=event.takes_secrets and session.is_private)
                event = registration.complete(event, report.register.pages)
            await inbox.put(event)

    async def write(orders: list[Encoded]) -> None:
        await context.write(response_to_wire(orders, term.epoch, lineage))

    try:
        await serve_stream(session, requests, handle, write, context, inbox, first_call_s)
    finally:
        registration.close()
