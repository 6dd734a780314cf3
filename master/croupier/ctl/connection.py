"""The connection of one command to the master that leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import grpc.aio

from croupier.ctl.target import Target
from croupier.model.errors import CroupierError, Unavailable
from croupier.rpc.address import Address
from croupier.rpc.transport import make_channel
from croupier.rpc.wire_errors import error_from_rpc
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

# Finding the master must fail soon; a large answer may take its time.
FIND_S = 4.0
ANSWER_S = 30.0

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Master:
    """A master that answered, and `service` to choose questions for `ask` from."""

    def __init__(self, address: Address, channel: grpc.aio.Channel) -> None:
        """Ask by `channel`, which leads to `address`."""
        self.address = address
        self.service = OperatorServiceStub(channel)

    async def ask(
        self,
        question: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float = ANSWER_S,
    ) -> ResponseT:
        """The master's answer.

        Raises:
            Unavailable: if it cannot be reached or does not answer in time.
            CroupierError: if it refuses.
        """
        try:
            return await question(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _meaning(error, self.address, timeout_s) from None


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Master]:
    """The leading master of `target`, found within 4 s.

    Raises:
        Unavailable: if none of them can be reached.
    """
    async with AsyncExitStack() as stack:
        masters = [
            Master(address, await stack.enter_async_context(make_channel(address)))
            for address in target.addresses
        ]
        yield await _leading(masters)


async def _leading(masters: Sequence[Master]) -> Master:
    answers = await asyncio.gather(*(_introduction(master) for master in masters))
    answered = [
        (master, answer)
        for master, answer in zip(masters, answers, strict=True)
        if isinstance(answer, pb.GetMasterResponse)
    ]
    if not answered:
        raise next(answer for answer in answers if isinstance(answer, CroupierError))
    return next((master for master, answer in answered if answer.leader), answered[0][0])


async def _introduction(master: Master) -> pb.GetMasterResponse | CroupierError:
    try:
        return await master.ask(master.service.GetMaster, pb.GetMasterRequest(), FIND_S)
    except CroupierError as error:
        return error


def _meaning(error: grpc.aio.AioRpcError, address: Address, timeout_s: float) -> CroupierError:
    details = error.details() or ""
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"the master at {address} did not answer within {timeout_s:g} s")
        case grpc.StatusCode.UNAVAILABLE if "connect" in details or "DNS" in details:
            return Unavailable(f"cannot reach a master at {address} (is one running there?)")
        case grpc.StatusCode.UNIMPLEMENTED:
            return Unavailable(f"what answers at {address} is not a Croupier master")
        case _:
            return error_from_rpc(error)
