"""AgentService: sessions of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from croupier.master.access.caller import CredentialKind, current_call
from croupier.master.core.access_records import TokenId
from croupier.master.core.events import Register
from croupier.master.core.token_commands import JoinAgent
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.term import Term
from croupier.master.services.execs import Execs
from croupier.master.services.privacy import is_private
from croupier.master.services.registration import Registration
from croupier.master.services.stream import Context, refuse, serve_stream
from croupier.master.services.stream_guard import StreamGuard, StreamGuards
from croupier.master.session import AgentSession
from croupier.master.wire.from_agent import report_from_wire, with_claim
from croupier.master.wire.to_agent import response_to_wire
from croupier.model.clock import Clock
from croupier.model.errors import PermissionDenied, Unavailable
from croupier.model.ids import AgentId
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Encoded
from croupier.process.time_slice import TimeSlice
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceServicer
from croupier.wire.resources import attributes_from_wire


class AgentService(AgentServiceServicer):
    """Translates between agents' streams and the core."""

    def __init__(
        self, leadership: Leadership, clock: Clock, guards: StreamGuards, execs: Execs
    ) -> None:
        """Serve the term of `leadership`; `guards` limit and audit the calls."""
        self._leadership, self._clock, self._guards = leadership, clock, guards
        self._execs = execs

    # grpc.aio also accepts a coroutine that writes; the generated type does not say so.
    async def Connect(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[pb.AgentServiceConnectRequest],
        context: Context,
    ) -> None:
        """Serve one agent's session, or redirect it to the leader."""
        call = current_call()
        try:
            term = self._leadership.term()
            session = term.sessions.open_agent(call.caller, is_private=is_private(context))
        except Unavailable as error:
            refusal = call.caller.redirected(error)
            order = pb.Order(error=error_to_wire(refusal))
            await refuse(context, pb.AgentServiceConnectResponse(orders=[order]), refusal)
        guard = session.observer = self._guards.of(call)
        try:
            await _serve(term, session, request_iterator, context, guard)
        finally:
            term.sessions.forget(session.session_id)

    async def Exec(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.AgentServiceExecRequest], context: Context
    ) -> None:
        """Serve the agent's side of a command beside a task.

        Raises:
            CroupierError: as for `Execs.serve_agent`; the gate ends the stream with it.
        """
        await self._execs.serve_agent(current_call().caller, request_iterator, context.write)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        """Give an agent a token of its own."""
        caller = current_call().caller
        if caller.kind is CredentialKind.NONE:
            raise Unavailable("authentication is off: agents need no token")
        if caller.kind is CredentialKind.UNCHECKED:
            # The next master may be able to check it.
            raise self._leadership.refusal()
        if caller.kind is not CredentialKind.JOIN:
            raise PermissionDenied("agents join with a join token, while authentication is on")
        await self._leadership.ask(
            lambda number: JoinAgent(
                number,
                TokenId(caller.credential_id),
                AgentId(request.agent_id),
                TokenId(request.token_id),
                request.token_hash.hex(),
                attributes_from_wire(request.attributes),
                self._clock.wall_ms(),
            )
        )
        return pb.JoinResponse()


async def _serve(
    term: Term,
    session: AgentSession,
    requests: AsyncIterator[pb.AgentServiceConnectRequest],
    context: Context,
    guard: StreamGuard,
) -> None:
    inbox, first_call_s = term.driver.inbox, term.sessions.limits.first_call_s
    lineage = term.lineage
    registration = Registration(term.sessions.registering, session.end, term.sessions.proofs)

    async def handle(request: pb.AgentServiceConnectRequest) -> None:
        held = TimeSlice()
        for report in request.reports:
            if held.is_over:
                await held.give_way()
            if report.HasField("register_page"):
                session.is_introduced = True
                await registration.add(report.register_page)
                continue
            event = await report_from_wire(session.session_id, report, term.sessions.proofs)
            if isinstance(event, Register):
                session.is_introduced = True
                event = with_claim(event, report.register, lineage)
                event = replace(event, takes_secrets=session.is_private)
                event = registration.complete(event, report.register.pages)
                event = replace(event, principal=session.caller.principal)
            await guard.put(inbox, event, report)

    async def write(orders: list[Encoded]) -> None:
        await context.write(response_to_wire(orders, term.epoch, lineage))

    try:
        await serve_stream(session, requests, handle, write, context, inbox, first_call_s)
    finally:
        registration.close()
