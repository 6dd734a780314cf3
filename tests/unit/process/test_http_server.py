"""The HTTP server of each daemon, which may be loaded with its first connection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from croupier.model.errors import Unavailable
from croupier.net.address import Address
from croupier.process.clock import SystemClock
from croupier.process.http.late_server import LateHttpServer
from croupier.process.http.routes import Requirement, Route, allow_all
from croupier.process.http.server import CACHE_S, HttpServer
from croupier.process.metric_families import Family, FamilyCollector, Reading, exported_amount
from tests.harness.http_servers import listen
from tests.harness.still_clock import StillClock


class Daemon:
    """An HTTP server on a free port, with its dependencies."""

    def __init__(self) -> None:
        self.clock = StillClock()
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


# Metrics from tables: one value, values by label, and none.


def scrape(reading: Reading, labels: tuple[str, ...] = (), *, is_counter: bool = False) -> str:
    registry = CollectorRegistry()
    family: Family[None] = Family("x", "An x.", lambda _: reading, labels, is_counter)
    registry.register(FamilyCollector([family], lambda: None))
    assert not generate_latest(registry)
    sourced: Family[int] = Family("x", "An x.", lambda _: reading, labels, is_counter)
    registry = CollectorRegistry()
    registry.register(FamilyCollector([sourced], lambda: 1))
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("reading", "labels", "line"),
    [
        (3, (), "croupier_x 3.0"),
        ({"a": 1, "b": 2}, ("state",), 'croupier_x{state="b"} 2.0'),
        ({("a", "b"): 0.5}, ("one", "two"), 'croupier_x{one="a",two="b"} 0.5'),
    ],
)
def test_reading_becomes_samples(reading: Reading, labels: tuple[str, ...], line: str) -> None:
    lines = scrape(reading, labels).splitlines()
    assert lines[:2] == ["# HELP croupier_x An x.", "# TYPE croupier_x gauge"]
    assert line in lines
    assert "croupier_x_total" not in lines


def test_counter_has_the_suffix_total() -> None:
    assert "croupier_x_total 3.0" in scrape(3, is_counter=True).splitlines()


def test_no_reading_is_no_sample() -> None:
    assert scrape(None) == ""


def test_memory_and_disk_are_exported_in_bytes() -> None:
    assert exported_amount("mem", 1_000) == 1024 * 1024
    assert exported_amount("cpus", 1_500) == 1.5


# The HTTP server that is loaded with its first connection.


def make() -> HttpServer:
    guards = {Requirement.READ_METRICS: allow_all}
    return HttpServer(CollectorRegistry(), SystemClock(), lambda: None, guards=guards)


def is_loaded(late: LateHttpServer) -> bool:
    return late.server is not None


async def test_the_first_connection_loads_the_server_and_is_served() -> None:
    late = LateHttpServer(make)
    port = await late.start(Address("127.0.0.1", 0))
    assert not is_loaded(late)
    assert await fetched(port, "/readyz") == (200, "ready\n")
    assert is_loaded(late)
    assert await fetched(port, "/healthz") == (200, "ok\n")
    await late.stop()
    with pytest.raises(OSError, match="Cannot connect"):
        await fetched(port, "/healthz")


async def test_a_server_that_nothing_has_reached_stops() -> None:
    late = LateHttpServer(make)
    port = await late.start(Address("127.0.0.1", 0))
    with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
        await LateHttpServer(make).start(Address("127.0.0.1", port))
    await late.stop()
    assert not is_loaded(late)


async def test_loading_is_tried_again_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.process.http.late_server.RETRY_S", 0.01)
    failures = [OSError("Too many open files"), ImportError("no aiohttp")]

    def fail_at_first() -> HttpServer:
        if failures:
            raise failures.pop()
        return make()

    late = LateHttpServer(fail_at_first)
    port = await late.start(Address("127.0.0.1", 0))
    assert await fetched(port, "/healthz") == (200, "ok\n")
    assert not failures
    await late.stop()


def test_structlog_loads_no_rich() -> None:
    program = """
import sys
from croupier.process.logging import configure_logging, get_logger
configure_logging("text")
get_logger("x").info("said", what="it")
assert "structlog" in sys.modules and not {"rich", "pygments"} & set(sys.modules)
import rich.console
try:
    1 / 0
except ZeroDivisionError:
    get_logger("x").exception("failed")
"""
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert "ZeroDivisionError" in told.stderr
