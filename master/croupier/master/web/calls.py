"""Calls of gRPC's services, made for an HTTP request by its caller.

Each call passes the checks that the gate makes of calls by gRPC: what it requires, its objects,
and its audit line. The caller is authenticated, and its rate is checked, once for the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
from aiohttp import web

from croupier.master.access.caller import Call, Caller, CredentialKind, begin_call
from croupier.master.access.rate_limits import Usage
from croupier.master.services.authentication import Presented
from croupier.master.services.checks import Checks, status_of
from croupier.master.services.stream import Context
from croupier.model.access import Permissions
from croupier.model.errors import CroupierError, PermissionDenied
from croupier.process.http.credentials import HttpCredential, credential_of
from croupier.v1 import access_pb2, operator_pb2

_PACKAGE: Final = "/croupier.v1."
OPERATOR: Final = operator_pb2.DESCRIPTOR.services_by_name["OperatorService"]
ACCESS: Final = access_pb2.DESCRIPTOR.services_by_name["AccessService"]
Handlers = Mapping[str, Callable[[Any, Context], Any]]


@dataclass(frozen=True, slots=True)
class _Peer:
    """The part of a gRPC context that handlers use."""

    host: str

    def peer(self) -> str:
        """Return where the call comes from, as gRPC writes it."""
        return f"http:{self.host}"


def handlers_of(operator: object, access: object) -> dict[str, Callable[[Any, Context], Any]]:
    """Return the handlers of two services by their names, such as `ListTasks`."""
    return {
        method.name: getattr(service, method.name)
        for service, described in ((operator, OPERATOR), (access, ACCESS))
        for method in described.methods
    }


def full_name(method: str) -> str:
    """Return the full name of a method, such as `/croupier.v1.OperatorService/ListTasks`."""
    service = OPERATOR if method in OPERATOR.methods_by_name else ACCESS
    return f"{_PACKAGE}{service.name}/{method}"


class Calls:
    """The calls of one HTTP request, which `caller` makes."""

    def __init__(
        self, checks: Checks, handlers: Handlers, caller: Caller, usage: Usage | None
    ) -> None:
        self.caller = caller
        self._checks, self._handlers, self._usage = checks, handlers, usage

    @property
    def permissions(self) -> Permissions | None:
        """The caller's permissions; None while this master follows."""
        return self._checks.permissions(self.caller.principal)

    async def ask(self, method: str, request: Any) -> Any:
        """Call a unary method, such as `ListTasks`; raises CroupierError if it is refused."""
        with self._checked(method, request) as context:
            return await self._handlers[method](request, context)

    async def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        """Call a method that answers with a stream, and yield its answers; raises as `ask`."""
        with self._checked(method, request) as context:
            async with aclosing(self._handlers[method](request, context)) as answers:
                async for answer in answers:
                    yield answer

    def answered(self, size: int) -> None:
        """Count an answer of `size` bytes."""
        if self._usage is not None:
            self._checks.limiter.answered(self._usage, size)

    @contextmanager
    def _checked(self, method: str, request: Any) -> Iterator[Context]:
        call = Call(full_name(method), self.caller, size=request.ByteSize())
        result = grpc.StatusCode.UNKNOWN.name
        try:
            self._checks.require(call, request)
            begin_call(call)
            yield cast("Context", _Peer(self.caller.host))
            result = grpc.StatusCode.OK.name
        except CroupierError as error:
            result = status_of(error).name
            raise
        except (asyncio.CancelledError, GeneratorExit):
            result = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            if self._usage is not None:
                self._checks.limiter.read(self._usage, call.read_s)
            self._checks.ended(call, result)


# The calls of the request that this task handles; absent if a guard refused it.
CALLS: Final = ContextVar[Calls]("croupier_http_calls")


async def begin_calls(
    request: web.Request,
    checks: Checks,
    handlers: Handlers,
    credential: Callable[[web.Request], HttpCredential] = credential_of,
) -> None:
    """Authenticate the caller of a request, and check its rate, as the gate of gRPC does.

    The task of the request has its calls in `CALLS` from then on. Raises CroupierError if it is
    refused.
    """
    resource = request.match_info.route.resource
    call = Call(f"HTTP{'' if resource is None else resource.canonical}")
    host = request.remote or ""
    try:
        await checks.authenticate(call, host, lambda: Presented.by_http(credential(request)))
        usage = await checks.admit(call)
        if call.caller.kind is CredentialKind.JOIN:
            raise PermissionDenied("a join token is for joining only")
    except CroupierError as error:
        checks.ended(call, status_of(error).name)
        raise
    CALLS.set(Calls(checks, handlers, call.caller, usage))
