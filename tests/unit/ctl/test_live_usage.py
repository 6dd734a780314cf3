"""The usage of a task that runs, from its agent to the command."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest
from aiohttp import web

from croupier.ctl.live_usage import LiveUse, fetch_use
from croupier.model.isolation import Limits, Usage
from croupier.net.credentials import ClientSecurity
from croupier.v1 import operator_pb2 as pb

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[pb.OutputLinks]:
    app = web.Application()
    app.router.add_get("/usage/{framework_id}/{task_id}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield pb.OutputLinks(http_address=address, usage="/usage/f1/t1")
    finally:
        await runner.cleanup()


async def fetched(body: str, status: int = 200) -> LiveUse:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    async with serving(answer) as links:
        return await fetch_use(links, ClientSecurity())


async def test_an_agent_tells_what_a_task_has_used_and_may_use() -> None:
    limits = Limits(mem=1_024_000, pids=20)
    bounds = {"memory_bytes": 2**30, "pids": 20, "cpus": 1.5, "disk_bytes": None}
    usage = asdict(Usage(1500, 2**20, 3, 4, 5, 6))
    use = await fetched(json.dumps({"usage": usage, "limits": {**bounds, "completion_ms": 1000}}))
    assert use == LiveUse(
        {
            "cpu_s": 1.5,
            "memory_peak_bytes": 2**20,
            "pids_peak": 3,
            "read_bytes": 4,
            "written_bytes": 5,
            "disk_bytes": 6,
        },
        {"mem": limits.mem, "pids": limits.pids, "cpus": 1500, "max_completion_s": 1.0},
    )


async def test_an_agent_that_measures_nothing_says_so() -> None:
    use = await fetched('{"usage": null, "limits": {"pids": 7}}')
    assert (use.usage, use.limits) == (None, {"pids": 7})
    assert "does not measure tasks" in use.problem


@pytest.mark.parametrize(
    "body",
    ["[1]", '{"usage": {"cpu_ms": -1}}', '{"usage": {"cpu_ms": "x"}}', "{", "x" * 9000,
     '{"usage": {}, "limits": [1]}', '{"usage": {"cpu_ms": 1e999}}', "[" * 4000]
)  # fmt: skip
async def test_a_false_agent_is_not_believed(body: str) -> None:
    assert await fetched(body) == LiveUse(problem="its agent answers in another form")


async def test_a_refusal_is_told() -> None:
    use = await fetched("the link expired\n", 403)
    assert use == LiveUse(problem="its agent answers the link expired")
    assert "does not know it" in (await fetched("", 404)).problem
