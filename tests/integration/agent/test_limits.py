"""Limits of disk and time on a real agent, and the usage in the last update."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import Any

import aiohttp

from croupier.agent.app import AgentDaemon
from croupier.model.task import Reason, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.processes import is_running
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.integration.agent.conftest import Serving

RUNNING, FINISHED, FAILED = TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED
MIB = 1 << 20
# Files of 400 KiB each, below any limit of file sizes.
FILL = "for n in 1 2 3 4 5 6 7 8; do head -c 400k /dev/zero > f$n; done; sleep 600"


async def test_a_task_that_fills_its_sandbox_is_ended(
    serving: Serving, master: ScriptedMaster
) -> None:
    small = "cpus:0.1;mem:16;disk:1"
    master.launch(shell("filler", FILL, small), shell("honest", "sleep 600", small))
    end = await master.state("filler", FAILED)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert re.search(r"disk limit of 1.0 MiB exceeded; peak [1-3]\.\d MiB", end.message)
    assert end.usage.disk_bytes > MIB
    assert master.states("honest")[-1] is RUNNING


async def test_a_task_that_does_not_complete_in_time_is_ended(
    serving: Serving, master: ScriptedMaster
) -> None:
    line = "trap '' TERM; while :; do sleep 0.1; done"
    master.launch(shell("slow", line, grace_ms=200, max_completion_ms=500))
    end = await master.state("slow", FAILED)
    assert Reason(end.reason) is Reason.TIMED_OUT
    assert end.message == "it did not complete within 0.500 s; ended by signal 9 (SIGKILL)"
    assert not is_running(end.pid)


async def test_the_last_update_tells_the_usage(serving: Serving, master: ScriptedMaster) -> None:
    line = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; head -c 100k /dev/zero > f"
    master.launch(shell("busy", line, "cpus:0.1;mem:16;disk:10"))
    end = await master.state("busy", FINISHED)
    assert end.usage.cpu_ms > 0
    assert 100_000 < end.usage.memory_peak_bytes < 100 * MIB
    assert 100 * 1024 <= end.usage.disk_bytes < MIB


async def test_limits_hold_after_kill_9_of_the_agent(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    waits = "while ! [ -e ../go ]; do sleep 0.05; done; "
    master.launch(
        shell("slow", "sleep 600", max_completion_ms=3_000),
        shell("filler", waits + FILL, "cpus:0.1;mem:16;disk:1"),
    )
    for name in ("slow", "filler"):
        await master.state(name, RUNNING)
    process.signal(signal.SIGKILL)
    await process.ended()
    (next((process.work_dir / "sandboxes").iterdir()) / "go").touch()
    process.start()
    for name, reason in (("slow", Reason.TIMED_OUT), ("filler", Reason.DISK_LIMIT)):
        end = await master.state(name, FAILED)
        assert Reason(end.reason) is reason, end.message


async def fetched(agent: AgentDaemon, path: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{agent.http_address}{path}") as answer,
    ):
        assert answer.status != 200 or answer.headers["Cache-Control"] == "no-store"
        return answer.status, await (answer.json() if answer.status == 200 else answer.text())


async def test_the_usage_of_a_live_task_is_served_with_its_limits(
    serving: Serving, master: ScriptedMaster
) -> None:
    line = "head -c 300k /dev/zero > f; while ! [ -e go ]; do sleep 0.05; done"
    master.launch(shell("t1", line, "cpus:0.1;mem:16;disk:2", max_completion_ms=90_000))
    await master.state("t1", RUNNING)

    async def has_size() -> bool:
        status, view = await fetched(serving.agent, f"/usage/{F}/t1")
        assert status == 200
        assert view["state"] == "RUNNING"
        assert view["limits"]["disk_bytes"] == 2 * MIB
        assert view["limits"]["completion_ms"] == 90_000
        return bool(view["usage"]["disk_bytes"] >= 300 * 1024)

    for _ in range(200):
        if await has_size():
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError("the sandbox was not measured")
    for path, status in ((f"/usage/{F}/none", 404), ("/usage/a%20b/t1", 400), ("/usage/x", 404)):
        assert (await fetched(serving.agent, path))[0] == status
