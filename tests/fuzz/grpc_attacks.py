"""Attacks over gRPC on every method of every service of the master."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import TO_SERVER_BYTES, make_channel
from tests.fuzz.attack import Attack, Problem
from tests.fuzz.cases import Case
from tests.fuzz.contract import Method, all_methods, list_field
from tests.fuzz.floods import CALL_BYTES, heartbeats, list_floods
from tests.fuzz.openers import OPENERS
from tests.fuzz.parties import ADMIN
from tests.fuzz.readers import drawn
from tests.fuzz.wire_bytes import damaged

# Requests of one stream, and messages in each.
MOST_REQUESTS: Final = 30
MOST_IN_REQUEST: Final = 100
AT_ONCE: Final = 4
# Cases after which an attack connects anew.
CASES_OF_CHANNEL: Final = 40
ANSWER_S: Final = 20.0
# How long a stream is read for ids after its last request.
LISTEN_S: Final = 0.02
# Statuses that a master never answers: an exception in a handler is UNKNOWN.
_NEVER: Final = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
# Part of the cases whose messages come in any order.
OUT_OF_ORDER: Final = 0.2
_DAMAGED: Final = 0.02
_OVERSIZE: Final = 0.0005


class GrpcAttack(Attack):
    """Requests to one method, as a peer with certain credentials."""

    def __init__(
        self, method: Method, master: Address, security: ClientSecurity | None, seed: int,
        name: str = "",
    ) -> None:  # fmt: skip
        super().__init__(f"{method.path}{name}", seed)
        self._method, self._master, self._security = method, master, security
        self._channel: grpc.aio.Channel | None = None
        self._cases = 0

    @property
    def target(self) -> str:
        """The path of the method."""
        return self._method.path

    def accepts(self, target: str) -> bool:
        """Return whether the case is for this method."""
        return target == self._method.path

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _connected(self) -> grpc.aio.Channel:
        self._cases += 1
        if self._cases % CASES_OF_CHANNEL == 0:
            await self.close()
        if self._channel is None:
            self._channel = make_channel(self._master, self._security)
        return self._channel

    def _note(self, code: grpc.StatusCode, details: str | None) -> None:
        self.answers[code.name] += 1
        if code in _NEVER:
            raise Problem(f"{self._method.path} answered {code.name}: {details}")

    def _learn(self, answer: bytes) -> None:
        message: Any = GetMessageClass(self._method.response)()
        with suppress(DecodeError):
            message.ParseFromString(answer)
            self.words.learn(message)

    def _encoded(self, request: Message) -> bytes:
        encoded = request.SerializeToString()
        if self.rng.random() < _OVERSIZE:
            return encoded + b"\xfa\x3f" + b"\x80\x80\x80\x02" + bytes(TO_SERVER_BYTES)
        return damaged(encoded, self.rng) if self.rng.random() < _DAMAGED else encoded


class UnaryAttack(GrpcAttack):
    """Requests to a unary method, several at once."""

    async def run(self, case: Case) -> None:
        """Send requests, and wait for all answers."""
        for _ in range(AT_ONCE):
            case.sent.append(self._encoded(self.messages.message(self._method.request)))
        await self.replay(case)

    async def replay(self, case: Case) -> None:
        """Send the requests of a case, and wait for all answers."""
        channel = await self._connected()
        ask: Any = channel.unary_unary(self._method.path)
        self.sent += len(case.sent)
        async with asyncio.TaskGroup() as group:
            for request in case.sent:
                group.create_task(self._ask(ask, request))

    async def _ask(self, ask: Any, request: bytes) -> None:
        try:
            self._learn(await ask(request, timeout=ANSWER_S))
        except grpc.aio.AioRpcError as error:
            self._note(error.code(), error.details())
        else:
            self.answers["OK"] += 1


class StreamAttack(GrpcAttack):
    """Streams of requests: a legal beginning and then anything, or both in any order."""

    async def run(self, case: Case) -> None:
        """Open a stream, send requests, and end it in one of several ways."""
        call = await self._open()
        listening = asyncio.create_task(self._listen(call))
        try:
            if self.rng.random() < OUT_OF_ORDER:
                await self._send_out_of_order(call, case)
            else:
                await self._send_in_order(call, case)
            await self._end(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            # The master has ended the stream; its status is read below.
            pass
        finally:
            await self._settle(call, listening)

    async def replay(self, case: Case) -> None:
        """Send the requests of a case on one stream."""
        call = await self._open()
        listening = asyncio.create_task(self._listen(call))
        try:
            for request in case.sent:
                await self._send(call, Case(case.target), request, 1)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            pass
        finally:
            await self._settle(call, listening)

    async def _send_in_order(self, call: Any, case: Case) -> None:
        if self.rng.random() < 0.85:
            for opener in OPENERS[self._method.path](self.messages, self.values):
                await self._send(call, case, opener.SerializeToString(), 1)
            # Answers name ids that the requests then use.
            await asyncio.sleep(LISTEN_S)
        for _ in range(self.rng.randint(1, MOST_REQUESTS)):
            request, count = self._request()
            await self._send(call, case, self._encoded(request), count)
            if self.rng.random() < 0.3:
                await asyncio.sleep(0)

    async def _send_out_of_order(self, call: Any, case: Case) -> None:
        """Send requests, and one or more legal beginnings of the stream, in any order."""
        requests = [self._request() for _ in range(self.rng.randint(1, MOST_REQUESTS))]
        encoded = [(self._encoded(request), count) for request, count in requests]
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            openers = OPENERS[self._method.path](self.messages, self.values)
            encoded += [(opener.SerializeToString(), 1) for opener in openers]
        self.rng.shuffle(encoded)
        for data, count in encoded:
            await self._send(call, case, data, count)

    async def _open(self) -> Any:
        self._seq = 0
        return (await self._connected()).stream_stream(self._method.path)()

    async def _send(self, call: Any, case: Case, request: bytes, count: int) -> None:
        case.sent.append(request)
        self.sent += count
        async with asyncio.timeout(ANSWER_S):
            await call.write(request)

    def _request(self) -> tuple[Message, int]:
        """Return a request with several messages, and their number."""
        request: Any = self.messages.message(self._method.request)
        carried = list_field(self._method.request)
        if carried is None or carried.message_type is None:
            return request, 1
        carrier = getattr(request, carried.name)
        del carrier[:]
        count = self.rng.choice((1, 10, 30, MOST_IN_REQUEST))
        for _ in range(count):
            carrier.append(drawn(self, partial(self._message, carried.message_type)))
        return request, count

    def _message(self, kind: Descriptor) -> Any:
        message: Any = self.messages.message(kind)
        if "seq" in kind.fields_by_name and self.rng.random() < 0.95:
            # Calls are numbered in ascending order, and others are not decided.
            self._seq += 1
            message.seq = self._seq
        return message

    async def _end(self, call: Any) -> None:
        way = self.rng.random()
        if way < 0.6:
            await call.done_writing()
        elif way < 0.8:
            await asyncio.sleep(LISTEN_S)

    async def _listen(self, call: Any) -> None:
        while (answer := await call.read()) is not grpc.aio.EOF:
            self._learn(answer)

    async def _settle(self, call: Any, listening: asyncio.Task[None]) -> None:
        """Read what is left for a moment, and end the stream."""
        await asyncio.wait([listening], timeout=LISTEN_S)
        is_ended = call.done()
        call.cancel()
        listening.cancel()
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await listening
        if is_ended:
            self._note(await call.code(), await call.details())
        else:
            self.answers["cancelled"] += 1


class FloodAttack(GrpcAttack):
    """Messages of legal size with as many entries of one list as fit."""

    def __init__(
        self,
        method: Method,
        master: Address,
        security: ClientSecurity | None,
        seed: int,
        name: str = "",
    ) -> None:
        super().__init__(method, master, security, seed, f" floods{name}")

    async def run(self, case: Case) -> None:
        """Send one flood, after a legal beginning of the stream."""
        opener = OPENERS.get(self._method.path)
        if opener is not None:
            case.sent.extend(
                each.SerializeToString() for each in opener(self.messages, self.values)
            )
        size = self.rng.choice((200_000, CALL_BYTES, TO_SERVER_BYTES))
        floods = [*list_floods(self._method, size), *heartbeats(self._method, size)]
        case.sent.append(self.rng.choice(floods).data)
        await self.replay(case)

    async def replay(self, case: Case) -> None:
        """Send the requests of a case as a stream."""
        call: Any = (await self._connected()).stream_stream(self._method.path)()

        async def read() -> None:
            while await call.read() is not grpc.aio.EOF:
                pass

        reading = asyncio.create_task(read())
        self.sent += len(case.sent)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                for request in case.sent:
                    await call.write(request)
                await call.done_writing()
                await reading
        is_ended = call.done()
        reading.cancel()
        call.cancel()
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await reading
        if is_ended:
            self._note(await call.code(), await call.details())


def make_floods(
    master: Address, parties: dict[str, ClientSecurity | None], seed: int
) -> list[GrpcAttack]:
    """Return the floods of each method, as each party."""
    return [
        FloodAttack(method, master, security, seed, name)
        for method in all_methods()
        if next(list_floods(method, 0), None) is not None
        for name, security in parties.items()
        if method.is_stream or name in ("", f" as {ADMIN}")
    ]


def make_attack(
    method: Method, master: Address, security: ClientSecurity | None, seed: int, name: str = ""
) -> GrpcAttack:
    """Return an attack on a method."""
    kind = StreamAttack if method.is_stream else UnaryAttack
    return kind(method, master, security, seed, name)
