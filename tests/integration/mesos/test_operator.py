"""Operators read the cluster and act on it by the API of Mesos."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from croupier.master.app import MasterDaemon
from croupier.mesos.fields import Json
from croupier.model.access import Action
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent
from tests.harness.mesos import RawScheduler, gateway, scalar, task
from tests.harness.secured import secured_master


class Operator:
    """Requests of an operator."""

    def __init__(self, master: MasterDaemon, http: aiohttp.ClientSession) -> None:
        self._root, self._http = f"http://{gateway(master)}", http

    async def get(self, path: str) -> Any:
        """Return the JSON of a page."""
        async with self._http.get(self._root + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def post(
        self, kind: str, fields: Json | None = None, path: str = "/api/v1"
    ) -> tuple[int, Any]:
        """Make a call, and return the status and the JSON of the answer."""
        call: Json = {"type": kind, kind.lower(): fields or {}}
        async with self._http.post(self._root + path, json=call) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def ask(self, kind: str) -> Any:
        """Return the answer to a call."""
        status, found = await self.post(kind)
        assert (status, found["type"]) == (200, kind)
        return found[kind.lower()]


@pytest.fixture
async def operator(master: MasterDaemon) -> AsyncIterator[Operator]:
    async with aiohttp.ClientSession() as http:
        yield Operator(master, http)


async def test_the_cluster_is_shown_by_calls_and_by_pages(
    master: MasterDaemon, scheduler: RawScheduler, operator: Operator
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe(roles=["dev"])
        agent_id = await agent.register(http_address="raw:5081")
        offer = await scheduler.offer()
        labels = {"labels": [{"key": "a", "value": "b"}]}
        await scheduler.accept(offer, task(offer, "t", labels=labels))
        await agent.next("launch")

        state = await operator.ask("GET_STATE")
        (found,) = state["get_agents"]["agents"]
        assert found["active"]
        assert found["agent_info"]["id"] == {"value": agent_id}
        assert found["agent_info"]["port"] == 5081
        assert found["total_resources"][0] == {**scalar("cpus", 4.0), "role": "*"}
        assert found["allocated_resources"][0] == {**scalar("cpus", 0.5), "role": "*"}
        (framework,) = state["get_frameworks"]["frameworks"]
        assert framework["framework_info"]["roles"] == ["dev"]
        assert framework["connected"]
        (one,) = state["get_tasks"]["tasks"]
        assert (one["task_id"], one["state"]) == ({"value": "t"}, "TASK_STAGING")
        assert one["labels"] == labels
        assert state["get_executors"] == {"executors": []}

        page = await operator.get("/master/state.json")
        assert page["slaves"][0]["resources"] == {"cpus": 4.0, "mem": 8192.0, "disk": 0, "gpus": 0}
        assert page["frameworks"][0]["tasks"][0]["id"] == "t"
        assert page["activated_slaves"] == 1
        assert (await operator.get("/slaves"))["slaves"] == page["slaves"]
        assert (await operator.get("/frameworks"))["frameworks"] == page["frameworks"]
        assert (await operator.get("/tasks"))["tasks"][0]["slave_id"] == agent_id
        roles = {each["name"]: each for each in (await operator.get("/roles"))["roles"]}
        assert roles["dev"]["resources"]["cpus"] == 0.5
        assert roles["dev"]["weight"] == 1.0
        metrics = await operator.get("/metrics/snapshot")
        assert metrics["master/cpus_percent"] == 0.125
        assert metrics["master/tasks_staging"] == 1.0


async def test_the_master_is_shown(operator: Operator) -> None:
    assert await operator.ask("GET_HEALTH") == {"healthy": True}
    assert await operator.ask("GET_VERSION") == {"version_info": {"version": "1.11.0"}}
    assert (await operator.ask("GET_MASTER"))["master_info"]["version"] == "1.11.0"
    values = {
        each["name"]: each["value"] for each in (await operator.ask("GET_METRICS"))["metrics"]
    }
    assert values["master/elected"] == 1.0
    assert (await operator.post("GET_ROLES", path="/api/v1/operator"))[0] == 200
    status, words = await operator.post("GET_LOGS")
    assert (status, "unknown type 'GET_LOGS'" in words) == (400, True)


async def test_agents_are_drained_and_frameworks_ended(
    master: MasterDaemon, scheduler: RawScheduler, operator: Operator
) -> None:
    async with RawAgent(master.address) as agent:
        await scheduler.subscribe()
        named = {"agent_id": {"value": await agent.register()}}
        grace = {"nanoseconds": 10**9}
        assert await operator.post("DRAIN_AGENT", {"max_grace_period": grace, **named}) == (202, "")
        assert not (await operator.ask("GET_AGENTS"))["agents"][0]["active"]
        # As long as Mesos permits, which is longer than Croupier does.
        long = {"nanoseconds": 10**40}
        assert await operator.post("DRAIN_AGENT", {"max_grace_period": long, **named}) == (202, "")
        assert await operator.post("REACTIVATE_AGENT", named) == (202, "")
        assert await operator.post("DEACTIVATE_AGENT", named) == (202, "")
        assert (await operator.get("/slaves"))["slaves"][0]["deactivated"]
        assert (await operator.post("DRAIN_AGENT", {"agent_id": {"value": "none"}}))[0] == 404
        assert (await operator.post("DRAIN_AGENT", {"mark_gone": True, **named}))[0] == 400
        teardown = {"framework_id": {"value": scheduler.framework_id}}
        assert await operator.post("TEARDOWN", teardown) == (200, "")
        await scheduler.ended()
        assert await operator.post("MARK_AGENT_GONE", named) == (202, "")
        await eventually(lambda: not master.driver.state.agents)


async def test_callers_see_what_they_may_view(tmp_path: Path) -> None:
    async with secured_master(tmp_path, mesos_listen=ANY_PORT) as secured:
        secured.allow("client/alice", [Action.REGISTER], "role:*")
        at = gateway(secured.master)
        async with RawScheduler(at, secured.token_for("client/alice").text) as alice:
            await alice.subscribe()
            async with RawScheduler(at, secured.token_for("client/eve").text) as eve:
                own, other = (
                    Operator(secured.master, alice.http),
                    Operator(secured.master, eve.http),
                )
                assert len((await own.get("/frameworks"))["frameworks"]) == 1
                assert (await other.get("/frameworks"))["frameworks"] == []
                teardown = {"framework_id": {"value": alice.framework_id}}
                assert (await other.post("TEARDOWN", teardown))[0] == 404
        async with RawScheduler(at) as nobody, nobody.http.get(f"http://{at}/state") as answer:
            assert answer.status == 401
