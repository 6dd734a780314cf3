"""The HTTP server of each daemon: metrics, health, and the daemon's own routes.

Its connections are bounded (`connections`), a request must name this machine (`hosts`), and meet
what its route requires (`routes`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.model.log_throttle import LogThrottle
from croupier.net.server_tls import ServerTls
from croupier.process.http.connections import Connection, HttpConnections, HttpLimits
from croupier.process.http.credentials import IN_URL, has_credential_in_url, refusal
from croupier.process.http.hosts import HttpHosts
from croupier.process.http.listening import Listening
from croupier.process.http.routes import Guard, Handler, Requirement, Route, Routes
from croupier.process.logging import get_logger

# The creation time of a series has no use here, and costs as much as the series.
disable_created_metrics()  # type: ignore[no-untyped-call]

# One rendering serves all scrapes within this time: it blocks the loop for about 20 us a series.
CACHE_S = 1.0
SHUTDOWN_S = 1.0
# Seconds for which the rest of a request is read after its answer.
LINGERING_S = 2.0
MISDIRECTED = "the Host header does not name this machine (see --http-names)\n"
TOO_LARGE = "the body is too large\n"
NOT_A_PATH = "the request's target must be a path\n"
EVERY_S = 60.0
_log = get_logger("croupier.http")


class HttpServer:
    """Serves `/metrics`, `/healthz`, `/readyz` and own routes; `routes` has what each requires."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        ready: Callable[[], str | None],
        routes: Iterable[Route] = (),
        names: Iterable[str] = (),
        limits: HttpLimits | None = None,
        *,
        tls: Callable[[], ServerTls] | None = None,
        guards: Mapping[Requirement, Guard],
        outer: Iterable[Middleware] = (),
    ) -> None:
        """Make a server that does not listen yet.

        `ready` returns what the daemon still waits for, or None when it is ready. `names` are
        further ones of this machine that requests may use. `tls` returns the present certificate;
        None is plain text. Routes whose requirement has no guard deny all requests. `outer` see
        every request before its guard, and every answer, also refusals.
        """
        self._hosts, self._limits = HttpHosts(names), limits or HttpLimits()
        self._tls = None if tls is None else lambda: tls().http
        self._connections: HttpConnections | None = None
        self._registry, self._clock, self._ready = registry, clock, ready
        self._rendered, self._rendered_at = b"", float("-inf")
        self._app = web.Application(middlewares=[*outer, self._guard])
        self.routes = Routes(guards)
        self.routes.add_to(
            self._app,
            Route("/metrics", self._get_metrics, Requirement.READ_METRICS),
            Route("/healthz", self._get_healthz, Requirement.PUBLIC),
            Route("/readyz", self._get_readyz, Requirement.PUBLIC),
            *routes,
        )
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_S,
            logger=error_logger(),
            lingering_time=LINGERING_S,
            # `Connection` ends idle connections earlier, and incomplete requests too.
            keepalive_timeout=2 * self._limits.idle_s,
        )

    async def serve(self, listening: Listening) -> None:
        """Serve the connections of `listening`; `stop` closes it."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._connections = HttpConnections(self._runner.server, self._limits, self._tls)
        self._connections.accept(listening)

    async def stop(self) -> None:
        """Stop listening; wait at most a second for answers under way."""
        if self._connections is not None:
            self._connections.close()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.end()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = None if request.transport is None else request.transport.get_protocol()
        assert isinstance(connection, Connection | None)
        if connection is not None:
            connection.begin_request()
        try:
            if not request.raw_path.startswith("/"):
                # The target of a request to a proxy; it names a host other than the Host header.
                return web.Response(text=NOT_A_PATH, status=400)
            if not self._hosts.allows(request.headers.get("Host")):
                return web.Response(text=MISDIRECTED, status=421)
            if has_credential_in_url(request):
                return web.Response(text=IN_URL, status=400)
            if (request.content_length or 0) > self._limits.most_received:
                if connection is not None:
                    connection.stop_reading()
                return web.Response(text=TOO_LARGE, status=413)
            try:
                await self.routes.check(request)
            except CroupierError as error:
                return refusal(error, self.routes.requirement_of(request))
            return await handler(request)
        finally:
            if connection is not None:
                connection.end_request()

    async def _get_metrics(self, _: web.Request) -> web.Response:
        now = self._clock.now()
        if now - self._rendered_at >= CACHE_S:
            self._rendered, self._rendered_at = generate_latest(self._registry), now
        return web.Response(body=self._rendered, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_readyz(self, _: web.Request) -> web.Response:
        waiting = self._ready()
        return web.Response(text=f"{waiting or 'ready'}\n", status=503 if waiting else 200)


def error_logger() -> logging.Logger:
    """Return a logger for one aiohttp server."""
    logger = logging.Logger("croupier.http", logging.WARNING)
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.Handler):
    """Logs what aiohttp logs, as few lines of our own.

    Rule: nothing that a peer has sent is logged, and malformed requests cost one line a minute.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle(EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else record.levelname.lower()
        if not self._throttle.is_due(kind, time.monotonic()):
            return
        not_logged = self._throttle.take_suppressed()
        if isinstance(error, HttpProcessingError):
            _log.warning("http_request_malformed", kind=kind, not_logged=not_logged)
        else:
            _log.error(
                "http_request_failed", kind=kind, not_logged=not_logged, exc_info=record.exc_info
            )
