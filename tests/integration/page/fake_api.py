"""A server with the page and an HTTP API of made-up objects, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from croupier.master.journal.lines import matching_kinds
from tests.integration.page.cluster import HOSTILE, Cluster

STATIC = Path(str(files("croupier.master") / "web/static"))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self' %s; font-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY % "",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
OUTPUT_BYTES = 2**30
TOKEN = "crp_1_secret"
AFFECTED = {
    "tasks": 12,
    "frameworks": [{"framework_id": "f-1", "name": "web-1", "tasks": 12}],
    "named": [{"task_id": f"t-{number}"} for number in range(12)],
    "holds": 2,
    "volumes": 1,
}
LINE = (
    "\x1b[32mok\x1b[0m <script>window.hacked=1</script> \x00\x07 \u202e"
    + HOSTILE.replace("\n", "")
    + "\n"
).encode()


def _is_of(event: Any, kinds: list[str]) -> bool:
    return event["kind"] in (matching_kinds(kinds) or ())


class FakeApi:
    """Answers of the API.

    Attributes:
        cluster: what it tells about.
        needs_token: whether it refuses requests without `TOKEN`.
        leader: not empty: this server follows, and that is the leader's address.
        others: the pages of other masters, which the page may ask whether they answer.
        asked: set when the list of events was asked for while it is held back.
        posted: the path and the body of each POST.
        output_sent: bytes of output that were answered.
        stderr: of all tasks.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.needs_token, self.leader, self.others = False, "", ""
        self.asked = threading.Event()
        self._is_free, self._is_joined = asyncio.Event(), asyncio.Event()
        self._is_free.set()
        self._is_joined.set()
        may = ["operate-agents", "kill", "teardown", "change-roles"]
        self.identity = {"may": may, "views_all": ["role", "agent", "cluster"]}
        self.posted: list[tuple[str, Any]] = []
        self.output_sent, self.stderr = 0, b""
        self.watchers: list[asyncio.Queue[str | None]] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()

    def tell(self, event: str, data: Any, event_id: str = "") -> None:
        """Send an event to all watchers; from any thread."""
        text = f"event: {event}\n{f'id: {event_id}{chr(10)}' if event_id else ''}"
        self._to_watchers(f"{text}data: {json.dumps(data)}\n\n")

    def happen(self, kind: str, agent: int | None = None) -> None:
        event = self.cluster.happen(kind, agent=agent)
        self.tell("cluster", event, event["id"])

    @contextmanager
    def cut(self) -> Iterator[None]:
        """End all streams, and answer to none until the end of the block."""
        self._loop.call_soon_threadsafe(self._is_joined.clear)
        self._to_watchers(None)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_joined.set)

    @contextmanager
    def holding_events(self) -> Iterator[None]:
        """Hold answers with the list of events back, as they are when they are asked for."""
        self._loop.call_soon_threadsafe(self._is_free.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_free.set)

    def _to_watchers(self, text: str | None) -> None:
        def put() -> None:
            for each in self.watchers:
                each.put_nowait(text)

        self._loop.call_soon_threadsafe(put)

    @contextmanager
    def running(self) -> Iterator[FakeApi]:
        ready, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            app = web.Application(middlewares=[self._checked])
            app.router.add_get("/", self._page)
            app.router.add_get("/web/{path:.+}", self._static)
            app.router.add_get("/api/v1/{path:[^?]+}", self._get)
            app.router.add_post("/api/v1/{path:[^?]+}", self._post)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await stop.wait()
            for each in self.watchers:
                each.put_nowait(None)
            await runner.cleanup()

        thread = threading.Thread(target=lambda: self._loop.run_until_complete(serve()))
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            self._loop.close()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        is_api = request.path.startswith("/api/")
        is_anonymous = self.needs_token and "Authorization" not in request.headers
        if is_api and self.leader and not is_anonymous:
            told = {"code": "not-leader", "message": "this master follows"}
            return self._json({"error": {**told, "leader_http": self.leader}}, 503)
        has_token = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if is_api and self.needs_token and not has_token:
            told = {"code": "unauthenticated", "message": "the token is not known"}
            return self._json({"error": told}, 401)
        answer: web.StreamResponse = await handler(request)
        return answer

    def _json(self, value: Any, status: int = 200) -> web.Response:
        answer = web.json_response(value, status=status, headers=HEADERS)
        answer.enable_compression()
        return answer

    async def _page(self, _: web.Request) -> web.StreamResponse:
        policy = {"Content-Security-Policy": POLICY % self.others}
        return web.FileResponse(STATIC / "index.html", headers={**HEADERS, **policy})

    async def _static(self, request: web.Request) -> web.StreamResponse:
        answer = web.FileResponse(STATIC / request.match_info["path"], headers=HEADERS)
        answer.enable_compression()
        return answer

    async def _post(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["X-Croupier"] == "1"
        body = await request.json()
        path = request.match_info["path"]
        self.posted.append((path, body))
        parts, cluster = path.split("/"), self.cluster
        if parts[0] == "agents":
            agent = next(each for each in cluster.agents if each["agent_id"] == parts[1])
            if not body["dry_run"]:
                agent["deactivated"] = parts[2] != "reactivate"
            return self._json({"agent": agent, "affected": AFFECTED, "dry_run": body["dry_run"]})
        if parts[0] == "roles":
            before = next(
                each for each in cluster.roles if each["role"] == body["changes"][0]["role"]
            )
            after = {**before, "weight": body["changes"][0].get("weight", 1), "entitlement": 0.2}
            moved = {"role": before["role"], "before": before, "after": after}
            return self._json({"roles": [moved], "others": 2, "dry_run": body["dry_run"]})
        if parts[0] == "tasks":
            return self._json({"dry_run": body["dry_run"], "task": cluster.tasks[0]})
        return self._json({"dry_run": body["dry_run"], "affected": AFFECTED})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        # An id may hold an encoded slash.
        parts = [unquote(part) for part in request.rel_url.raw_path.split("/")[3:]]
        cluster = self.cluster
        match parts:
            case ["watch"]:
                await self._is_joined.wait()
                return await self._watch(request)
            case ["tasks", _, _, "output", name]:
                return await self._output(request, name)
            case ["tasks", _, _, "files", *_]:
                folder = {"name": "logs", "kind": "directory", "size": 0, "modified_ms": 0}
                file = {"name": "result<b>.bin", "kind": "file", "size": 5e9, "modified_ms": 1}
                return self._json({"items": [folder, file], "cut": False})
            case ["whoami"]:
                name = "alice" if self.needs_token else ""
                return self._json({"principal": name, **self.identity})
            case ["master"]:
                told = {"is_leader": True, "epoch": cluster.epoch, "version": "0.1.0"}
                told |= {"master_id": "m1", "leader_address": None}
                return self._json({**told, "total": cluster.overview()["total"]})
            case ["events" | "fit" | "usage" as name]:
                answer: web.StreamResponse = await getattr(self, f"_{name}")(request)
                return answer
            case ["overview" | "heatmap" | "history" | "masters" as name]:
                return self._json(getattr(cluster, name)())
            case ["frameworks", framework_id, "why"]:
                return self._json(
                    cluster.why(self._one("frameworks", "framework_id", framework_id))
                )
            case [kind]:
                return self._page_of(kind, request)
            case ["agents", agent_id]:
                return self._json(self._one("agents", "agent_id", agent_id))
            case ["frameworks", framework_id]:
                return self._json(self._one("frameworks", "framework_id", framework_id))
            case ["tasks", _, task_id, *use]:
                task = self._one("tasks", "task_id", task_id)
                return self._json(cluster.use(task) if use else task)
        return self._json({"error": {"code": "not-found", "message": "no such object"}}, 404)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        kinds = request.query.getall("kind", [])
        named = [each for each in self.cluster.events if not kinds or _is_of(each, kinds)]
        answer = self._json({"items": named[-int(request.query["limit"]) :]})
        if not self._is_free.is_set():
            self.asked.set()
            await self._is_free.wait()
        return answer

    async def _fit(self, request: web.Request) -> web.StreamResponse:
        if request.query["unit"] == "nothing":
            told = {"code": "invalid-request", "message": "unit is no amount"}
            return self._json({"error": told}, 400)
        return self._json(self.cluster.fit(7 + ("role" in request.query)))

    async def _usage(self, request: web.Request) -> web.StreamResponse:
        return self._json(self.cluster.usage(request.query["by"]))

    def _one(self, kind: str, key: str, value: str) -> Any:
        return next(each for each in getattr(self.cluster, kind) if each[key] == value)

    def _page_of(self, kind: str, request: web.Request) -> web.Response:
        items = getattr(self.cluster, kind)
        asked = request.query
        text = asked.get("text", "")
        key = {"framework": "framework_id", "agent": "agent_id", "state": "state", "role": "role"}
        kept = [
            each
            for each in items
            if text in json.dumps(each)
            and all(
                each.get(of) in asked[name].split(",") for name, of in key.items() if name in asked
            )
        ]
        limit, first = int(asked["limit"]), int(asked.get("page") or 0)
        more = str(first + limit) if first + limit < len(kept) else None
        return self._json({"items": kept[first : first + limit], "next": more})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.watchers.append(queue)
        try:
            await answer.write(b": hello\n\n")
            if "Last-Event-ID" not in request.headers:
                for event in self.cluster.events[-20:]:
                    text = f"event: cluster\nid: {event['id']}\ndata: {json.dumps(event)}\n\n"
                    await answer.write(text.encode())
            while (told := await queue.get()) is not None:
                await answer.write(told.encode())
        except ConnectionError:
            pass  # The page went elsewhere.
        finally:
            self.watchers.remove(queue)
        return answer

    async def _output(self, request: web.Request, name: str) -> web.StreamResponse:
        """Answer as for an output of a gigabyte."""
        size = len(self.stderr) if name == "stderr" else OUTPUT_BYTES
        part = min(size, int(request.query["tail_bytes"]))
        assert part <= 2**20, "the page must not ask for all of it"
        told = {"Croupier-Offset": str(size - part), "Croupier-Size": str(size)}
        answer = web.StreamResponse(headers={**HEADERS, **told})
        await answer.prepare(request)
        self.output_sent += part
        line = self.stderr if name == "stderr" else LINE
        await answer.write((line * (part // len(line) + 1))[-part:] if part else b"")
        if "follow" in request.query:
            await answer.write(b"a line that follows\n")
            queue: asyncio.Queue[str | None] = asyncio.Queue()
            self.watchers.append(queue)
            while await queue.get() is not None:
                pass
        return answer
