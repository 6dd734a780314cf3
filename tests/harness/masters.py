"""Real masters in this process, and raw peers that may break the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc
import grpc.aio

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.sessions import SessionLimits
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2, framework_pb2, resources_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.v1.framework_pb2_grpc import FrameworkServiceStub
from tests.harness.invariants import check_state

ANY_PORT = Address("127.0.0.1", 0)
DEADLINE_S = 30.0


class StreamEnded(AssertionError):
    """The stream ended before the expected message; names its status."""


async def read_batch(answers: AsyncIterator[Any]) -> Any:
    """Return the next message of a stream, which is iterated, as the product does.

    `stream.read()` would lose messages that have come, once a write has failed because the other
    side ended the stream.

    Raises:
        StreamEnded: if there is none.
    """
    try:
        return await anext(answers)
    except grpc.aio.AioRpcError as error:
        raise StreamEnded(f"{error.code()}: {error.details()}") from None
    except StopAsyncIteration:
        raise StreamEnded("in order") from None


async def write_batch(stream: Any, batch: Any) -> None:
    """Send a message, within a deadline.

    Raises:
        StreamEnded: if the other side ended the stream before it was sent.
    """
    # On Python 3.11 `wait_for` loses a cancellation that comes as the write ends.
    async with asyncio.timeout(DEADLINE_S):
        try:
            await stream.write(batch)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            code, details = await stream.code(), await stream.details()
            ending = "in order" if code is grpc.StatusCode.OK else f"{code}: {details}"
            raise StreamEnded(ending) from None


@asynccontextmanager
async def running_master(**options: Any) -> AsyncIterator[MasterDaemon]:
    """Run a master on free ports, by default in memory; `limits` are of its sessions."""
    limits: SessionLimits | None = options.pop("limits", None)
    options = {"store": StoreChoice(None), **options}
    config = MasterConfig(listen=ANY_PORT, http=ANY_PORT, **options)
    master = MasterDaemon(config, limits=limits)
    try:
        await master.start()
        yield master
        # Resources are conserved at the end of every test.
        await master.driver.read(check_state)
    finally:
        await master.stop()


class RawFramework:
    """A framework's stream without the SDK."""

    def __init__(self, address: Address, security: ClientSecurity | None = None) -> None:
        self._channel = make_channel(address, security)
        self._stream: Any = FrameworkServiceStub(self._channel).Connect()
        self._answers = aiter(self._stream)
        self._events: list[framework_pb2.Event] = []
        self.heard: list[framework_pb2.Event] = []
        self._seq = 0
        self.framework_id = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.cancel()
        await self._channel.close()

    async def send(self, *calls: framework_pb2.Call, verdicts_seen: int = 0) -> None:
        request = framework_pb2.FrameworkServiceConnectRequest(
            calls=calls, verdicts_seen=verdicts_seen
        )
        await write_batch(self._stream, request)

    async def subscribe(self, **more: Any) -> framework_pb2.Subscribed:
        """Subscribe as a framework without demand; `more` overrides fields."""
        info = {"name": "raw", "roles": ["*"], "failover_timeout_ms": 60_000, **more}
        client_id = info.pop("client_id", "client")
        rest = {name: info.pop(name, []) for name in ("demands", "suppressed_roles")}
        subscribe = framework_pb2.Subscribe(
            framework=framework_pb2.FrameworkInfo(**info), client_id=client_id, **rest
        )
        await self.send(framework_pb2.Call(subscribe=subscribe))
        subscribed = (await self.next("subscribed")).subscribed
        self.framework_id = subscribed.framework_id
        return subscribed

    async def call(self, seq: int | None = None, **call: Any) -> framework_pb2.Verdict:
        """Make a call and return its verdict."""
        if seq is None:
            self._seq += 1
            seq = self._seq
        await self.send(framework_pb2.Call(seq=seq, **call))
        while True:
            verdict = (await self.next("verdict")).verdict
            if verdict.seq == seq:
                return verdict

    async def next(self, kind: str) -> framework_pb2.Event:
        """Return the next event of this kind; earlier events of other kinds are queued."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for index, event in enumerate(self._events):
                    if event.WhichOneof("event") == kind:
                        return self._events.pop(index)
                events = (await read_batch(self._answers)).events
                self.heard.extend(events)
                self._events.extend(events)

    async def offer(self) -> framework_pb2.Offer:
        """Return the next offer."""
        return (await self.next("offers")).offers.offers[0]

    async def ended(self) -> tuple[Any, str]:
        """Wait for the end of the stream and return its gRPC status."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._stream.code(), await self._stream.details()


class RawAgent:
    """An agent's stream without an agent: it runs no tasks."""

    def __init__(self, address: Address, security: ClientSecurity | None = None) -> None:
        self._channel = make_channel(address, security)
        self._stream: Any = AgentServiceStub(self._channel).Connect()
        self._answers = aiter(self._stream)
        self._orders: list[agent_pb2.Order] = []
        self.epochs: set[int] = set()
        self.heard = agent_pb2.AgentServiceConnectResponse()
        self.agent_id = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.cancel()
        await self._channel.close()

    async def send(self, *reports: agent_pb2.Report) -> None:
        request = agent_pb2.AgentServiceConnectRequest(reports=reports)
        await write_batch(self._stream, request)

    async def register(self, cpus: float = 4, mem_mib: float = 8192, **more: Any) -> str:
        resources = resources_pb2.Resources(
            cpus_milli=round(cpus * 1000), mem_milli=round(mem_mib * 1000)
        )
        fields = {"hostname": "raw", "resources": resources, **more}
        await self.send(agent_pb2.Report(register=agent_pb2.Register(**fields)))
        self.agent_id = (await self.next("registered")).registered.agent_id
        return self.agent_id

    @property
    def claim(self) -> dict[str, Any]:
        """The fields of REGISTER about the masters that the agent has received messages from."""
        heard = self.heard
        return {
            "agent_id": self.agent_id,
            "cluster": heard.cluster,
            "master_epoch": heard.master_epoch,
            "position": heard.position,
        }

    async def next(self, kind: str) -> agent_pb2.Order:
        """Return the next order of this kind; earlier orders of other kinds are queued."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for index, order in enumerate(self._orders):
                    if order.WhichOneof("order") == kind:
                        return self._orders.pop(index)
                message = await read_batch(self._answers)
                self.epochs.add(message.master_epoch)
                self.heard = message
                self._orders.extend(message.orders)

    async def ended(self) -> tuple[Any, str]:
        """Wait for the end of the stream and return its gRPC status."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._stream.code(), await self._stream.details()
