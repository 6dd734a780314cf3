"""The HTTP server that is loaded with its first connection."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from croupier.model.errors import Unavailable
from croupier.net.address import Address
from croupier.process.clock import SystemClock
from croupier.process.http.late_server import LateHttpServer
from croupier.process.http.routes import Requirement, allow_all
from croupier.process.http.server import HttpServer
from tests.unit.process.test_http_server import fetched


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
