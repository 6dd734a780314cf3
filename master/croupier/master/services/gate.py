"""The gate: every call passes it before its handler, in one order.

1. authenticate the caller; 2. check its rate; 3. parse the request; 4. check what the call
requires; 5. run the handler; 6. write the audit line.

The gate reads requests itself, and `Intake` parses them. So a peer without a credential costs no
parsing, and cannot make the master hold requests that never end: 2 MiB in each of its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio

from croupier.master.access.caller import Call, begin_call
from croupier.master.access.rate_limits import Usage
from croupier.master.services.authentication import Presented
from croupier.master.services.checks import Checks, status_of
from croupier.master.services.intake import Intake, Read
from croupier.master.services.redirection import as_redirected
from croupier.master.services.requirements import REQUIREMENTS, Requirement
from croupier.master.services.stream import WRITE_TIMEOUT_S, Context
from croupier.master.session_limits import host_of
from croupier.model.errors import (
    CroupierError,
    InvalidRequest,
    TooSlow,
    Unavailable,
    shortened,
)
from croupier.net.credentials import AUTHORIZATION
from croupier.net.outbox import unless_encoded

_STATUS = grpc.StatusCode
# Time for the request of a unary call to arrive, once the caller is authenticated.
REQUEST_S = 10.0
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Gate(grpc.aio.ServerInterceptor):
    """Guards the handlers of all services."""

    def __init__(self, checks: Checks) -> None:
        """Guard by `checks`."""
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
        intake = Intake(handler.request_deserializer, self._limiter)
        encode: Any = handler.response_serializer
        inner: Any = handler.stream_stream or handler.unary_stream or handler.unary_unary

        # gRPC's own iterators would keep each request until the next one comes.
        async def serve_stream(_: object, context: Context) -> None:
            call = Call(method)
            with self._audited(call, requirement, context):
                try:
                    is_bulk = await self._begin_stream(call, requirement, context)
                    usage = self._usage(call)
                    read: Read = context.read
                    requests = intake.bulk(read) if is_bulk else intake.requests(usage, read)
                    async with aclosing(requests):
                        await inner(requests, context)
                except Unavailable as error:
                    await _abort(context, as_redirected(error, call.caller))
                except CroupierError as error:
                    await _abort(context, error)

        async def serve_unary(_: object, context: Context) -> bytes:
            call, usage = Call(method), None
            with self._audited(call, requirement, context):
                try:
                    usage = await self._admit(call, context)
                    request = await self._request(call, requirement, intake, context.read, usage)
                    answer = bytes(encode(await inner(request, context)))
                except CroupierError as error:
                    await _abort(context, error)
                    raise
                finally:
                    self._note_read(call, usage)
                if usage is not None:
                    self._limiter.answered(usage, len(answer))
                return answer

        async def serve_answers(_: object, context: Context) -> None:
            call, usage = Call(method), None
            with self._audited(call, requirement, context):
                try:
                    usage = await self._admit(call, context)
                    request = await self._request(call, requirement, intake, context.read, usage)
                    counted = None if requirement is not None and requirement.is_bulk else usage
                    async with aclosing(inner(request, context)) as answers:
                        async for answer in answers:
                            await self._write_answer(context, bytes(encode(answer)), counted)
                except Unavailable as error:
                    await _abort(context, as_redirected(error, call.caller))
                except CroupierError as error:
                    await _abort(context, error)
                finally:
                    self._note_read(call, usage)

        if handler.response_streaming and not handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(serve_answers)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(serve_stream, None, unless_encoded(encode))
        # As a stream, so that gRPC reads the request when it is asked for, not before.
        return grpc.stream_unary_rpc_method_handler(serve_unary)

    async def _admit(self, call: Call, context: Context) -> Usage | None:
        """Authenticate a call with one request, and count it; None: callers are not limited.

        Raises:
            CroupierError: if it is refused.
        """
        await self._authenticate(call, context)
        return await self._checks.admit(call)

    async def _begin_stream(
        self, call: Call, requirement: Requirement | None, context: Context
    ) -> bool:
        """Begin a call with many requests; return whether it is bulk.

        Raises:
            CroupierError: if it is refused.
        """
        await self._authenticate(call, context)
        is_bulk = requirement is not None and requirement.is_bulk
        if is_bulk:
            await self._checks.admit(call)
        self._checks.require(call, requirement, None)
        begin_call(call)
        return is_bulk

    async def _request(
        self,
        call: Call,
        requirement: Requirement | None,
        intake: Intake,
        read: Read,
        usage: Usage | None,
    ) -> Any:
        """Return the request of a call that has one, and begin the call.

        Raises:
            CroupierError: if it does not arrive, is malformed, or the caller may not make it.
        """
        data = await _one(read, usage)
        call.size = len(data)
        request = await intake.request(usage, data)
        self._checks.require(call, requirement, request)
        begin_call(call)
        return request

    def _note_read(self, call: Call, usage: Usage | None) -> None:
        """Count the time for which a call that has ended has read the state."""
        if usage is not None:
            self._limiter.read(usage, call.read_s)

    async def _write_answer(self, context: Context, data: bytes, usage: Usage | None) -> None:
        """Write one of many answers; `usage` counts their bytes.

        Raises:
            TooSlow: if the caller does not read.
        """
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
        """Set the caller of the call.

        Raises:
            CroupierError: if authentication is on, and the call has no valid credential.
        """
        host = host_of(context.peer())
        await self._checks.authenticate(call, host, lambda: _presented(context, host))

    @contextmanager
    def _audited(
        self, call: Call, requirement: Requirement | None, context: Context
    ) -> Iterator[None]:
        """Count the call if it is refused, and write its audit line if it needs one."""
        result = _STATUS.UNKNOWN.name
        try:
            yield
            result = _STATUS.OK.name
        except grpc.aio.AbortError:
            code: Any = context.code()
            result = code.name
            raise
        except asyncio.CancelledError:
            result = _STATUS.CANCELLED.name
            raise
        finally:
            self._checks.ended(call, requirement, result)


async def _abort(context: Context, error: CroupierError) -> None:
    """End the call with the status of `error`."""
    # The text may quote all of the request.
    await context.abort(status_of(error), str(shortened(error)))


async def _one(read: Read, usage: Usage | None) -> bytes:
    """Return the request of a unary call; at most 16 of one principal are read at once.

    Raises:
        InvalidRequest: if there is none.
        TooSlow: if it does not arrive in time.
    """
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
