"""The connection of one command to the master that leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import grpc.aio

from croupier.ctl.target import Target
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.cancellation import reraise_own_cancellation
from croupier.net.errors import error_from_rpc
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

# Finding the master must fail within 5 s, with the start of the command; a large answer may
# take its time.
FIND_S = 3.5
# Who follows is asked again after so long: an election takes a few seconds.
AGAIN_S = 0.2
ANSWER_S = 30.0

# How gRPC words its own failures.
_NO_ADDRESS = ("errors resolving", "DNS resolution", "lookup failed", "Domain name not found")
_NO_CONNECTION = ("failed to connect", "Failed to connect", "connections to all backends failing")
_BROKEN = ("Socket closed", "Connection reset", "recvmsg", "sendmsg", "GOAWAY", "keepalive", "ping")

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Refused(CroupierError):
    """The master will not do what it was asked, whatever is tried again."""


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
            reraise_own_cancellation()
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                # It has answered GetMaster, so it is a master.
                older = f"the master at {self.address} is of an older release, which cannot do this"
                raise Unavailable(f"{older}; upgrade it first") from None
            raise _meaning(error, self.address, timeout_s) from None


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Master]:
    """The leading master of `target`, found within 3.5 s, be it one of those or only known to them.

    Raises:
        Unavailable: if none of them can be reached, or none leads.
    """
    async with AsyncExitStack() as stack:
        yield await _Search(stack).run(target.addresses)


class _Search:
    """Asks every master for itself and for who leads, until one says that it does."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Leave what is opened to `stack`."""
        self._stack = stack
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + FIND_S
        self._masters: dict[Address, Master] = {}
        self._asking: dict[asyncio.Task[pb.GetMasterResponse], Address] = {}
        self._errors: dict[Address, CroupierError] = {}
        # Who follows, and whom; None if there is nobody to follow.
        self._followers: dict[Address, Address | None] = {}

    async def run(self, addresses: Sequence[Address]) -> Master:
        """Begin with `addresses`.

        Raises:
            Unavailable: if there is no leader to be found.
        """
        try:
            for address in addresses:
                await self._ask(address)
            while self._asking:
                done, _ = await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    leading = await self._hear(task)
                    if leading is not None:
                        return leading
        finally:
            left = list(self._asking)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        raise self._failure(addresses)

    async def _ask(self, address: Address) -> None:
        if address in self._asking.values():
            return
        again = address in self._masters
        if not again:
            channel = await self._stack.enter_async_context(make_channel(address))
            self._masters[address] = Master(address, channel)
        elif self._until - self._loop.time() < AGAIN_S:
            return
        asking = self._introduction(self._masters[address], AGAIN_S if again else 0.0)
        self._asking[asyncio.create_task(asking)] = address

    async def _introduction(self, master: Master, after_s: float) -> pb.GetMasterResponse:
        await asyncio.sleep(after_s)
        question, left_s = master.service.GetMaster, self._until - self._loop.time()
        try:
            return await question(pb.GetMasterRequest(), timeout=left_s)
        except grpc.aio.AioRpcError as error:
            raise _meaning(error, master.address, FIND_S) from None

    async def _hear(self, task: asyncio.Task[pb.GetMasterResponse]) -> Master | None:
        """Take an answer in; the master that leads, if that is who answered."""
        address = self._asking.pop(task)
        error = task.exception()
        if isinstance(error, CroupierError):
            self._errors[address] = error
            return None
        answer = task.result()
        if answer.leader:
            return self._masters[address]
        leader = _address(answer.leader_address)
        self._followers[address] = leader
        await self._ask(address)
        if leader is not None:
            await self._ask(leader)
        return None

    def _failure(self, addresses: Sequence[Address]) -> CroupierError:
        for follower, leader in self._followers.items():
            if leader is not None and leader in self._errors:
                return Unavailable(f"{leader} leads, says {follower}, but: {self._errors[leader]}")
        if self._followers:
            who = ", ".join(map(str, self._followers))
            return Unavailable(
                f"no master leads right now, say {who}; waited {FIND_S:g} s for one to be"
                " elected; try again in a few seconds"
            )
        return next(self._errors[address] for address in addresses)


def _address(text: str) -> Address | None:
    try:
        return Address.parse(text) if text else None
    except InvalidRequest:
        return None


def _meaning(error: grpc.aio.AioRpcError, address: Address, timeout_s: float) -> CroupierError:
    details = error.details() or ""
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"the master at {address} did not answer within {timeout_s:g} s")
        case grpc.StatusCode.UNAVAILABLE:
            return Unavailable(_without_connection(details, address))
        case grpc.StatusCode.UNIMPLEMENTED:
            return Unavailable(f"what answers at {address} is not a Croupier master")
        case _:
            meaning = error_from_rpc(error)
            return Refused(str(meaning)) if isinstance(meaning, InvalidRequest) else meaning


def _without_connection(details: str, address: Address) -> str:
    """What a person is told for gRPC's own words; words of a master's are kept."""
    if any(each in details for each in _NO_ADDRESS):
        return f"cannot find the host {address.host} of the master {address}"
    if "HTTP/2" in details or "HTTP2" in details:
        return f"what answers at {address} is not a Croupier master"
    if any(each in details for each in _NO_CONNECTION):
        return f"cannot reach a master at {address} (is one running there?)"
    if any(each in details for each in _BROKEN):
        return f"the connection to the master at {address} broke; try again"
    return details
