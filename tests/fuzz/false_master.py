"""An attack on an agent: a master that sends any orders.

Orders with a command are never damaged, so that every command that an agent runs is one of
`messages.HARMLESS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from croupier.net.address import Address
from croupier.net.transport import bind, make_server
from croupier.v1 import agent_pb2, framework_pb2
from tests.fuzz.attack import Attack
from tests.fuzz.cases import Case
from tests.fuzz.contract import Method
from tests.fuzz.readers import drawn
from tests.fuzz.wire_bytes import damaged

MOST_RESPONSES: Final = 60
MOST_ORDERS: Final = 40
# Time for the agent to connect, and to send REGISTER.
COME_S: Final = 20.0
LISTEN_S: Final = 0.01
_DAMAGED: Final = 0.02
_ODD_ENVELOPE: Final = 0.002
# Another agent has taken over the id: the agent ends, as it must.
_FATAL: Final = (framework_pb2.ERROR_CODE_FAILED_OVER,)

# The agent ended the stream; StopAsyncIteration: before its REGISTER.
_ENDED: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    StopAsyncIteration,
    TimeoutError,
)


class FalseMaster(Attack):
    """A server for one agent. Each of the agent's streams is a case."""

    def __init__(self, method: Method, seed: int) -> None:
        super().__init__(f"orders of {method.path}", seed)
        self._method = method
        self._server = make_server()
        self._streams: asyncio.Queue[tuple[Any, Any, asyncio.Event]] = asyncio.Queue()
        self.address = Address("127.0.0.1", 0)

    @property
    def target(self) -> str:
        """The name of the attack."""
        return self.name

    def accepts(self, target: str) -> bool:
        """Return whether the case has orders of this method."""
        return target == self.name

    async def start(self) -> None:
        """Listen on a free port."""
        _, service, name = self._method.path.split("/")
        handler: Any = grpc.stream_stream_rpc_method_handler(self._connect)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {name: handler})]
        )
        self.address = Address("127.0.0.1", bind(self._server, self.address))
        await self._server.start()

    async def close(self) -> None:
        """Stop listening."""
        await self._server.stop(0)

    async def run(self, case: Case) -> None:
        """Serve the agent's next stream."""
        stream = await self._stream()
        if stream is None:
            self.answers["did not connect"] += 1
            return
        requests, context, ended = stream
        reading = None
        try:
            if self.rng.random() < 0.9:
                await self._greet(requests, context, case)
            reading = asyncio.create_task(self._listen(requests))
            for _ in range(self.rng.randint(1, MOST_RESPONSES)):
                response, count = self._response()
                case.sent.append(response)
                await context.write(response)
                self.sent += count
                await asyncio.sleep(0 if self.rng.random() < 0.8 else LISTEN_S)
            self.answers["whole"] += 1
        except _ENDED:
            self.answers["the agent ended it"] += 1
        except Exception as error:
            # gRPC's error for a stream that the peer has ended is not public.
            if type(error).__name__ != "ExecuteBatchError":
                raise
            self.answers["the agent ended it"] += 1
        finally:
            if reading is not None:
                reading.cancel()
            ended.set()

    async def replay(self, case: Case) -> None:
        """Send the responses of a case on the agent's next stream."""
        stream = await self._stream()
        if stream is None:
            return
        requests, context, ended = stream
        try:
            await self._greet(requests, context, Case(self.name))
            for response in case.sent:
                await context.write(response)
                self.sent += 1
        except StopAsyncIteration:
            self.answers["the agent ended it"] += 1
        finally:
            ended.set()

    async def _stream(self) -> tuple[Any, Any, asyncio.Event] | None:
        try:
            async with asyncio.timeout(COME_S):
                return await self._streams.get()
        except TimeoutError:
            return None

    async def _connect(self, requests: AsyncIterator[bytes], context: Any) -> None:
        ended = asyncio.Event()
        await self._streams.put((requests, context, ended))
        await ended.wait()

    async def _listen(self, requests: AsyncIterator[bytes]) -> None:
        async for request in requests:
            message: Any = GetMessageClass(self._method.request)()
            message.ParseFromString(request)
            self.words.learn(message)

    async def _greet(self, requests: AsyncIterator[bytes], context: Any, case: Case) -> None:
        """Read REGISTER, and answer as a master does."""
        async with asyncio.timeout(COME_S):
            register = agent_pb2.AgentServiceConnectRequest.FromString(await anext(aiter(requests)))
        self.words.learn(register)
        reports = [each.register for each in register.reports if each.HasField("register")]
        agent_id = reports[0].agent_id if reports else ""
        registered = agent_pb2.Registered(
            agent_id=agent_id or "fuzz-A1", master_id="fuzz-1", heartbeat_ms=1000, takes_health=True
        )
        response = agent_pb2.AgentServiceConnectResponse(
            orders=[agent_pb2.Order(registered=registered)], master_epoch=1, cluster="fuzz"
        )
        case.sent.append(response.SerializeToString())
        await context.write(case.sent[-1])

    def _order(self) -> Any:
        while True:
            order = drawn(self, lambda: self.messages.message(agent_pb2.Order.DESCRIPTOR))
            if order.error.code not in _FATAL:
                return order

    def _response(self) -> tuple[bytes, int]:
        """Return a response with several orders, and their number."""
        response = agent_pb2.AgentServiceConnectResponse(master_epoch=1, cluster="fuzz")
        if self.rng.random() < _ODD_ENVELOPE:
            response.MergeFrom(self.messages.message(response.DESCRIPTOR))  # type: ignore[arg-type]
            del response.orders[:]
        for _ in range(self.rng.choice((1, 3, MOST_ORDERS))):
            response.orders.append(self._order())
        encoded = response.SerializeToString()
        runs = any(order.HasField("launch") for order in response.orders)
        if not runs and self.rng.random() < _DAMAGED:
            encoded = damaged(encoded, self.rng)
        return encoded, len(response.orders)
