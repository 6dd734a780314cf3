"""The scheduler API: `POST /api/v1/scheduler`.

Rule: a call carries the secret id of its framework's stream. With authentication on, it must also
come from the caller that subscribed, unless the SUBSCRIBE had the credential in its body: then the
stream id stands for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
from aiohttp import HttpVersion11, web

from croupier.master.access.caller import Call
from croupier.master.leadership.leadership import Leadership
from croupier.master.mesos.calls import check_form
from croupier.master.mesos.credentials import mesos_credential, secret_in
from croupier.master.mesos.session import MesosSession
from croupier.master.services.authentication import Presented
from croupier.master.services.checks import Checks, status_of
from croupier.mesos.fields import Json, id_of, parse_object, text
from croupier.model.errors import CroupierError, InvalidRequest, PermissionDenied
from croupier.model.ids import FrameworkId
from croupier.net.address import Address
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.process.http.bodies import JSON, read_body

PATH: Final = "/api/v1/scheduler"
STREAM_ID: Final = "Mesos-Stream-Id"
# Bytes of a body that are read before its sender is authenticated.
MOST_UNKNOWN: Final = 128 * 1024
_CONNECT: Final = "/croupier.v1.FrameworkService/Connect"


class SchedulerApi:
    """Serves schedulers."""

    def __init__(self, leadership: Leadership, checks: Checks, master: Callable[[], Json]) -> None:
        """Serve the term of `leadership`; `master` describes the master."""
        self._leadership, self._checks, self._master = leadership, checks, master
        self._streams: dict[str, MesosSession] = {}

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer a call."""
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
        secret = "" if "Authorization" in request.headers else secret_in(of)
        async with self._answered(call):
            await self._authenticate(call, request, secret)
            self._checks.require(call, None)
            term = self._leadership.term()
            session = term.sessions.open_session(
                MesosSession, call.caller, is_private=_is_private(request)
            )
        session.has_body_credential = bool(secret)
        guard = self._checks.stream_guard(call)
        session.begin(of, self._master(), term.driver, guard)
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
                raise PermissionDenied("the stream is another principal's")
        if stream is not None and _serves(stream, framework_id):
            return stream
        if not any(_serves(each, framework_id) for each in self._streams.values()):
            state = self._leadership.state
            if state is None or framework_id not in state.frameworks:
                raise InvalidRequest("Framework cannot be found")
            raise PermissionDenied("Framework is not subscribed")
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
            lambda: Presented.by_http(mesos_credential(request, secret)),
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


def _serves(stream: MesosSession, framework_id: FrameworkId) -> bool:
    return stream.framework_id == framework_id and not stream.outbox.is_closed


def _is_private(request: web.Request) -> bool:
    """Return whether the connection is encrypted or stays on this machine."""
    return request.secure or Address(request.remote or "", 0).is_loopback


def _accepts_json(accept: str) -> bool:
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    return any(kind in ("", "*/*", "application/*", JSON) for kind in kinds)
