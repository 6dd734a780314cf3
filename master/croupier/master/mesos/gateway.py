"""The routes of the gateway, and what they have in common.

A follower sends every request to the leader. A refusal for now is held for a moment: some clients
try again at once, hundreds of times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from croupier.master.leadership.leadership import Leadership
from croupier.master.mesos.credentials import mesos_credential
from croupier.master.mesos.events import VERSION
from croupier.master.mesos.operator import OperatorApi
from croupier.master.mesos.scheduler import PATH, SchedulerApi
from croupier.master.mesos.session import HOLD_S
from croupier.master.services.checks import Checks
from croupier.master.web.calls import Handlers, begin_calls
from croupier.mesos.fields import Json
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    TooSlow,
    Unauthenticated,
    Unavailable,
    shortened,
)
from croupier.net.address import Address
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.process.http.connections import HttpLimits
from croupier.process.http.routes import Guard, Handler, Requirement, Route

_STATUS: Final = (
    (InvalidRequest, 400),
    (Unauthenticated, 401),
    (PermissionDenied, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooSlow, 408),
    (Unavailable, 503),
)
# A whole call, and its head. Mesos never closes an idle connection, and some clients fail if the
# one for their calls is closed.
LIMITS: Final = HttpLimits(most_received=MAX_MESSAGE_BYTES + 64 * 1024, idle_s=24 * 3600.0)
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
        self._scheduler = SchedulerApi(leadership, checks, self._master_info)
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
            Route(PATH, self._scheduler.post, public, "POST"),
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
            return web.Response(status=status, text=str(shortened(error)), headers=headers)

    async def _guard(self, request: web.Request) -> None:
        await begin_calls(request, self._checks, self._handlers, mesos_credential)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        leader = self._leader()
        if not leader:
            known = self._leadership.leader
            raise Unavailable(
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
