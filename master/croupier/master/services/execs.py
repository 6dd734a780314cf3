"""Commands beside tasks: `croupier exec`.

Rule: the master cannot reach agents, so it orders the agent over its session to call back with a
random id, which is valid once, for some seconds, and for that agent only. A command ends with its
caller, its agent and the term, and half a second after its caller's credential or permission.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from croupier.master.access.audit import MAX_DETAIL, Audit, AuditOutcome
from croupier.master.access.caller import Call, Caller
from croupier.master.access.rate_limits import ALL, Pace, counted
from croupier.master.core.authorisation import may_on_role
from croupier.master.core.effects import SessionId
from croupier.master.core.state import State
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.term import Term
from croupier.master.services.checks import status_of
from croupier.master.services.exec_bridge import AgentLost, AgentStream, CallerLost, ExecBridge
from croupier.master.services.exec_messages import start_of
from croupier.master.services.task_places import NamedTask, TaskPlace, find_place, rechecks
from croupier.model.access import Action
from croupier.model.clock import Clock
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    TooSlow,
    Unavailable,
)
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family
from croupier.v1 import agent_pb2, exec_pb2, operator_pb2

# Commands at the same time, and of one caller.
MAX_EXECS: Final = 256
EXECS_PER_CALLER: Final = 32
# Seconds for the first message of a stream, and for an agent to call back.
FIRST_S: Final = 10.0
CALL_BACK_S: Final = 10.0
OUTCOMES: Final = ("ended", "refused", "cancelled", "agent_lost", "withdrawn")
_START, _END = "/croupier.v1.OperatorService/EXEC_START", "/croupier.v1.OperatorService/EXEC_END"

_log = get_logger("croupier.master")
RequestT = TypeVar("RequestT")


class Execs:
    """The commands that this master passes on; counts those `running`, and the `outcomes`."""

    def __init__(self, leadership: Leadership, clock: Clock, audit: Audit) -> None:
        """Serve as the master that leads; `audit` takes a line at each start and each end."""
        self._leadership, self._clock, self._audit = leadership, clock, audit
        self._pace = Pace(clock)
        # Agents that were ordered to call back, by the id of the command, and their streams.
        self._ordered: dict[str, tuple[AgentId, asyncio.Future[AgentStream]]] = {}
        # Commands of each caller, and of all.
        self._held: Counter[str] = Counter()
        self.running = 0
        self.outcomes: Counter[str] = Counter()

    async def serve_caller(
        self,
        call: Call,
        requests: AsyncIterator[operator_pb2.ExecTaskRequest],
        write: Callable[[operator_pb2.ExecTaskResponse], Awaitable[None]],
    ) -> None:
        """Run the command of one caller to its end.

        Raises:
            NotFound: if the caller may see no such task.
            PermissionDenied: if it may see the task, but not run a command.
            InvalidRequest: if a request is malformed.
            Conflict: if the task does not run, or its agent runs no commands.
            Unavailable: if there are too many commands, the agent is lost or does not call back, or
                the term has ended.
            TooSlow: if the caller sends or reads nothing.
            Unauthenticated: if its token was revoked meanwhile.
        """
        mine = f"you run {EXECS_PER_CALLER} commands already; end one of them first"
        full = "too many commands run beside tasks at this master; try again later"
        with counted(self._held, call.caller.rate_key, EXECS_PER_CALLER, mine):
            requests = aiter(requests)
            start = start_of(await _first(requests))
            call.object = f"task:{start.framework_id}/{start.task_id}"
            term = self._leadership.term()
            place, session, call.rule = await self._find(start, call.caller)
            start.framework_id = place.framework_id
            with counted(self._held, ALL, MAX_EXECS, full):
                exec_id = secrets.token_hex(16)
                agent_id = place.agent_id
                call.object = f"task:{start.framework_id}/{start.task_id},agent:{agent_id}"
                agent = await self._called_back(term, agent_id, session, exec_id)
                check = rechecks(lambda: term, place, Action.EXEC, call.caller)
                bridge = ExecBridge(agent_id, requests, write, agent, self._pace, check)
                with self._noted(call, bridge, start):
                    await bridge.run(start)

    async def serve_agent(
        self,
        caller: Caller,
        requests: AsyncIterator[agent_pb2.AgentServiceExecRequest],
        write: Callable[[agent_pb2.AgentServiceExecResponse], Awaitable[None]],
    ) -> None:
        """Serve the stream of an agent that calls back, until the command has ended.

        Raises NotFound if no command waits for this agent under the id; TooSlow if the id does not
        come in time.
        """
        requests = aiter(requests)
        exec_id = (await _first(requests)).exec_id
        agent_id, ordered = self._ordered.get(exec_id, (None, None))
        is_other = not caller.principal.is_anonymous and caller.principal.agent_id != agent_id
        if ordered is None or is_other or ordered.done():
            raise NotFound("no command waits for this agent under this id")
        stream = AgentStream(requests, write)
        ordered.set_result(stream)
        try:
            await stream.is_over.wait()
        finally:
            stream.is_lost.set()

    async def _find(
        self, start: exec_pb2.ExecStart, caller: Caller
    ) -> tuple[TaskPlace, SessionId, str]:
        """Return a live task, the session of its agent, and the rule that allows the command."""
        named = NamedTask(TaskId(start.task_id), FrameworkId(start.framework_id), AgentId(""))

        def find(state: State) -> tuple[TaskPlace, SessionId, str]:
            permissions = state.permissions(caller.principal)
            task = find_place(state, named, Action.EXEC, permissions)
            session = _session(state, task)
            decision = may_on_role(permissions, Action.EXEC, task.roles[0], task.owner)
            return task, session, decision.rule if permissions.is_on else ""

        return await self._leadership.read(find)

    async def _called_back(
        self, term: Term, agent_id: AgentId, session: SessionId, exec_id: str
    ) -> AgentStream:
        """Order the agent to call, and return its stream; raises Unavailable if none comes."""
        stream: asyncio.Future[AgentStream] = asyncio.get_running_loop().create_future()
        self._ordered[exec_id] = agent_id, stream
        try:
            if not term.sessions.open_exec(session, exec_id):
                raise Unavailable(f"agent {agent_id} is not connected; try again")
            await asyncio.wait([stream], timeout=CALL_BACK_S)
            if not stream.done():
                raise Unavailable(
                    f"agent {agent_id} did not call back within {CALL_BACK_S:g} s; try again, or"
                    " see the log of the agent"
                )
            return stream.result()
        except asyncio.CancelledError:
            if stream.done():
                stream.result().is_over.set()
            raise
        finally:
            del self._ordered[exec_id]

    @contextmanager
    def _noted(self, call: Call, bridge: ExecBridge, start: exec_pb2.ExecStart) -> Iterator[None]:
        """Count, log and audit a command."""
        argv = shlex.join(start.command.argv)
        self._write_line(call, _START, argv[:MAX_DETAIL], "OK")
        framework_id, task_id = start.framework_id, start.task_id
        principal = call.caller.principal.name
        _log.info("exec_started", framework_id=framework_id, task_id=task_id, principal=principal)
        self.running += 1
        outcome, error = "cancelled", None
        try:
            yield
            outcome = "ended"
        except CroupierError as failure:
            outcome, error = _outcome(failure, bridge), failure
            raise
        finally:
            self.running -= 1
            self.outcomes[outcome] += 1
            how = _how(bridge.end) or (str(error) if error else "the caller has left")
            result = "OK" if bridge.end is not None else "CANCELLED"
            result = result if error is None else status_of(error).name
            self._write_line(call, _END, how, result)
            _log.info(
                "exec_ended",
                framework_id=framework_id,
                task_id=task_id,
                principal=principal,
                outcome=outcome,
                how=how,
            )

    def _write_line(self, call: Call, method: str, detail: str, result: str) -> None:
        made = Call(method, call.caller, call.size, call.object, detail, call.rule)
        self._audit.write(made, AuditOutcome.ALLOW, result)


def _session(state: State, task: TaskPlace) -> SessionId:
    """Return the session of the task's agent; raises Conflict or Unavailable if there is none."""
    task_id, agent_id = task.task_id, task.agent_id
    if not task.is_live:
        raise Conflict(f"task {task_id} has ended: croupier logs {task_id} shows its output")
    if not agent_id:
        raise Conflict(f"task {task_id} is queued: it runs on no agent yet")
    agent = state.agents.get(agent_id)
    if agent is None or agent.session is None:
        raise Unavailable(f"agent {agent_id} of task {task_id} is not connected; try again later")
    if not agent.takes_exec:
        raise Conflict(
            f"agent {agent_id} runs no commands beside tasks: it was started with --exec refuse"
        )
    return agent.session


async def _first(requests: AsyncIterator[RequestT]) -> RequestT:
    """Return a stream's first request; raises InvalidRequest without one, TooSlow if it is late."""
    try:
        async with asyncio.timeout(FIRST_S):
            return await anext(requests)
    except StopAsyncIteration:
        raise InvalidRequest("the stream has no request") from None
    except TimeoutError:
        raise TooSlow(f"no request came within {FIRST_S:g} s") from None


def _outcome(error: CroupierError, bridge: ExecBridge) -> str:
    if isinstance(error, AgentLost):
        return "agent_lost"
    if isinstance(error, CallerLost | InvalidRequest | TooSlow) and bridge.has_started:
        return "cancelled"
    return "withdrawn" if bridge.has_started else "refused"


def _how(end: exec_pb2.ExecEnd | None) -> str:
    """Return how a command ended, in words; empty if it is not known."""
    if end is None:
        return ""
    if end.WhichOneof("end") == "signal":
        return f"signal {end.signal}"
    return f"exit code {end.exit_code}"


EXECS: Final[tuple[Family[Execs], ...]] = (
    Family("execs_running", "Commands that run beside tasks.", lambda execs: execs.running),
    Family(
        "execs",
        "Commands beside tasks by outcome: ended, refused by the agent, cancelled by the caller,"
        " agent_lost, or withdrawn with the permission or the term.",
        lambda execs: {each: execs.outcomes[each] for each in OUTCOMES},
        ("outcome",),
        is_counter=True,
    ),
)
