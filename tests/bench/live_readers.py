"""Cost of readers of live events, with 10,000 agents in the state of a real master.

    python -m tests.bench.live_readers [READERS] [AGENTS] [SECONDS]

A second process reads: each reader follows `/api/v1/watch`, and asks for the overview, the map and
the history every two seconds. Events happen at 200 a second. `lag` is the lateness of a timer of
5 ms. `busy` is the part of it that the master's own work can cause: the processor time between two
turns of the timer, less 5 ms; other processes of the machine do not disturb it. `cpu` is the part
of one processor that the master uses.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from statistics import quantiles

import aiohttp

from croupier.master.app import MasterDaemon
from croupier.master.core import facts
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Register
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, Source, TaskState
from tests.harness.eventually import eventually
from tests.harness.masters import RawFramework, running_master

READERS, AGENTS, SECONDS = 20, 10_000, 20.0
ATTRIBUTES = {f"attribute{number}": "value" for number in range(64)}
TICK_S, EVENTS_PER_S, ASK_S = 0.005, 200, 2.0
PATHS = ("overview", "heatmap", "history")


class Loop:
    """Measures the loop of the master from `start` to `result`."""

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._busy: list[float] = []
        self._cpu, self._wall = time.process_time(), time.monotonic()
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, busy = loop.time() + TICK_S, time.thread_time()
            await asyncio.sleep(TICK_S)
            self._lags.append(max(0.0, loop.time() - due))
            self._busy.append(max(0.0, time.thread_time() - busy - TICK_S))

    def result(self) -> dict[str, float]:
        """Return figures in milliseconds, and the use of the processor."""
        self._ticking.cancel()
        wall = time.monotonic() - self._wall
        return {
            "lag_p99_ms": _percentile(self._lags),
            "busy_p99_ms": _percentile(self._busy),
            "busy_max_ms": round(1000 * max(self._busy), 2),
            "cpu": round((time.process_time() - self._cpu) / wall, 3),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }


def _percentile(seconds: list[float]) -> float:
    return round(1000 * quantiles(seconds, n=100)[98], 2)


async def measure(readers: int, agents: int, seconds: float) -> None:
    """Print the figures without readers, and with them."""
    # Its agents send nothing, and must not become suspected meanwhile.
    quiet = {"heartbeat": 300.0, "agent_timeout": 3600.0}
    async with running_master(**quiet) as master, RawFramework(master.address) as framework:
        subscribed = await framework.subscribe(suppressed_roles=["*"])
        total = Resources.parse("cpus:16;mem:64GB")
        for number in range(agents):
            session, name = SessionId(10**6 + number), f"node{number}"
            event = Register(session, AgentId(""), name, total, ATTRIBUTES)
            await master.driver.inbox.put(event)
        await eventually(lambda: len(master.driver.state.agents) == agents, 120)
        happening = asyncio.create_task(_happen(master, FrameworkId(subscribed.framework_id)))
        for each in (0, readers):
            reading = await _start_readers(master, each)
            await asyncio.sleep(3.0)
            loop = Loop()
            await asyncio.sleep(seconds)
            figures = {"agents": agents, "readers": each, **loop.result()}
            if reading is not None:
                reading.terminate()
                out, _ = await reading.communicate()
                figures |= json.loads(out)
            print(json.dumps(figures), flush=True)
        happening.cancel()


async def _happen(master: MasterDaemon, framework_id: FrameworkId) -> None:
    """Record tasks that start, as the driver does."""
    journal = master.leadership.term().journal
    for number in range(10**9):
        if number % 10 == 0:
            await asyncio.sleep(10 / EVENTS_PER_S)
        task_id, agent_id = TaskId(f"task-{number}"), AgentId(f"agent-{number % 1000}")
        state, source = TaskState.RUNNING, Source.AGENT
        journal.happened(
            facts.TaskMoved(framework_id, task_id, agent_id, state, source, Reason.NONE, "")
        )


async def _start_readers(master: MasterDaemon, number: int) -> asyncio.subprocess.Process | None:
    if not number:
        return None
    argv = (sys.executable, "-m", "tests.bench.live_readers", "read", str(master.http_address))
    return await asyncio.create_subprocess_exec(*argv, str(number), stdout=asyncio.subprocess.PIPE)


async def read(address: str, number: int) -> None:
    """Read as `number` pages do until SIGTERM, and print what was read."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(15, stop.set)
    seen = {"events": 0, "overviews": 0, "asked": 0, "slowest_ms": 0.0}
    base = f"http://{address}/api/v1"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=2**20) as session:

        async def watch() -> None:
            async with session.get(f"{base}/watch?limit=1") as answer:
                async for line in answer.content:
                    seen["events"] += line.startswith(b"event: cluster")
                    seen["overviews"] += line.startswith(b"event: overview")

        async def ask(phase: float) -> None:
            await asyncio.sleep(phase)
            tags: dict[str, str] = {}
            while True:
                for path in PATHS:
                    begun = time.monotonic()
                    headers = {"If-None-Match": tags.get(path, "none")}
                    async with session.get(f"{base}/{path}", headers=headers) as answer:
                        await answer.read()
                        tags[path] = answer.headers.get("ETag", "none")
                    took_ms = round(1000 * (time.monotonic() - begun), 1)
                    seen["asked"] += 1
                    seen["slowest_ms"] = max(seen["slowest_ms"], took_ms)
                await asyncio.sleep(ASK_S)

        reading = [asyncio.create_task(watch()) for _ in range(number)]
        reading += [asyncio.create_task(ask(each * ASK_S / number)) for each in range(number)]
        await stop.wait()
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    print(json.dumps(seen))


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(sys.argv[2], int(sys.argv[3])))
    else:
        given = [float(each) for each in sys.argv[1:]]
        wanted = (*given, *(READERS, AGENTS, SECONDS)[len(given) :])
        asyncio.run(measure(int(wanted[0]), int(wanted[1]), wanted[2]))
