"""The HTTP server of each daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from croupier.model.errors import Unavailable
from croupier.net.address import Address
from croupier.process.http.routes import Requirement, Route, allow_all
from croupier.process.http.server import CACHE_S, HttpServer
from tests.harness.http_servers import listen


class Hands:
    """A clock that the test sets."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 0


class Daemon:
    """An HTTP server on a free port, with its dependencies."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.waiting: str | None = "waiting for agents"
        registry = CollectorRegistry()
        self.counter = Counter("deals", "Deals made.", registry=registry)
        self.server = HttpServer(
            registry,
            self.clock,
            lambda: self.waiting,
            [Route("/own", self.get_own, Requirement.PUBLIC)],
            guards={Requirement.READ_METRICS: allow_all},
        )
        self.port = 0

    async def get_own(self, _: web.Request) -> web.Response:
        return web.Response(text="mine")

    async def get(self, path: str) -> tuple[int, str]:
        return await fetched(self.port, path)


async def fetched(port: int, path: str) -> tuple[int, str]:
    """Return the status and the body of an answer."""
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    daemon = Daemon()
    daemon.port = await listen(daemon.server)
    yield daemon
    await daemon.server.stop()


async def test_health_and_readiness(daemon: Daemon) -> None:
    assert await daemon.get("/healthz") == (200, "ok\n")
    assert await daemon.get("/readyz") == (503, "waiting for agents\n")
    daemon.waiting = None
    assert await daemon.get("/readyz") == (200, "ready\n")


async def test_a_daemons_own_routes_and_no_others(daemon: Daemon) -> None:
    assert await daemon.get("/own") == (200, "mine")
    assert (await daemon.get("/nothing"))[0] == 404


async def test_metrics_are_rendered_at_most_once_a_second(daemon: Daemon) -> None:
    assert "deals_total 0.0" in (await daemon.get("/metrics"))[1]
    daemon.counter.inc()
    assert "deals_total 0.0" in (await daemon.get("/metrics"))[1]
    daemon.clock.at += CACHE_S
    assert "deals_total 1.0" in (await daemon.get("/metrics"))[1]


async def test_a_port_in_use_is_a_croupier_error(daemon: Daemon) -> None:
    second = Daemon()
    with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{daemon.port}"):
        await listen(second.server, Address("127.0.0.1", daemon.port))


async def test_an_unknown_host_is_a_croupier_error() -> None:
    with pytest.raises(Unavailable, match="cannot listen on no-such-host"):
        await listen(Daemon().server, Address("no-such-host.invalid", 0))
