"""The gateway: the scheduler API, `POST /api/v1/scheduler`, and the routes of the operator API.

Rule: a call of a scheduler carries the secret id of its framework's stream. With authentication on,
it must also come from the caller that subscribed, unless the SUBSCRIBE had the credential in its
body: then the stream id stands for it. A secret is a bearer token, wherever it comes. Its principal
decides, not the name beside it.

A follower sends every request to the leader. A refusal for now is held for a moment: some clients
try again at once, hundreds of times a second.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
from aiohttp import HttpVersion11, web

from croupier.master.access.caller import Call
from croupier.master.leadership.leadership import Leadership
from croupier.master.mesos.calls import check_form
from croupier.master.mesos.operator import OperatorApi
from croupier.master.mesos.session import HOLD_S, MesosSession
from croupier.master.services.authentication import Presented
from croupier.master.services.checks import Checks, status_of
from croupier.master.web.calls import Handlers, begin_calls
from croupier.mesos.fields import VERSION, Json, entries, id_of, parse_object, text
from croupier.model import errors
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import FrameworkId
from croupier.net.address import Address
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.process.http.bodies import JSON, read_body
from croupier.process.http.connections import HttpLimits
from croupier.process.http.credentials import MAX_HEADER, HttpCredential, bearer_of, credential_of
from croupier.process.http.routes import Guard, Handler, Requirement, Route

STREAM_ID: Final = "Mesos-Stream-Id"
# Bytes of a body that are read before its sender is authenticated.
MOST_UNKNOWN: Final = 128 * 1024
# A whole call, and its head. Mesos never closes an idle connection, and some clients fail if the
# one for their calls is closed.
LIMITS: Final = HttpLimits(most_received=MAX_MESSAGE_BYTES + 64 * 1024, idle_s=24 * 3600.0)
_STATUS: Final = (
    (InvalidRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.PermissionDenied, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.TooSlow, 408),
    (errors.Unavailable, 503),
)
_CONNECT: Final = "/croupier.v1.FrameworkService/Connect"
_OPERATOR: Final = ("/api/v1", "/api/v1/operator", "/master/api/v1")
# What each master answers itself, so that a client can look whether it is one.
_OWN: Final = frozenset({"/version", "/master/version", "/health", "/master/health"})


class Gateway:
    """The HTTP API of Mesos at one master."""

    def __init__(
        self,
        leadership: Leadership,
        checks: Checks,
        handlers: Handlers,
        own: Address,
        leader: Callable[[], str],
    ) -> None:
        """Serve at `own`, the operator API by `handlers`, calls of gRPC.

        `leader` returns the address of the leader's gateway, if any.
        """
        self._leadership, self._own, self._leader = leadership, own, leader
        self._checks, self._handlers = checks, handlers
        self._streams: dict[str, MesosSession] = {}
        self._operator = OperatorApi(self._master_info, lambda: leadership.latest.began_ms)

    @property
    def guards(self) -> dict[Requirement, Guard]:
        """The guards of what its routes require."""
        return {Requirement.API: self._guard}

    def routes(self) -> tuple[Route, ...]:
        """Return all routes."""
        api, public = Requirement.API, Requirement.PUBLIC
        pages = [
            *((path, handler, api) for path, handler in self._operator.pages().items()),
            ("/version", self._get_version, public),
            ("/health", self._get_health, public),
            ("/redirect", self._get_redirect, public),
        ]
        return (
            # Its handler authenticates the caller: the credential may be in the body.
            Route("/api/v1/scheduler", self._post, public, "POST"),
            *(Route(path, self._operator.post, api, "POST") for path in _OPERATOR),
            *(
                Route(prefix + path, handler, requirement)
                for path, handler, requirement in pages
                for prefix in ("", "/master")
            ),
        )

    @web.middleware
    async def outer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Redirect requests to the leader, and answer errors."""
        try:
            if not self._leadership.is_leader and request.path not in _OWN:
                return await self._elsewhere(request)
            return await handler(request)
        except CroupierError as error:
            status = next((each for kind, each in _STATUS if isinstance(error, kind)), 400)
            if status == 503:
                await asyncio.sleep(HOLD_S)
            headers = {"WWW-Authenticate": 'Basic realm="croupier"'} if status == 401 else {}
            return web.Response(status=status, text=str(errors.shortened(error)), headers=headers)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        """Answer a call of a scheduler."""
        if request.content_type != JSON:
            return web.Response(status=415, text=f"Expecting 'Content-Type' of {JSON}")
        stream = self._streams.get(request.headers.get(STREAM_ID, ""))
        is_known = stream is not None or not self._checks.is_on
        call = Call(_CONNECT)
        if not is_known and "Authorization" in request.headers:
            await self._authenticate(call, request)
            is_known = True
        body = await read_body(request, MAX_MESSAGE_BYTES if is_known else MOST_UNKNOWN)
        of = parse_object(body)
        check_form(of)
        if text(of, "type") == "SUBSCRIBE":
            return await self._subscribe(request, of)
        stream = await self._stream_of(request, of)
        await stream.call(of)
        return web.Response(status=202)

    async def _subscribe(self, request: web.Request, of: Json) -> web.StreamResponse:
        if STREAM_ID in request.headers:
            raise InvalidRequest(f"Subscribe calls should not include the '{STREAM_ID}' header")
        if not _accepts_json(request.headers.get("Accept", "*/*")):
            return web.Response(status=406, text=f"Expecting 'Accept' to allow {JSON}")
        if request.version < HttpVersion11:
            raise InvalidRequest("SUBSCRIBE needs HTTP/1.1: its answer is chunked")
        call = Call(_CONNECT, size=request.content_length or 0)
        secret = "" if "Authorization" in request.headers else _secret_in(of)
        async with self._answered(call):
            await self._authenticate(call, request, secret)
            self._checks.require(call, None)
            term = self._leadership.term()
            session = term.sessions.open_session(
                MesosSession, call.caller, is_private=_is_private(request)
            )
        session.has_body_credential = bool(secret)
        guard = self._checks.stream_guard(call)
        session.begin(of, self._master_info(), term.driver, guard)
        self._streams[session.stream_id] = session
        try:
            return await session.serve(request, term.sessions.limits.first_call_s)
        finally:
            del self._streams[session.stream_id]
            term.sessions.forget(session.session_id)

    async def _stream_of(self, request: web.Request, of: Json) -> MesosSession:
        """Return the stream of a call.

        Raises:
            CroupierError: if there is none, or the caller may not use it.
        """
        framework_id = FrameworkId(id_of(of, "framework_id"))
        if not framework_id:
            raise InvalidRequest(
                "Failed to validate scheduler::Call: Expecting 'framework_id' to be present"
            )
        stream_id = request.headers.get(STREAM_ID)
        stream = self._streams.get(stream_id or "")
        if stream is None or not (
            self._checks.is_on
            and stream.has_body_credential
            and "Authorization" not in request.headers
        ):
            call = Call(_CONNECT)
            async with self._answered(call):
                await self._authenticate(call, request)
            if stream is not None and stream.caller.principal != call.caller.principal:
                raise errors.PermissionDenied("the stream is another principal's")
        if stream is not None and _serves(stream, framework_id):
            return stream
        if not any(_serves(each, framework_id) for each in self._streams.values()):
            state = self._leadership.state
            if state is None or framework_id not in state.frameworks:
                raise InvalidRequest("Framework cannot be found")
            raise errors.PermissionDenied("Framework is not subscribed")
        if stream_id is None:
            raise InvalidRequest(f"All non-subscribe calls should include the '{STREAM_ID}' header")
        raise InvalidRequest(
            "The stream ID included in this request didn't match the stream ID currently"
            f" associated with framework ID {framework_id[:255]!r}"
        )

    async def _authenticate(self, call: Call, request: web.Request, secret: str = "") -> None:
        await self._checks.authenticate(
            call,
            request.remote or "",
            lambda: Presented.by_http(_credential(request, secret)),
        )

    @asynccontextmanager
    async def _answered(self, call: Call) -> AsyncIterator[None]:
        """Count and audit a call if it is refused."""
        try:
            yield
        except CroupierError as error:
            self._checks.ended(call, status_of(error).name)
            raise
        self._checks.ended(call, grpc.StatusCode.OK.name)

    async def _guard(self, request: web.Request) -> None:
        await begin_calls(request, self._checks, self._handlers, _credential)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        leader = self._leader()
        if not leader:
            known = self._leadership.leader
            raise errors.Unavailable(
                f"{known} leads, and has no --mesos-listen" if known else "No leader elected"
            )
        return web.Response(status=307, headers={"Location": f"//{leader}{request.path_qs}"})

    async def _get_version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _get_health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _get_redirect(self, _: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"//{self._own}"})

    def _master_info(self) -> Json:
        return {
            "id": self._leadership.latest.master_id,
            "ip": 0,
            "port": self._own.port,
            "hostname": self._own.host,
            "address": {"hostname": self._own.host, "ip": self._own.host, "port": self._own.port},
            "version": VERSION,
        }


def _serves(stream: MesosSession, framework_id: FrameworkId) -> bool:
    return stream.framework_id == framework_id and not stream.outbox.is_closed


def _is_private(request: web.Request) -> bool:
    """Return whether the connection is encrypted or stays on this machine."""
    return request.secure or Address(request.remote or "", 0).is_loopback


def _accepts_json(accept: str) -> bool:
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    return any(kind in ("", "*/*", "application/*", JSON) for kind in kinds)


def _credential(request: web.Request, secret: str = "") -> HttpCredential:
    """Return the credential of a request; `secret` is that in its body.

    Raises:
        Unauthenticated: if the header Authorization is malformed.
    """
    return credential_of(request, lambda asked: _token_of(asked) or secret or None)


def _secret_in(of: Json) -> str:
    """Return the secret in a SUBSCRIBE; empty if there is none."""
    listed = entries(of, "subscribe", "credentials")
    return text(listed[0], "secret") if listed else ""


def _token_of(request: web.Request) -> str | None:
    value = request.headers.get("Authorization", "")
    if not value.lower().startswith("basic "):
        return bearer_of(request)
    if len(value) > MAX_HEADER:
        raise errors.Unauthenticated("the header Authorization is too long")
    try:
        named = base64.b64decode(value[len("basic ") :], validate=True).decode()
    except ValueError:
        raise errors.Unauthenticated("the header Authorization is malformed") from None
    return named.partition(":")[2]
