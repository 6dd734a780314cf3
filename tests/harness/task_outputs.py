"""A fake of an agent's HTTP server for the output of tasks, with faults on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from tests.harness.eventually import eventually


class TaskOutputs:
    """Serves `texts[task_id, stream]`. Other output is empty if `knows_all`, else 404.

    Attributes:
        breaks: how often to cut the connection, halfway, for a task and stream.
        open_ended: tasks that still run: their streams do not end.
        status: the HTTP status of every answer.
        secret: the signature that links must have; empty if no link is required.
        on_asked: called with the path of each request.
        most: the largest number of connections that were open at once.
    """

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], bytes] = {}
        self.breaks: Counter[tuple[str, str]] = Counter()
        self.open_ended: set[str] = set()
        self.knows_all = True
        self.status = 200
        self.secret = ""
        self.on_asked: Callable[[str], None] = lambda _: None
        self.asked: list[str] = []
        self.now = self.most = 0
        self.address = ""

    async def get(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["task"], request.match_info["stream"]
        self.asked.append(request.path_qs)
        self.on_asked(request.path_qs)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._serve(request, key)
        finally:
            self.now -= 1

    async def _serve(self, request: web.Request, key: tuple[str, str]) -> web.StreamResponse:
        if self.status != 200:
            reasons = {404: "no {1} of task {0}\n", 503: "too many readers\n"}
            return web.Response(status=self.status, text=reasons[self.status].format(*key))
        signature = request.query.get("signature", "")
        if self.secret and signature != self.secret:
            return web.Response(status=403 if signature else 401)
        if key not in self.texts and not self.knows_all:
            return web.Response(status=404)
        offset = int(request.query.get("offset", "0"))
        text = self.texts.get(key, b"")[offset:]
        headers = {"Croupier-Offset": str(offset), "Croupier-Size": str(offset + len(text))}
        response = web.StreamResponse(headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        if self.breaks[key]:
            self.breaks[key] -= 1
            await response.write(text[: len(text) // 2])
            assert request.transport is not None
            await asyncio.sleep(0.01)
            request.transport.abort()
            return response
        await response.write(text)
        await eventually(lambda: key[0] not in self.open_ended, timeout_s=60)
        # Output that the task wrote while it was followed.
        await response.write(self.texts.get(key, b"")[offset + len(text) :])
        await response.write_eof()
        return response


@asynccontextmanager
async def serving_outputs() -> AsyncIterator[TaskOutputs]:
    """Serve on a free port; yield the server with its `address`."""
    outputs = TaskOutputs()
    app = web.Application()
    app.add_routes([web.get("/output/{framework}/{task}/{stream}", outputs.get)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    outputs.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield outputs
    finally:
        await runner.cleanup()
