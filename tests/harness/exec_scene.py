"""A real master with a task whose agent and callers speak the protocol of commands by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio

from croupier.master.app import MasterDaemon
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2, exec_pb2, framework_pb2, operator_pb2, task_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import RawAgent, RawFramework

DEADLINE_S = 30.0


class Side:
    """One stream of a command: a caller's, or an agent's.

    It is iterated, as the product does: `stream.read()` would lose answers that have come, once a
    write has failed because the other side ended the stream.
    """

    def __init__(self, stream: Any, message: Callable[..., Any]) -> None:
        self.stream, self._message = stream, message
        self._answers = aiter(stream)

    async def send(self, **fields: Any) -> None:
        """Send a message; if the stream has ended, its status is not that of the write."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(DEADLINE_S):
                await self.stream.write(self._message(**fields))

    async def next(self) -> Any:
        """Return the next message.

        Raises:
            AssertionError: with the status if the stream has ended.
        """
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await anext(self._answers)
        except grpc.aio.AioRpcError as error:
            raise AssertionError(f"{error.code()}: {error.details()}") from None
        except StopAsyncIteration:
            raise AssertionError("the stream has ended in order") from None

    async def ended(self) -> tuple[Any, str]:
        """Read to the end; return its status."""
        async with asyncio.timeout(DEADLINE_S):
            with suppress(grpc.aio.AioRpcError):
                async for _ in self._answers:
                    pass
            return await self.stream.code(), await self.stream.details()


class Scene:
    """A task t1 of role ads on an agent that has no processes."""

    def __init__(self, master: MasterDaemon, agent: RawAgent, framework: RawFramework) -> None:
        self.master, self.agent, self.framework = master, agent, framework
        self.channels: list[grpc.aio.Channel] = []

    def channel(self, security: ClientSecurity | None = None) -> grpc.aio.Channel:
        self.channels.append(make_channel(self.master.address, security))
        return self.channels[-1]

    def opened(self, security: ClientSecurity | None = None) -> Side:
        """Return the stream of a caller that has sent nothing.

        Only so the status of a refusal before the first message is certain: where the master ends
        the stream first, the write fails, and its status replaces that of the master.
        """
        stub = OperatorServiceStub(self.channel(security))
        return Side(stub.ExecTask(), operator_pb2.ExecTaskRequest)

    async def caller(
        self, security: ClientSecurity | None = None, task_id: str = "t1", **command: Any
    ) -> Side:
        """Return the stream of a caller that has sent a start."""
        side = self.opened(security)
        wire = exec_pb2.ExecCommand(**{"argv": ["cat"], **command})
        await side.send(start=exec_pb2.ExecStart(task_id=task_id, command=wire))
        return side

    async def called_back(
        self, security: ClientSecurity | None = None, exec_id: str | None = None
    ) -> Side:
        """Return the stream of an agent that has sent the id of an order."""
        if exec_id is None:
            exec_id = (await self.agent.next("exec")).exec.exec_id
        side = self.calling(security)
        await side.send(exec_id=exec_id)
        return side

    def calling(self, security: ClientSecurity | None = None) -> Side:
        """Return the stream of an agent that has sent nothing."""
        stub = AgentServiceStub(self.channel(security))
        return Side(stub.Exec(), agent_pb2.AgentServiceExecRequest)

    async def begun(
        self,
        security: ClientSecurity | None = None,
        host: ClientSecurity | None = None,
        **command: Any,
    ) -> tuple[Side, Side]:
        """Return both sides of a command that has started."""
        caller = await self.caller(security, **command)
        agent = await self.called_back(host)
        assert (await agent.next()).HasField("start")
        await agent.send(started=exec_pb2.ExecStarted())
        assert (await caller.next()).HasField("started")
        return caller, agent


async def launch(framework: RawFramework, task_id: str = "t1") -> None:
    offer = await framework.offer()
    task = task_pb2.TaskInfo(
        task_id=task_id, command=task_pb2.Command(shell="true"), resources=offer.resources
    )
    operation = framework_pb2.Operation(launch=framework_pb2.Launch(tasks=[task]))
    verdict = await framework.call(
        accept={"offer_ids": [offer.offer_id], "operations": [operation]}
    )
    assert not verdict.HasField("error"), verdict


@asynccontextmanager
async def scene_of(
    master: MasterDaemon,
    host: ClientSecurity | None = None,
    owner: ClientSecurity | None = None,
    **register: Any,
) -> AsyncIterator[Scene]:
    async with (
        RawAgent(master.address, host) as agent,
        RawFramework(master.address, owner) as framework,
    ):
        await agent.register(agent_id="a1", **{"takes_exec": True, **register})
        await framework.subscribe(roles=["ads"])
        await launch(framework)
        scene = Scene(master, agent, framework)
        try:
            yield scene
        finally:
            for channel in scene.channels:
                await channel.close()
