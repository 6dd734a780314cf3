"""The small HTTP server beside each daemon: metrics, health, and what a daemon adds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.rpc.address import Address

# When a series began is of no use to anybody here, and costs as much as the series.
disable_created_metrics()  # type: ignore[no-untyped-call]

# One rendering serves all who scrape within this time: it blocks the loop for about
# 20 us a series.
CACHE_S = 1.0
SHUTDOWN_S = 1.0


class HttpServer:
    """Serves `/metrics`, `/healthz`, `/readyz` and a daemon's own routes."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        ready: Callable[[], str | None],
        routes: Iterable[web.AbstractRouteDef] = (),
    ) -> None:
        """`ready` returns what the daemon still waits for, or None when it is ready."""
        self._registry, self._clock, self._ready = registry, clock, ready
        self._rendered, self._rendered_at = b"", float("-inf")
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_healthz),
                web.get("/readyz", self._get_readyz),
                *routes,
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S
        )

    async def start(self, address: Address) -> int:
        """Listen on `address` and return the port.

        Raises:
            Unavailable: if the port is taken or the host is not this machine's.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, address.host, address.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise Unavailable(f"cannot listen on {address}: {why}") from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; waits at most a second for answers under way."""
        await self._runner.cleanup()

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
