"""Who may request what from the HTTP servers of real masters and agents."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.master.access.audit import Audit
from croupier.master.access.rate_limits import RateLimiter, RateLimits
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig
from croupier.master.core.access_records import TokenKind
from croupier.master.services.authentication import Authenticator
from croupier.master.services.checks import Checks
from croupier.model.access import Action
from croupier.model.errors import InvalidRequest, PermissionDenied, Unavailable
from croupier.net.credentials import create_token_file, make_token
from croupier.process.clock import SystemClock
from croupier.process.http.credentials import HttpCredential
from croupier.process.http.routes import Requirement
from croupier.process.tls.flags import TlsFlags
from tests.harness.agents import running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.eventually import eventually
from tests.harness.masters import running_master
from tests.harness.secured import secured_master

PUBLIC, METRICS, LINK = Requirement.PUBLIC, Requirement.READ_METRICS, Requirement.OUTPUT_LINK
# Every route of both daemons. A new route needs a line here, and a requirement.
DAEMON_ROUTES = {"/metrics": METRICS, "/healthz": PUBLIC, "/readyz": PUBLIC}
PAGE_ROUTES = {"/": PUBLIC, "/web/{path}": PUBLIC}
FIT = "/api/v1/fit"
API_PATHS = (
    "/api/v1/agents",
    "/api/v1/agents/{agent_id}",
    "/api/v1/events",
    FIT,
    "/api/v1/frameworks",
    "/api/v1/frameworks/{framework_id}",
    "/api/v1/frameworks/{framework_id}/why",
    "/api/v1/heatmap",
    "/api/v1/history",
    "/api/v1/holds",
    "/api/v1/master",
    "/api/v1/masters",
    "/api/v1/offers",
    "/api/v1/openapi.json",
    "/api/v1/overview",
    "/api/v1/reservations",
    "/api/v1/roles",
    "/api/v1/roles/{role}",
    "/api/v1/tasks",
    "/api/v1/tasks/{framework_id}/{task_id}",
    "/api/v1/tasks/{framework_id}/{task_id}/files",
    "/api/v1/tasks/{framework_id}/{task_id}/use",
    "/api/v1/tasks/{framework_id}/{task_id}/files/{path}",
    "/api/v1/tasks/{framework_id}/{task_id}/output/{stream}",
    "/api/v1/usage",
    "/api/v1/watch",
    "/api/v1/whoami",
)
API_ACTIONS = (
    "/api/v1/agents/{agent_id}/deactivate",
    "/api/v1/agents/{agent_id}/drain",
    "/api/v1/agents/{agent_id}/gone",
    "/api/v1/agents/{agent_id}/reactivate",
    "/api/v1/frameworks/{framework_id}/teardown",
    "/api/v1/holds/{hold_id}/release",
    "/api/v1/reservations/{reservation_id}/delete",
    "/api/v1/roles",
    "/api/v1/tasks/{framework_id}/{task_id}/kill",
)
MASTER_ROUTES = {
    **DAEMON_ROUTES,
    **PAGE_ROUTES,
    **dict.fromkeys((*API_PATHS, *API_ACTIONS), Requirement.API),
}
AGENT_ROUTES = {
    **DAEMON_ROUTES,
    "/output/{framework_id}/{task_id}/{stream}": LINK,
    "/usage/{framework_id}/{task_id}": LINK,
    "/files/{framework_id}/{task_id}": LINK,
}


def url_of(daemon: MasterDaemon | AgentDaemon, path: str, scheme: str = "http") -> str:
    return f"{scheme}://{daemon.http_address}{path}"


async def get(
    url: str, token: str = "", tls: ssl.SSLContext | None = None, method: str = "GET"
) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers, ssl=tls or True) as answer,
    ):
        has_challenge = "WWW-Authenticate" in answer.headers
        assert has_challenge == (answer.status in (401, 403))
        return answer.status


def trusting(files: PemFiles, *, shows: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if shows:
        context.load_cert_chain(files.cert, files.key)
    return context


def routes_of(server: Any) -> dict[str, Requirement | None]:
    """Return what each route requires that aiohttp serves."""
    found = {route.resource.canonical for route in server._app.router.routes()}
    return {path: server.routes.requirements.get(path) for path in found}


async def test_each_route_of_both_daemons_requires_what_the_table_states(tmp_path: Path) -> None:
    async with (
        running_master() as master,
        running_agent(tmp_path / "work", master.address) as agent,
    ):
        # Without authentication, every caller may scrape.
        for daemon in (master, agent):
            assert await get(url_of(daemon, "/metrics")) == 200
            assert await get(url_of(daemon, "/healthz")) == 200
        assert master._http is not None
        assert routes_of(master._http.server) == MASTER_ROUTES
        assert routes_of(agent._http.server) == AGENT_ROUTES


async def test_every_route_of_a_master_by_every_caller(tmp_path: Path) -> None:
    file_token = make_token()
    create_token_file(tmp_path / "metrics", file_token)
    options = {"metrics_token_file": tmp_path / "metrics", "audit_log": tmp_path / "audit"}
    async with secured_master(tmp_path, **options) as secured:
        secured.allow("client/scraper", [Action.READ_METRICS], "cluster")
        secured.allow("client/plain", [Action.VIEW, Action.REGISTER], "role:**")
        for group in ("admin", "operator", "viewer"):
            secured.join(group, f"client/{group}")
        expected = {
            "": 401,
            "nonsense": 401,
            make_token().text: 401,
            secured.token_for("client/scraper", expires_ms=1).text: 401,
            secured.token_for("", TokenKind.JOIN).text: 403,
            secured.token_for("client/plain").text: 403,
            secured.token_for("agent/a1", TokenKind.AGENT).text: 403,
            secured.token_for("client/scraper").text: 200,
            secured.token_for("client/viewer").text: 200,
            secured.token_for("client/operator").text: 200,
            secured.token_for("client/admin").text: 200,
            secured.admin.text: 200,
            file_token.text: 200,
        }
        for path, requirement in DAEMON_ROUTES.items():
            url = url_of(secured.master, path)
            for token, status in expected.items():
                found = await get(url, token)
                assert found == (200 if requirement is PUBLIC else status), (path, token)
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
                assert await get(url, secured.admin.text, method=method) == 405
            in_url = f"{url}?token={secured.admin.text}"
            assert await get(in_url, secured.admin.text) == 400
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    refused = [line for line in lines if line["method"] == "HTTP/metrics"]
    assert [line["result"] for line in refused] == ["UNAUTHENTICATED"] * 4 + [
        "PERMISSION_DENIED"
    ] * 3
    assert [line["principal"] for line in refused][-2:] == ["client/plain", "agent/a1"]
    assert not any(token in str(lines) for token in expected if len(token) > 10)


async def test_every_path_of_the_api_by_every_caller(tmp_path: Path) -> None:
    async with secured_master(tmp_path, audit_log=tmp_path / "audit") as secured:
        refused = {
            "": 401,
            "nonsense": 401,
            make_token().text: 401,
            secured.token_for("client/plain", expires_ms=1).text: 401,
            # Nothing but joining is for the bearer of a join token.
            secured.token_for("", TokenKind.JOIN).text: 403,
        }
        admitted = secured.token_for("client/plain").text
        methods = [("GET", path) for path in API_PATHS] + [("POST", path) for path in API_ACTIONS]
        for method, path in methods:
            url = url_of(secured.master, path.replace("{", "").replace("}", ""))
            for token, status in refused.items():
                assert await get(url, token, method=method) == status, (method, path, token)
            # A POST lacks the header that no page of another site can send; the room for tasks in
            # a role is shown to those only who may view something of it.
            known = (200, 400, 404) if method == "GET" and path != FIT else (403,)
            assert await get(url, admitted, method=method) in known, (method, path)
            for wrong in ("PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
                assert await get(url, admitted, method=wrong) == 405
            assert await get(f"{url}?access_token={admitted}", admitted) == 400
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    # One address gets few lines a second.
    refused_paths = {line["method"] for line in lines if line["result"] == "UNAUTHENTICATED"}
    assert f"HTTP{API_PATHS[0]}" in refused_paths
    assert refused_paths <= {f"HTTP{path}" for path in (*API_PATHS, *API_ACTIONS)}


async def test_a_follower_admits_certificates_of_clients_and_the_token_of_its_file(
    tmp_path: Path,
) -> None:
    authenticator = Authenticator(
        SystemClock(), lambda: None, is_on=True, trust_domain=lambda: "test"
    )
    limiter = RateLimiter(RateLimits(), SystemClock())
    checks = Checks(authenticator, lambda: None, limiter, Audit(SystemClock(), is_on=False))
    with pytest.raises(Unavailable, match="follows"):
        await checks.check_metrics_reader(HttpCredential("h", make_token().text))
    client, agent = (
        _credential_of(authority().issue(tmp_path, role), role) for role in ("client/p", "agent/p")
    )
    await checks.check_metrics_reader(client)
    with pytest.raises(PermissionDenied):
        await checks.check_metrics_reader(agent)


def _credential_of(files: PemFiles, role: str) -> HttpCredential:
    der = ssl.PEM_cert_to_DER_cert(files.cert.read_text())
    return HttpCredential("h", uris=(f"croupier://test/{role}",), certificate=der)


async def test_metrics_of_an_agent_need_a_clients_certificate_or_the_token(tmp_path: Path) -> None:
    file_token = make_token()
    create_token_file(tmp_path / "metrics", file_token)
    files = {
        name: authority().issue(tmp_path / name.replace("/", "-"), name)
        for name in ("master/m1", "agent/a1", "agent/a2", "client/prometheus")
    }
    stranger = authority("other").issue(
        tmp_path / "other", "client/prometheus", trusting=authority().pem
    )
    own = files["agent/a1"]
    tls = TlsFlags(tls_cert=own.cert, tls_key=own.key, tls_ca=own.ca)
    master_files = files["master/m1"]
    master_tls = TlsFlags(
        tls_cert=master_files.cert, tls_key=master_files.key, tls_ca=master_files.ca
    )
    async with (
        running_master(tls=master_tls) as master,
        running_agent(
            tmp_path / "work", master.address, tls=tls, metrics_token_file=tmp_path / "metrics"
        ) as agent,
    ):
        await eventually(lambda: agent.link.is_registered)
        assert agent.state.agent_id == "a1"
        metrics = url_of(agent, "/metrics", "https")
        client = files["client/prometheus"]
        assert await get(metrics, tls=trusting(client, shows=True)) == 200
        assert await get(metrics, file_token.text, trusting(client, shows=False)) == 200
        assert await get(metrics, tls=trusting(client, shows=False)) == 401
        assert await get(metrics, make_token().text, trusting(client, shows=True)) == 401
        assert await get(metrics, tls=trusting(files["agent/a2"], shows=True)) == 403
        with pytest.raises(aiohttp.ClientError):
            await get(metrics, tls=trusting(stranger, shows=True))
        # The master of this cluster signs links.
        output = url_of(agent, "/output/f/t/stdout", "https")
        assert await get(output, tls=trusting(client, shows=True)) == 401
        readyz = url_of(agent, "/readyz", "https")
        assert await get(readyz, tls=trusting(client, shows=False)) == 200


async def test_a_flag_that_nobody_could_satisfy_is_refused(tmp_path: Path) -> None:
    for config in (AgentConfig, MasterConfig):
        with pytest.raises(InvalidRequest, match="--metrics-auth on needs"):
            config(metrics_auth="on")
