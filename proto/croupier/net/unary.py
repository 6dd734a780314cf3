"""One call to a master, with readable errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio

from croupier.model.errors import CroupierError, Unavailable
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import error_from_rpc, tls_problem
from croupier.net.task_scope import reraise_own_cancellation

# Parts of gRPC's own messages.
_NO_ADDRESS = ("errors resolving", "DNS resolution", "lookup failed", "Domain name not found")
_NO_CONNECTION = ("failed to connect", "Failed to connect", "connections to all backends failing")
_BROKEN = ("Socket closed", "Connection reset", "recvmsg", "sendmsg", "GOAWAY", "keepalive", "ping")
# Of a call that ended while gRPC's client wrote to it.
_WHILE_WRITING = "Internal error from Core"

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
# An open call that is answered by a stream.
Answering: TypeAlias = (
    grpc.aio.UnaryStreamCall[Any, ResponseT] | grpc.aio.StreamStreamCall[Any, ResponseT]
)


class NoSuchCall(Unavailable):
    """The peer does not know the call."""


async def call_master(
    method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
    request: RequestT,
    address: Address,
    timeout_s: float,
    security: ClientSecurity | None = None,
) -> ResponseT:
    """Return the answer of the master at `address`, to which the channel of `method` leads.

    `security` is that of the channel, for the messages of errors.

    Raises:
        NoSuchCall: if it is not a master, or is of an older release.
        Unavailable: if it cannot be reached or does not answer in time.
        CroupierError: if it refuses.
    """
    try:
        answer = await method(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        reraise_own_cancellation()
        raise _error(error, address, timeout_s, security) from None
    if answer is None:
        raise Unavailable(f"the master at {address} sent an answer that cannot be parsed")
    return answer


async def answers_of(
    call: Answering[ResponseT], address: Address, security: ClientSecurity | None = None
) -> AsyncGenerator[ResponseT, None]:
    """Yield a call's answers, and cancel it at the end. Raises as `call_master`."""
    try:
        async for answer in call:
            yield answer
    except grpc.aio.AioRpcError as error:
        reraise_own_cancellation()
        raise _error(error, address, 0.0, security) from None
    finally:
        call.cancel()


def _error(
    error: grpc.aio.AioRpcError, address: Address, timeout_s: float, security: ClientSecurity | None
) -> CroupierError:
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(
                f"the master at {address} did not answer within {round(timeout_s, 1):g} s"
            )
        case grpc.StatusCode.UNAVAILABLE:
            details = error.details() or ""
            problem = tls_problem(details, address, security)
            return Unavailable(problem or _plain_text(details, address))
        case grpc.StatusCode.UNIMPLEMENTED:
            return NoSuchCall(_not_a_master(address))
        case grpc.StatusCode.INTERNAL if error.details() == _WHILE_WRITING:
            return Unavailable(f"the connection to the master at {address} broke; try again")
        case _:
            return error_from_rpc(error)


def _plain_text(details: str, address: Address) -> str:
    """Return a plain message in place of gRPC's; a master's own message is kept."""
    if any(each in details for each in _NO_ADDRESS):
        return f"cannot find the host {address.host} of the master {address}"
    if "HTTP/2" in details or "HTTP2" in details:
        return _not_a_master(address)
    if any(each in details for each in _NO_CONNECTION):
        return f"cannot reach a master at {address} (is one running there?)"
    if any(each in details for each in _BROKEN):
        return f"the connection to the master at {address} broke; try again"
    return details


def _not_a_master(address: Address) -> str:
    return f"the server at {address} is not a Croupier master"
