"""One command beside a task: its caller's stream and its agent's, joined.

Rule: nothing is buffered. A message is read from one side once the one before was written to the
other, so each side waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from croupier.master.access.rate_limits import Pace
from croupier.master.journal.watch import CHECK_S
from croupier.master.services.exec_messages import InputWindow, for_agent, for_caller
from croupier.model.errors import ProtocolViolation, TooSlow, Unavailable
from croupier.model.ids import AgentId
from croupier.net.task_scope import reraise_own_cancellation, until_one_ends
from croupier.v1 import agent_pb2, exec_pb2, operator_pb2

# A caller that reads nothing for this long, while there is output, is cut off. It may be a pager.
UNREAD_S: Final = 3600.0
# A message counts for the pace by at least so many bytes: small and empty ones cost nearly as much.
LEAST_COST: Final = 32 * 1024
RequestT = TypeVar("RequestT")


class AgentLost(Unavailable):
    """The agent's stream broke, or violated the protocol."""


class CallerLost(Unavailable):
    """The caller's stream broke."""


@dataclass(slots=True, eq=False)
class AgentStream:
    """An agent's stream after the id. `is_over`: the master is done; `is_lost`: it ended."""

    requests: AsyncIterator[agent_pb2.AgentServiceExecRequest]
    write: Callable[[agent_pb2.AgentServiceExecResponse], Awaitable[None]]
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    is_lost: asyncio.Event = field(default_factory=asyncio.Event)


class ExecBridge:
    """Passes the messages of one command on; `end` says how it ended, None before."""

    def __init__(
        self,
        agent_id: AgentId,
        requests: AsyncIterator[operator_pb2.ExecTaskRequest],
        write: Callable[[operator_pb2.ExecTaskResponse], Awaitable[None]],
        agent: AgentStream,
        pace: Pace,
        check: Callable[[], None],
    ) -> None:
        """Join a caller's stream, after its start, and an agent's; `check` raises to end them."""
        self._agent_id, self._requests, self._write, self._agent = agent_id, requests, write, agent
        self._pace, self._check = pace, check
        self._window = InputWindow()
        self.has_started = False
        self.end: exec_pb2.ExecEnd | None = None

    async def run(self, start: exec_pb2.ExecStart) -> None:
        """Run the command to its end; raises CroupierError if it is refused, or ends early."""
        try:
            await self._to_agent(agent_pb2.AgentServiceExecResponse(start=start))
            await until_one_ends(
                self._pass_output(), self._pass_input(start.command), self._watch(), self._lost()
            )
        except AgentLost:
            # Its stream may end before the others know of the last message.
            if self.end is None:
                raise
        finally:
            self._agent.is_over.set()

    async def _pass_output(self) -> None:
        requests = self._paced(self._agent.requests, _cost_of_agent)
        answers = for_caller(requests, self._agent_id, self._window)
        try:
            async with aclosing(answers):
                async for answer in answers:
                    self.has_started = True
                    if answer.HasField("end"):
                        self.end = answer.end
                    await self._to_caller(answer)
        except asyncio.CancelledError:
            reraise_own_cancellation()
            raise self._is_lost() from None
        except ProtocolViolation as error:
            raise AgentLost(f"agent {self._agent_id} breaks the protocol: {error}") from None
        if self.end is None:
            raise self._is_lost()

    async def _pass_input(self, command: exec_pb2.ExecCommand) -> NoReturn:
        messages = for_agent(self._paced(self._requests, _cost_of_caller), command)
        async with aclosing(messages):
            async for message in messages:
                await self._window.take(len(message.input))
                await self._to_agent(message)
        # The command goes on without input.
        await asyncio.Event().wait()
        raise AssertionError("it waits without end")

    async def _paced(
        self, requests: AsyncIterator[RequestT], cost_of: Callable[[RequestT], int]
    ) -> AsyncGenerator[RequestT, None]:
        """Yield requests; the pace counts each, also one that is not passed on."""
        async for request in requests:
            yield request
            await self._pace.passed(cost_of(request))

    async def _watch(self) -> NoReturn:
        while True:
            self._check()
            await asyncio.sleep(CHECK_S)

    async def _lost(self) -> NoReturn:
        await self._agent.is_lost.wait()
        raise self._is_lost()

    async def _to_caller(self, answer: operator_pb2.ExecTaskResponse) -> None:
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._write(answer)
        except TimeoutError:
            raise TooSlow(f"no output was read for {UNREAD_S:.0f} s") from None
        except Exception as error:  # gRPC raises several kinds if a stream has ended
            raise CallerLost("the connection to the caller broke") from error

    async def _to_agent(self, message: agent_pb2.AgentServiceExecResponse) -> None:
        try:
            await self._agent.write(message)
        except Exception as error:  # as above
            raise self._is_lost() from error

    def _is_lost(self) -> AgentLost:
        return AgentLost(f"the connection to agent {self._agent_id} broke")


def _cost_of_caller(request: operator_pb2.ExecTaskRequest) -> int:
    return max(LEAST_COST, len(request.input))


def _cost_of_agent(request: agent_pb2.AgentServiceExecRequest) -> int:
    # Input that was taken has counted on its way to the agent.
    return max(LEAST_COST - request.input_taken, len(request.output) + len(request.errors))
