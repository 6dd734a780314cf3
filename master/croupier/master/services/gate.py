"""The gate: every call passes it before its handler, in one order.

1. authenticate the caller; 2. check its rate; 3. parse the request; 4. check what the call
requires; 5. run the handler; 6. write the audit line.

The gate reads requests itself, and `Intake` parses them. So a peer without a credential costs no
parsing, and cannot make the master hold requests that never end: 2 MiB in each of its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio

from croupier.master.access.caller import Call, begin_call
from croupier.master.access.rate_limits import Usage
from croupier.master.services.authentication import Presented
from croupier.master.services.checks import REQUIREMENTS, Checks, status_of
from croupier.master.services.intake import Intake, Read
from croupier.master.services.stream import WRITE_TIMEOUT_S, Context, host_of
from croupier.model.errors import CroupierError, InvalidRequest, TooSlow, shortened
from croupier.net.credentials import AUTHORIZATION
from croupier.net.outbox import unless_encoded

_STATUS = grpc.StatusCode
# Time for the request of a unary call to arrive, once the caller is authenticated.
REQUEST_S = 10.0
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Gate(grpc.aio.ServerInterceptor):
    """Guards the handlers of all services."""

    def __init__(self, checks: Checks) -> None:
        """Guard handlers with `checks`."""
        self._checks, self._limiter = checks, checks.limiter
        self._guarded: dict[str, MethodHandler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> MethodHandler | None:
        """Return the guarded handler of a method; None if there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        guarded = self._guarded.get(method)
        if guarded is None:
            guarded = self._guarded[method] = self._guard(method, handler)
        return guarded

    def _guard(self, method: str, handler: MethodHandler) -> MethodHandler:
        requirement = REQUIREMENTS.get(method)
        is_bulk = requirement is not None and requirement.is_bulk
        intake = Intake(handler.request_deserializer, self._limiter)
        encode: Any = handler.response_serializer
        inner: Any = handler.stream_stream or handler.unary_stream or handler.unary_unary

        # gRPC's own iterators would keep each request until the next one comes.
        async def serve_stream(_: object, context: Context) -> None:
            call = Call(method)
            async with self._answered(call, context):
                await self._authenticate(call, context)
                if is_bulk:
                    await self._checks.admit(call)
                # There is no request yet.
                self._checks.require(call, None)
                begin_call(call)
                read: Read = context.read
                requests = (
                    intake.bulk(read) if is_bulk else intake.requests(self._usage(call), read)
                )
                async with aclosing(requests):
                    await inner(requests, context)

        async def serve_unary(_: object, context: Context) -> bytes:
            call, answer = Call(method), b""
            async with (
                self._answered(call, context),
                self._asked(call, intake, context) as (request, usage),
            ):
                answer = bytes(encode(await inner(request, context)))
                if usage is not None:
                    self._limiter.answered(usage, len(answer))
            return answer

        async def serve_answers(_: object, context: Context) -> None:
            call = Call(method)
            async with (
                self._answered(call, context),
                self._asked(call, intake, context) as (request, usage),
            ):
                counted = None if is_bulk else usage
                async with aclosing(inner(request, context)) as answers:
                    async for answer in answers:
                        await self._write_answer(context, bytes(encode(answer)), counted)

        if handler.response_streaming and not handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(serve_answers)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(serve_stream, None, unless_encoded(encode))
        # As a stream, so that gRPC reads the request when it is asked for, not before.
        return grpc.stream_unary_rpc_method_handler(serve_unary)

    @asynccontextmanager
    async def _asked(
        self, call: Call, intake: Intake, context: Context
    ) -> AsyncIterator[tuple[Any, Usage | None]]:
        """Begin a call with one request, and yield the request and the usage of its caller.

        The usage is None if callers are not limited. At the end, the time for which the call has
        read the state is counted. Raises CroupierError if the call is refused, or its request does
        not arrive or is malformed.
        """
        await self._authenticate(call, context)
        usage = await self._checks.admit(call)
        try:
            data = await _one(context.read, usage)
            call.size = len(data)
            request = await intake.request(usage, data)
            self._checks.require(call, request)
            begin_call(call)
            yield request, usage
        finally:
            if usage is not None:
                self._limiter.read(usage, call.read_s)

    async def _write_answer(self, context: Context, data: bytes, usage: Usage | None) -> None:
        """Write one of many answers; `usage` counts its bytes. Raises TooSlow if it is not read."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await context.write(data)
        except TimeoutError:
            raise TooSlow(f"nothing was read for {WRITE_TIMEOUT_S:.0f} s") from None
        if usage is not None:
            self._limiter.answered(usage, len(data))

    def _usage(self, call: Call) -> Usage | None:
        """Return the usage of the caller of a stream; None: it is not limited."""
        return self._limiter.usage(call.caller.rate_key) if self._checks.is_on else None

    async def _authenticate(self, call: Call, context: Context) -> None:
        """Set the caller of the call. Raises as `Checks.authenticate`."""
        host = host_of(context.peer())
        await self._checks.authenticate(call, host, lambda: _presented(context, host))

    @asynccontextmanager
    async def _answered(self, call: Call, context: Context) -> AsyncIterator[None]:
        """End the call with the status of a CroupierError, count a refusal, and audit the call."""
        result = _STATUS.UNKNOWN.name
        try:
            try:
                yield
            except CroupierError as error:
                # The text may quote all of the request.
                refusal = shortened(call.caller.redirected(error))
                await context.abort(status_of(refusal), str(refusal))
            result = _STATUS.OK.name
        except grpc.aio.AbortError:
            code: Any = context.code()
            result = code.name
            raise
        except asyncio.CancelledError:
            result = _STATUS.CANCELLED.name
            raise
        finally:
            self._checks.ended(call, result)


async def _one(read: Read, usage: Usage | None) -> bytes:
    """Return a unary call's request, 16 of a principal at once; raises InvalidRequest, TooSlow."""
    try:
        async with asyncio.timeout(REQUEST_S):
            if usage is None:
                data = await read()
            else:
                async with usage.reading:
                    data = await read()
    except TimeoutError:
        raise TooSlow(f"the request did not arrive within {REQUEST_S:g} s") from None
    if not isinstance(data, bytes):
        raise InvalidRequest("the call has no request")
    return data


def _presented(context: Context, host: str) -> Presented:
    metadata = context.invocation_metadata() or ()
    found = tuple(str(value) for key, value in metadata if key == AUTHORIZATION)
    tls: Any = context.auth_context()
    names = tls.get("x509_subject_alternative_name", ())
    return Presented(host, found, names, b"".join(tls.get("x509_pem_cert", ())))
