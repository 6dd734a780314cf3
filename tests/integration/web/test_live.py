"""Events by HTTP: of the past, and live as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenId
from croupier.master.journal import watch
from croupier.master.web import events
from croupier.net.transport import make_channel
from croupier.v1 import access_pb2
from croupier.v1.access_pb2_grpc import AccessServiceStub
from tests.harness.elections import FakeElection, elected_master, leads
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, running_master
from tests.harness.secured import bearing, secured_master

Message = tuple[str, str, Any]


class Stream:
    """Server-sent events as (kind, id, data); comments are `("", "", None)`."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Message:
        kind = event_id = ""
        data = None
        async with asyncio.timeout(30):
            while line := (await self.answer.content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(": ")
                kind = value if name == "event" else kind
                event_id = value if name == "id" else event_id
                data = json.loads(value) if name == "data" else data
                if line == "\n":
                    return kind, event_id, data
        raise EOFError

    async def until(self, kind: str, word: str = "") -> Message:
        """Return the next event of a kind; of the kind `cluster`, of this word."""
        while True:
            found = await self.next()
            if found[0] == kind and (not word or found[2]["kind"] == word):
                return found


@asynccontextmanager
async def watching(
    master: MasterDaemon, query: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[Stream]:
    url = f"http://{master.http_address}/api/v1/watch{query}"
    async with (
        aiohttp.ClientSession(read_bufsize=2**20) as session,
        session.get(url, headers=headers) as answer,
    ):
        yield Stream(answer)


async def get(master: MasterDaemon, path: str) -> tuple[int, Any]:
    url = f"http://{master.http_address}/api/v1/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


async def test_events_of_the_past_and_live() -> None:
    async with running_master() as master, watching(master, "?kind=agent,term") as stream:
        assert stream.answer.content_type == "text/event-stream"
        assert "default-src 'none'" in stream.answer.headers["Content-Security-Policy"]
        kind, first_id, data = await stream.next()
        assert (kind, first_id, data["kind"]) == ("cluster", "1-1", "term-began")
        async with RawAgent(master.address) as agent:
            agent_id = await agent.register(hostname="<script>", agent_id="a1")
            _, event_id, data = await stream.until("cluster", "agent-registered")
            assert (data["agent_id"], data["id"]) == (agent_id, event_id)
        await stream.until("cluster", "agent-disconnected")
        # The same as a page, and resumed in three ways.
        status, page = await get(master, "events?limit=1&since=1-1")
        assert (status, page["items"][0]["id"], page["reset"]) == (200, "1-2", None)
        assert (await get(master, f"events?since={page['next']}"))[1]["items"][0]["id"] == "1-3"
        assert (await get(master, "events?since=1h"))[1]["items"][0]["id"] == "1-1"
        async with watching(master, headers={"Last-Event-ID": "1-1"}) as resumed:
            assert (await resumed.next())[1] == "1-2"
        for unknown in ("7-7", "nonsense"):
            async with watching(master, headers={"Last-Event-ID": unknown}) as resumed:
                kind, _, data = await resumed.next()
                assert (kind, set(data)) == ("reset", {"reset", "last_id"})
                assert (await resumed.next())[1] == "1-1"
        for wrong in ("since=x", "since=1-1-1", "limit=0", "limit=1001", "kind=nothing", "what=1"):
            for path in ("events", "watch"):
                status, answer = await get(master, f"{path}?{wrong}")
                assert (status, answer["error"]["code"]) == (400, "invalid"), wrong


async def test_the_head_of_the_stream_ends() -> None:
    """The next request on its connection is answered."""
    async with running_master() as master:
        at = master.http_address
        reader, writer = await asyncio.open_connection(at.host, at.port)
        try:
            for method in ("HEAD", "GET"):
                path = "/api/v1/watch" if method == "HEAD" else "/healthz"
                writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                async with asyncio.timeout(30):
                    head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
        finally:
            writer.close()


async def test_the_cluster_at_a_glance() -> None:
    async with (
        running_master() as master,
        RawAgent(master.address) as first,
        RawAgent(master.address) as second,
        watching(master) as stream,
    ):
        ids = sorted([await each.register(cpus=8) for each in (first, second)])
        while (data := (await stream.until("overview"))[2])["agents"] != {"connected": 2}:
            pass
        assert data["total"]["milli"]["cpus"] == data["free"]["cpus"] == 16_000
        assert (data["epoch"], data["tasks"], data["offers"]) == (1, {}, 0)
        _, overview = await get(master, "overview")
        assert overview == data
        assert overview["masters"][0]["http_address"] == f"http://{master.http_address}"
        _, heatmap = await get(master, "heatmap")
        assert [heatmap["prefix"] + each for each in heatmap["agents"]] == ids
        assert [heatmap["states"][each] for each in heatmap["state"]] == ["connected"] * 2
        assert heatmap["used"] == {"cpus": [0, 0], "mem": [0, 0]}
        _, history = await get(master, "history")
        assert set(history) == {"times_ms", "used", "shares", "others"}
        assert len(history["times_ms"]) == len(history["others"]) >= 1


async def test_a_stream_tells_that_the_leader_changed() -> None:
    election = FakeElection()
    async with elected_master(election) as master:
        status, answer = await get(master, "watch")
        assert (status, answer["error"]["code"]) == (503, "not-leader")
        await election.elect()
        await leads(master, 1)
        async with watching(master) as stream:
            await stream.next()
            await election.elect_other("10.0.0.9:5050")
            _, _, data = await stream.until("end")
            assert data["error"]["code"] == "not-leader"
            with pytest.raises(EOFError):
                await stream.next()


async def test_a_revoked_token_ends_the_stream(tmp_path: Path) -> None:
    async with secured_master(tmp_path) as secured:
        master, own = secured.master, secured.token_for("client/eve")
        status, _ = await get(master, "watch")
        assert status == 401
        headers = {"Authorization": f"Bearer {own.text}"}
        async with (
            watching(master, headers=headers) as stream,
            make_channel(master.address, bearing(secured.admin)) as channel,
        ):
            assert (await stream.next())[2]["kind"] == "term-began"
            request = access_pb2.RevokeTokenRequest(token_id=TokenId(own.token_id))
            await AccessServiceStub(channel).RevokeToken(request)
            _, _, data = await stream.until("end")
            assert data["error"]["code"] == "unauthenticated"


async def test_a_reader_that_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WRITE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(watch, "BURST_PAUSE_S", 0.0)
    async with running_master() as master:
        term = master.leadership.term()
        for _ in range(9_999):
            term.journal._add(term.journal.entry(1).what, (), "")
        reader, writer = await asyncio.open_connection(
            master.http_address.host, master.http_address.port, limit=1_000
        )
        writer.write(b"GET /api/v1/watch?since=1-0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await reader.readline()
        await eventually(lambda: len(term.readers) == 1)
        # The sockets hold some megabytes, so more happens than they can hold.
        async with asyncio.timeout(20):
            while len(term.readers):
                for _ in range(2_000):
                    term.journal._add(term.journal.entry(term.journal.last).what, (), "")
                await asyncio.sleep(0.05)
        writer.close()
