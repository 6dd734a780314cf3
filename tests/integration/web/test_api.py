"""The HTTP API of a real master, and its page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenKind
from croupier.master.web.errors import error_answer
from croupier.master.web.lists import ListedKind
from croupier.model.errors import NotLeader
from croupier.model.resources import Resources
from croupier.wire.resources import resources_to_wire
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.harness.secured import bearing, secured_master


class Api:
    """A client of the API, a master with two agents, and a framework."""

    def __init__(
        self,
        master: MasterDaemon,
        session: aiohttp.ClientSession,
        agents: list[str],
        framework: str,
    ) -> None:
        self.master, self._session = master, session
        self.agents, self.framework = agents, framework

    async def get(self, path: str, method: str = "GET", **more: Any) -> tuple[int, Any, Any]:
        """Return the status, the JSON and the headers of an answer."""
        url = f"http://{self.master.http_address}{path}"
        async with self._session.request(method, url, **more) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json and text else text, answer.headers

    async def post(self, path: str, body: Any = None, token: str = "") -> tuple[int, Any, Any]:
        """Return the status, the JSON and the headers of the answer to an action."""
        headers = {"X-Croupier": "1", **bearer(token)}
        return await self.get(path, "POST", json={} if body is None else body, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with (
        running_master() as master,
        RawAgent(master.address) as first,
        RawAgent(master.address) as second,
        RawFramework(master.address) as framework,
        aiohttp.ClientSession() as session,
    ):
        agents = [await each.register() for each in (first, second)]
        subscribed = await framework.subscribe(roles=["ads/prod"])
        yield Api(master, session, agents, subscribed.framework_id)


async def test_objects_by_list_and_alone(api: Api) -> None:
    async def are_offered() -> bool:
        return len((await api.get("/api/v1/offers"))[1]["items"]) == len(api.agents)

    # Nothing changes after that.
    await eventually(are_offered)
    one, two = sorted(api.agents)
    status, first, _ = await api.get("/api/v1/agents?limit=1")
    assert (status, [each["agent_id"] for each in first["items"]]) == (200, [one])
    _, second, _ = await api.get("/api/v1/agents", params={"limit": 1, "page": first["next"]})
    assert [each["agent_id"] for each in second["items"]] == [two]
    assert second["next"] is None
    status, refused, _ = await api.get(
        "/api/v1/agents", params={"text": one, "page": first["next"]}
    )
    assert (status, "with the same filters" in refused["error"]["message"]) == (400, True)
    _, alone, _ = await api.get(f"/api/v1/agents/{two}")
    assert alone == second["items"][0]
    _, roles, _ = await api.get("/api/v1/roles")
    assert [each["role"] for each in roles["items"]] == ["ads", "ads/prod"]
    assert (await api.get("/api/v1/roles/ads/prod"))[1] == roles["items"][1]
    _, framework, _ = await api.get(f"/api/v1/frameworks/{api.framework}")
    assert framework["roles"] == ["ads/prod"]
    _, why, _ = await api.get(f"/api/v1/frameworks/{api.framework}/why")
    assert why["framework"]["framework_id"] == api.framework
    _, offers, _ = await api.get("/api/v1/offers")
    assert {each["framework_id"] for each in offers["items"]} <= {api.framework}
    _, who, _ = await api.get("/api/v1/whoami")
    assert (who["is_auth_on"], "kill" in who["may"]) == (False, True)
    assert who["views_all"] == ["role", "agent", "cluster"]
    _, master, _ = await api.get("/api/v1/master")
    assert (master["is_leader"], master["total"]["milli"]["cpus"]) == (True, 8000)


BAD_REQUESTS = (
    ("/api/v1/agents?limt=3", 400, "did you mean limit?"),
    ("/api/v1/agents?limit=x", 400, "whole number"),
    ("/api/v1/agents?limit=1001", 400, "1 to 1000"),
    ("/api/v1/usage?since_ms=-5", 400, "since_ms must be a whole number of 0 or more, not '-5'"),
    ("/api/v1/usage?since_ms=2&until_ms=1", 400, "cannot end before it begins"),
    ("/api/v1/agents?limit=1&limit=2", 400, "2 times"),
    ("/api/v1/agents?page=nonsense", 400, "page is not of this list: give `next`"),
    ("/api/v1/whoami?x=1", 400, "takes none"),
    ("/api/v1/agents/none", 404, "agent 'none'"),
    ("/api/v1/tasks/a/b", 404, "task 'b' of framework 'a'"),
    ("/api/v1/roles/%00", 404, "role"),
    ("/api/v1/frameworks/none/why", 404, "none"),
    ("/api/v1/nothing", 404, "Not Found"),
)


async def test_bad_requests(api: Api) -> None:
    for path, status, message in BAD_REQUESTS:
        found, answer, headers = await api.get(path)
        assert found == status, path
        assert message in answer["error"]["message"]
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_failure_of_the_master_is_told_without_internals(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("internals")

    monkeypatch.setattr(ListedKind, "listed", fail)
    for path in ("/api/v1/agents", "/api/v1/agents?text=x"):
        with capture_logs() as logs:
            status, answer, headers = await api.get(path, headers={"Accept": "text/html"})
        (line,) = (line for line in logs if line["event"] == "api_request_failed")
        error = answer["error"]
        assert (status, error["code"], error["request_id"]) == (500, "internal", line["request_id"])
        assert line["request_id"] in error["message"]
        assert "internals" not in json.dumps(answer)
        assert (line["route"], line["kind"]) == (path.partition("?")[0], "RuntimeError")
        assert headers["X-Content-Type-Options"] == "nosniff"
        # The traceback of the same failure is not written each time.
        assert bool(line["exc_info"]) == (path == "/api/v1/agents")
    status, answer, _ = await api.get("/api/v2/agents")
    assert (status, answer["error"]["code"]) == (404, "not-found")


async def test_filters(api: Api) -> None:
    one, two = api.agents
    _, found, _ = await api.get(f"/api/v1/agents?text={two}")
    assert [each["agent_id"] for each in found["items"]] == [two]
    _, found, _ = await api.get("/api/v1/agents?state=draining,drained&state=deactivated")
    assert found["items"] == []
    _, found, _ = await api.get(
        f"/api/v1/tasks?agent={one}&role=ads&state=RUNNING&min_age=10m&max_age=1h&commands=1"
    )
    assert found == {"items": [], "next": None}
    for path, message in (
        ("/api/v1/agents?state=drained,lots", "unknown state 'lots'"),
        ("/api/v1/tasks?state=RUNING", "did you mean RUNNING?"),
        ("/api/v1/tasks?min_age=long", "not a duration"),
    ):
        status, answer, _ = await api.get(path)
        assert (status, message in answer["error"]["message"]) == (400, True)


async def test_agents_are_changed_after_a_dry_run(api: Api) -> None:
    agent = f"/api/v1/agents/{api.agents[0]}"
    for action in ("drain", "deactivate", "reactivate", "gone"):
        status, answer, _ = await api.post(f"{agent}/{action}", {"dry_run": True})
        assert (status, answer["dry_run"], answer["affected"]["tasks"]) == (200, True, 0)
    assert (await api.get(agent))[1]["drain"] is None
    status, answer, _ = await api.post(f"{agent}/drain", {"grace": "5s"})
    assert (status, answer["agent"]["drain"]["grace_s"]) == (200, 5)
    assert (await api.post(f"{agent}/reactivate"))[1]["agent"]["drain"] is None
    assert (await api.post(f"{agent}/gone"))[1]["agent"]["state"] == "gone"
    assert (await api.post(f"{agent}/drain"))[0] == 409
    assert (await api.post(f"{agent}/drain", {"dry_run": True}))[0] == 404


async def test_dry_runs_count_the_holds_that_would_end(api: Api) -> None:
    # What its framework is offered cannot be held.
    await api.post(f"/api/v1/frameworks/{api.framework}/teardown")
    async with RawAgent(api.master.address) as agent:
        resources = resources_to_wire(Resources.parse("cpus:4;disk:10GB"))
        await agent.register(resources=resources, isolation=["volumes"])
        body = {"agent": agent.agent_id, "role": "ads", "resources": "cpus:1"}
        assert (await api.post("/api/v1/holds", body))[0] == 200
        volume = {**body, "resources": "disk:1GB", "volume": True}
        assert (await api.post("/api/v1/holds", volume))[1]["hold"]["volume"]
        for action, expected in (("drain", (0, 0)), ("gone", (1, 1))):
            path = f"/api/v1/agents/{agent.agent_id}/{action}"
            affected = (await api.post(path, {"dry_run": True}))[1]["affected"]
            assert (affected["holds"], affected["volumes"]) == expected


async def test_roles_and_frameworks_are_changed_after_a_dry_run(api: Api) -> None:
    change = {"role": "ads", "weight": 2.5, "limit": "cpus:4", "min_run": "10m"}
    for dry_run in (True, False):
        body = {"changes": [change], "dry_run": dry_run}
        status, answer, _ = await api.post("/api/v1/roles", body)
        assert (status, answer["dry_run"]) == (200, dry_run)
        assert answer["roles"][0]["after"]["weight"] == 2.5
        assert answer["roles"][0]["after"]["min_run_s"] == 600
        # Not before the next answer is made.
        _, roles, _ = await api.get(f"/api/v1/roles?text=ads&limit={10 + dry_run}")
        assert roles["items"][0]["weight"] == (1 if dry_run else 2.5)
    reset = {"changes": [{"role": "ads", "reset": ["limit"]}]}
    assert (await api.post("/api/v1/roles", reset))[1]["roles"][0]["after"]["limit"]["milli"] == {}
    path = f"/api/v1/frameworks/{api.framework}"
    status, answer, _ = await api.post(f"{path}/teardown", {"dry_run": True})
    assert (status, answer["framework"]["framework_id"]) == (200, api.framework)
    assert (await api.get(path))[1]["state"] == "connected"
    assert (await api.post(f"{path}/teardown"))[1]["tasks"] == 0


BAD_BODIES: tuple[tuple[str, Any, int, str], ...] = (
    ("agents/none/drain", {}, 404, "no agent"),
    ("agents/a/drain", {"dryrun": True}, 400, "did you mean dry_run?"),
    ("agents/a/drain", {"dry_run": 1}, 400, "dry_run must be true or false"),
    ("agents/a/drain", {"grace": "soon"}, 400, "not a duration"),
    ("agents/a/drain", {"grace": "900d"}, 400, "grace"),
    ("agents/a/drain", [], 400, "must be an object"),
    ("agents/a/drain?dry_run=1", {}, 400, "takes none"),
    ("tasks/a/b/kill", {"grace": None}, 400, "grace must be a text"),
    ("frameworks/none/teardown", {"dry_run": True}, 404, "framework"),
    ("roles", {}, 400, "lacks 'changes'"),
    ("roles", {"changes": [{"role": "ads"}]}, 400, "name a setting"),
    ("roles", {"changes": [{"role": "ads", "weight": -1}]}, 400, "weight"),
    ("roles", {"changes": [{"role": "ads", "limit": "cpu=4"}]}, 400, "cpu"),
    ("roles", {"changes": [{"role": "ads", "preemption": "of"}]}, 400, "did you mean off?"),
    ("roles", {"changes": [{"role": "ads", "min_run": "25h"}]}, 400, "between 0 and 24 hours"),
    ("roles", {"changes": [{"role": "a b", "weight": 1}]}, 400, "role"),
)


async def test_bad_bodies(api: Api) -> None:
    for path, body, status, message in BAD_BODIES:
        found, answer, _ = await api.post(f"/api/v1/{path}", body)
        assert (found, message in answer["error"]["message"]) == (status, True), (path, answer)
    path, typed = f"/api/v1/agents/{api.agents[0]}/drain", {"Content-Type": "application/json"}
    for data, status in (
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 60_000, 400),
        (b'{"dry_run": NaN}', 400),
        (b" " * 70_000, 413),
    ):
        found, _, _ = await api.get(path, "POST", data=data, headers={**typed, "X-Croupier": "1"})
        assert found == status, data[:10]
    assert (await api.get(path))[0] == 405


async def test_pages_of_other_sites_change_nothing(api: Api) -> None:
    path, own = f"/api/v1/agents/{api.agents[0]}/drain", {"X-Croupier": "1"}
    for headers, status in (
        ({}, 403),
        ({**own, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**own, "Sec-Fetch-Site": "same-site"}, 403),
        ({**own, "Content-Type": "text/plain"}, 400),
        ({**own, "Sec-Fetch-Site": "same-origin"}, 200),
        ({**own, "Origin": "https://evil.example"}, 403),
        ({**own, "Origin": "null"}, 403),
        ({**own, "Origin": f"http://{api.master.http_address}"}, 200),
    ):
        headers = {"Content-Type": "application/json", **headers}
        found, _, answered = await api.get(path, "POST", data=b'{"dry_run":true}', headers=headers)
        assert found == status, headers
        assert not [name for name in answered if name.startswith("Access-Control")]


async def test_changes_need_the_permission_that_calls_by_grpc_need(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    async with (
        secured_master(tmp_path, audit_log=audit) as secured,
        aiohttp.ClientSession() as session,
    ):
        for group in ("operator", "viewer"):
            secured.join(group, f"client/{group}")
        token = secured.token_for("agent/a1", TokenKind.AGENT)
        async with RawAgent(secured.master.address, bearing(token)) as agent:
            agent_id = await agent.register()
            api = Api(secured.master, session, [agent_id], "")
            path = f"/api/v1/agents/{agent_id}"
            for name, status in (("viewer", 403), ("operator", 200), ("stranger", 403)):
                held = secured.token_for(f"client/{name}").text
                found = await api.post(f"{path}/deactivate", {"dry_run": True}, held)
                assert found[0] == (404 if name == "stranger" else status), name
                assert (await api.post(f"{path}/deactivate", {}, held))[0] == status, name
                # What the caller may not view does not exist.
                known = (await api.get(path, headers=bearer(held)))[0]
                assert known == (404 if name == "stranger" else 200)
                first = (await api.get("/api/v1/agents", headers=bearer(held)))[1]
                assert len(first["items"]) == (0 if name == "stranger" else 1)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    calls = [
        (line["principal"], line["result"])
        for line in lines
        if line["method"] == "OperatorService/DeactivateAgent"
    ]
    assert calls == [
        ("client/viewer", "PERMISSION_DENIED"),
        ("client/operator", "OK"),
        ("client/stranger", "PERMISSION_DENIED"),
    ]


async def test_what_the_caller_has_is_not_sent_again(api: Api) -> None:
    status, _, headers = await api.get("/api/v1/agents")
    assert (status, headers["Cache-Control"]) == (200, "private, no-cache")
    again = {"If-None-Match": headers["ETag"]}
    status, text, _ = await api.get("/api/v1/agents", headers=again)
    assert (status, text) == (304, "")
    assert (await api.get("/api/v1/agents", "HEAD"))[0] == 200


async def test_methods_and_bodies_that_no_route_takes(api: Api) -> None:
    status, answer, headers = await api.get("/api/v1/agents", "POST", json={})
    assert (status, answer["error"]["code"]) == (405, "method-not-allowed")
    assert headers["Allow"] == "GET,HEAD"
    # Much larger than what the server reads of a request.
    status, answer, _ = await api.get("/api/v1/agents", "POST", data=b"x" * 1_000_000)
    assert (status, answer["error"]["code"]) == (413, "too-large")


async def test_the_page_comes_with_its_policy(api: Api) -> None:
    for path in ("/", "/web/index.html"):
        status, text, headers = await api.get(path)
        assert (status, "<title>Croupier</title>" in text) == (200, True)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        again = await api.get(path, headers={"If-None-Match": headers["ETag"]})
        assert again[0] == 304
    for path in ("/web/../api.py", "/web/%2e%2e/api.py", "/web/nothing.js", "/web//etc/passwd"):
        assert (await api.get(path))[0] == 404


async def test_a_follower_names_the_page_of_the_leader() -> None:
    refused = error_answer(NotLeader("not the leader", "m1:5050"), "http://m1:5051")
    assert (refused.status, json.loads(refused.text or "")["error"]) == (
        503,
        {
            "code": "not-leader",
            "message": "not the leader",
            "leader": "m1:5050",
            "leader_http": "http://m1:5051",
        },
    )
