"""AgentService: sessions of agents.

An agent with many tasks sends pages of tasks, and then REGISTER with the number of pages. The
core gets one event. Pages are bounded for each agent, for all agents together, and in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from croupier.master.access.caller import CredentialKind, current_call
from croupier.master.access.cluster_keys import LaunchProofs
from croupier.master.core.access_records import TokenId
from croupier.master.core.events import AgentTask, Register
from croupier.master.core.token_commands import JoinAgent
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.term import Term
from croupier.master.services.checks import Checks
from croupier.master.services.execs import Execs
from croupier.master.services.stream import Context, is_private, refuse, serve_stream
from croupier.master.services.stream_guard import StreamGuard
from croupier.master.session import AgentSession
from croupier.master.wire.from_agent import (
    MAX_AGENT_TASKS,
    claim_from_wire,
    report_from_wire,
    tasks_from_wire,
)
from croupier.master.wire.to_agent import response_to_wire
from croupier.model.clock import Clock
from croupier.model.errors import (
    CroupierError,
    InvalidRequest,
    PermissionDenied,
    ProtocolViolation,
    TooSlow,
    Unavailable,
)
from croupier.model.ids import AgentId
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Budget, Encoded
from croupier.process.time_slice import TimeSlice
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceServicer
from croupier.wire.resources import attributes_from_wire, check_count

# Limit of all pages of one agent, encoded.
MAX_BYTES = 32 * 1024 * 1024
# Limit of the time from the first page to REGISTER.
COMPLETE_S = 60.0


class Registration:
    """The pages of one session."""

    def __init__(
        self,
        budget: Budget,
        end: Callable[[CroupierError], None],
        proofs: LaunchProofs | None = None,
    ) -> None:
        """Count pages toward `budget`; `proofs` judges tasks, `end` ends sessions that are late."""
        self._budget, self._end, self._proofs = budget, end, proofs
        self._tasks: list[AgentTask] = []
        self._pages = self._bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    async def add(self, page: pb.RegisterPage) -> None:
        """Add a page.

        Raises InvalidRequest if a task is malformed, or the tasks are too many or too large;
        TooSlow if other agents hold too many pages.
        """
        check_count(len(self._tasks) + len(page.tasks), MAX_AGENT_TASKS, "tasks of one agent")
        size = page.ByteSize()
        if self._bytes + size > MAX_BYTES:
            raise InvalidRequest(f"the agent's tasks take more than {MAX_BYTES} bytes")
        if self._deadline is None:
            late = TooSlow(f"REGISTER did not come within {COMPLETE_S:g} s of its first page")
            self._deadline = asyncio.get_running_loop().call_later(COMPLETE_S, self._end, late)
        self._bytes += size
        self._budget.used += size
        if self._budget.is_over:
            raise TooSlow("too many agents register with very many tasks; try again later")
        self._pages += 1
        self._tasks += await tasks_from_wire(page.tasks, self._proofs)

    def complete(self, last: tuple[AgentTask, ...], pages: int) -> tuple[AgentTask, ...]:
        """Return all tasks, with those of REGISTER itself at the end.

        Raises:
            ProtocolViolation: if the agent has sent more or fewer pages than it says.
            InvalidRequest: if there are too many tasks.
        """
        if pages != self._pages:
            raise ProtocolViolation(f"{self._pages} pages came before REGISTER, not {pages}")
        check_count(len(self._tasks) + len(last), MAX_AGENT_TASKS, "tasks of one agent")
        tasks = (*self._tasks, *last)
        self.close()
        return tasks

    def close(self) -> None:
        """Drop all pages."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._budget.used -= self._bytes
        self._tasks = []
        self._pages = self._bytes = 0


class AgentService(AgentServiceServicer):
    """Translates between agents' streams and the core."""

    def __init__(self, leadership: Leadership, clock: Clock, checks: Checks, execs: Execs) -> None:
        """Serve the term of `leadership`; `checks` limit and audit the calls."""
        self._leadership, self._clock, self._checks = leadership, clock, checks
        self._execs = execs

    # grpc.aio also accepts a coroutine that writes; the generated type does not say so.
    async def Connect(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.AgentServiceConnectRequest], context: Context
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
        guard = self._checks.stream_guard(call)
        session.audit = guard.audit
        try:
            await _serve(term, session, request_iterator, context, guard)
        finally:
            term.sessions.forget(session.session_id)

    async def Exec(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.AgentServiceExecRequest], context: Context
    ) -> None:
        """Serve the agent's side of a command beside a task. Raises as `Execs.serve_agent`."""
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
                claim, objection = claim_from_wire(report.register, lineage)
                event = replace(
                    event,
                    claim=claim,
                    objection=objection,
                    takes_secrets=session.is_private,
                    tasks=registration.complete(event.tasks, report.register.pages),
                    principal=session.caller.principal,
                )
            await guard.put(inbox, event, report)

    async def write(orders: list[Encoded]) -> None:
        await context.write(response_to_wire(orders, term.epoch, lineage))

    try:
        await serve_stream(session, requests, handle, write, context, inbox, first_call_s)
    finally:
        registration.close()
