"""Each route states what it requires, and requests without that are refused."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from croupier.model.errors import CroupierError, PermissionDenied, Unauthenticated, Unavailable
from croupier.net.server_tls import ServerTls, TlsFiles
from croupier.process.clock import SystemClock
from croupier.process.http.credentials import clients_only, credential_of, metrics_guard
from croupier.process.http.routes import Guard, Requirement, Route
from croupier.process.http.server import HttpServer
from tests.harness.certificates import authority
from tests.harness.http_servers import listen

TOKEN = "crp_0123abcd_" + "s" * 43
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def get_own(_: web.Request) -> web.Response:
    return web.Response(text="mine")


@asynccontextmanager
async def serving(guards: dict[Requirement, Guard]) -> AsyncIterator[str]:
    server = HttpServer(
        CollectorRegistry(),
        SystemClock(),
        lambda: None,
        [Route("/own", get_own, Requirement.OUTPUT_LINK)],
        guards=guards,
    )
    port = await listen(server)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def get(
    url: str, headers: dict[str, str] | list[tuple[str, str]] | None = None, method: str = "GET"
) -> tuple[int, str, str]:
    """Return status, challenge and text."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as answer,
    ):
        return answer.status, answer.headers.get("WWW-Authenticate", ""), await answer.text()


def refusing(error: CroupierError) -> Guard:
    async def guard(_: web.Request) -> None:
        raise error

    return guard


async def test_a_requirement_without_a_guard_is_never_met() -> None:
    async with serving({}) as url:
        for path, status in {"/metrics": 403, "/own": 403, "/healthz": 200, "/readyz": 200}.items():
            assert (await get(url + path, BEARER))[0] == status, path


async def test_a_route_that_was_added_without_a_requirement_is_refused() -> None:
    server = HttpServer(CollectorRegistry(), SystemClock(), lambda: None, guards={})
    server._app.router.add_get("/hole", get_own)
    port = await listen(server)
    try:
        assert (await get(f"http://127.0.0.1:{port}/hole"))[0] == 403
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("error", "status", "challenge"),
    [
        (Unauthenticated("who?"), 401, 'Bearer realm="croupier"'),
        (PermissionDenied("no rule"), 403, 'Bearer realm="croupier"'),
        (Unavailable("later"), 503, ""),
    ],
)
async def test_a_refusal_names_the_scheme(
    error: CroupierError, status: int, challenge: str
) -> None:
    async with serving({Requirement.READ_METRICS: refusing(error)}) as url:
        assert await get(url + "/metrics") == (status, challenge, f"{error}\n")
        assert (await get(url + "/metrics", method="HEAD"))[0] == status
        assert (await get(url + "/metrics", method="POST"))[0] == 405
        assert (await get(url + "/healthz"))[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        f"/metrics?token={TOKEN}", "/metrics?access_token=x", "/healthz?Authorization=x",
        f"/metrics?x={TOKEN}", f"/{TOKEN}", "/own?api_key=x", "/metrics?x=%63rp_0123abcd_sss",
    ],
)  # fmt: skip
async def test_a_credential_in_a_url_is_refused_and_not_logged(path: str) -> None:
    async def allow(_: web.Request) -> None:
        return

    with capture_logs() as said:
        async with serving(dict.fromkeys(Requirement, allow)) as url:
            status, _, text = await get(url + path, BEARER)
    assert (status, TOKEN in text, "header Authorization" in text) == (400, False, True)
    assert said == []


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics-token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


async def test_metrics_need_the_token_in_the_file(token_file: Path) -> None:
    guard = metrics_guard(token_file, clients_only(lambda: "test"))
    async with serving({Requirement.READ_METRICS: guard}) as url:
        metrics = url + "/metrics"
        assert (await get(metrics, BEARER))[0] == 200
        assert (await get(metrics, {"authorization": f"bearer {TOKEN}"}))[0] == 200
        for headers in (
            None,
            {"Authorization": "Bearer " + TOKEN[:-1]},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer \u00e4"},
            {"Authorization": "Basic " + TOKEN},
            [("Authorization", f"Bearer {TOKEN}")] * 2,
        ):
            status, challenge, text = await get(metrics, headers)
            assert (status, challenge) == (401, 'Bearer realm="croupier"'), headers
            assert TOKEN not in text
        # The file is read for each scrape.
        token_file.write_text("crp_0123abcd_" + "t" * 43)
        assert (await get(metrics, BEARER))[0] == 401
        token_file.unlink()
        assert (await get(metrics, BEARER))[0] == 503


# Client certificates of HTTP requests: their names count until they expire.


URI = "croupier://test/client/prometheus"


def uris(expires_in_s: float | None) -> tuple[str, ...]:
    certificate: dict[str, object] = {"subjectAltName": (("URI", URI), ("DNS", "host"))}
    if expires_in_s is None:
        certificate = {}
    else:
        at = time.gmtime(time.time() + expires_in_s)
        certificate["notAfter"] = time.strftime("%b %d %H:%M:%S %Y GMT", at)
    transport = mock.Mock()
    tls = mock.Mock()
    tls.getpeercert = lambda binary_form=False: b"der" if binary_form else certificate
    transport.get_extra_info = {"ssl_object": tls}.get
    return credential_of(make_mocked_request("GET", "/metrics", transport=transport)).uris


def test_only_a_certificate_that_is_valid_now_names_its_holder() -> None:
    assert uris(60) == (URI,)
    assert uris(-60) == ()
    assert uris(None) == ()


def test_sessions_cannot_be_resumed(tmp_path: Path) -> None:
    """A resumed session would outlive the certificate that it began with."""
    files = authority().issue(tmp_path, "agent/a1")
    context = ServerTls.load(TlsFiles(files.cert, files.key, files.ca), time.time()).http
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
