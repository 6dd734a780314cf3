"""The HTTP API of a real master, and its page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from croupier.master.app import Master
from tests.harness.masters import RawAgent, RawFramework, running_master


class Api:
    """A client of the API, a master with two agents, and a framework."""

    def __init__(
        self, master: Master, session: aiohttp.ClientSession, agents: list[str], framework: str
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
    one, two = sorted(api.agents)
    status, first, _ = await api.get("/api/v1/agents?limit=1")
    assert (status, [each["agent_id"] for each in first["items"]]) == (200, [one])
    _, second, _ = await api.get("/api/v1/agents", params={"limit": 1, "page": first["next"]})
    assert [each["agent_id"] for each in second["items"]] == [two]
    assert second["next"] is None
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
    _, master, _ = await api.get("/api/v1/master")
    assert (master["is_leader"], master["total"]["milli"]["cpus"]) == (True, 8000)


BAD_REQUESTS = (
    ("/api/v1/agents?limt=3", 400, "did you mean limit?"),
    ("/api/v1/agents?limit=x", 400, "whole number"),
    ("/api/v1/agents?limit=1001", 400, "1 to 1000"),
    ("/api/v1/agents?limit=1&limit=2", 400, "2 times"),
    ("/api/v1/agents?page=nonsense", 400, "page_token"),
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
