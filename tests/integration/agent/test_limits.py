"""Limits of disk and time on a real agent, evasions of them, and the usage in the last update."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.recover import clean_up
from croupier.model.isolation import NO_LIMITS, Limits
from croupier.model.task import Reason, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.harness.small_disks import beside, on_small_disk, seen_by
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
    await master.state("honest", RUNNING)
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


SMALL = "cpus:0.1;mem:16;disk:1"
# Files of 400 KiB each, below any limit of file sizes.
UNLINKED = (
    "exec 3>a 4>b 5>c 6>d; rm a b c d;"
    " for n in 3 4 5 6; do head -c 400k /dev/zero >&$n; done; sleep 600"
)
MANY = "seq 12000 | xargs touch; sleep 600"
# 1 MiB each.
GROW = "n=0; while :; do n=$((n+1)); head -c 1m /dev/zero >f$n; sleep 0.1; done"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (UNLINKED, "disk limit of 1.0 MiB exceeded; peak 1."),
        (MANY, "limit of 10000 files exceeded, for a disk limit of 1.0 MiB"),
    ],
)
async def test_a_task_that_evades_its_limit_is_ended(
    serving: Serving, master: ScriptedMaster, line: str, says: str
) -> None:
    master.launch(shell("evader", line, SMALL), shell("honest", "sleep 600", SMALL))
    # Thousands of files take long to make and to measure beside other tests.
    end = await master.state("evader", FAILED, 60.0)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert says in end.message
    await master.state("honest", RUNNING)
    assert master.states("honest")[-1] is RUNNING


async def test_temporary_files_are_in_the_sandbox(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    line = 'test "$(dirname $(mktemp))" = "$CROUPIER_SANDBOX" && mktemp -u -p ""'
    master.launch(shell("t1", line), shell("t2", "echo $TMPDIR"))
    await master.state("t1", FINISHED)
    await master.state("t2", FINISHED)
    (box,) = (tmp_path / "work/sandboxes").glob("*/t2")
    assert (box / "stdout").read_text().strip() == str(box)


def free_mib(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize >> 20


@pytest.fixture
async def prepared(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """Prepare an agent on a disk of 64 MiB of its own."""
    disk = tmp_path / "disk"
    resources = "cpus:4;mem:64MB;disk:64MB"
    agent = AgentProcess(master.address, disk / "work", tmp_path / "agent.log", resources)
    agent.prefix = on_small_disk(disk, "64m")
    yield agent
    # The disk is seen by the agent and its tasks only; a descriptor of it outlives the agent.
    work = os.open(seen_by(agent.pid, disk / "work"), os.O_RDONLY)
    # Its tasks are not found by their paths from here.
    tasks = set(beside(agent.pid)) - {agent.pid}
    assert os.getpid() not in tasks
    try:
        agent.end()
        await clean_up(Path(f"/proc/self/fd/{work}"))
    finally:
        os.close(work)
        for each in tasks:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


async def test_a_task_that_names_no_disk_gets_a_quarter_of_it(
    prepared: AgentProcess, master: ScriptedMaster
) -> None:
    prepared.start()
    await master.agent()
    master.launch(shell("filler", GROW, "cpus:1"))
    end = await master.state("filler", FAILED, 30)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert "disk limit of 16.0 MiB exceeded" in end.message


async def test_the_largest_task_over_its_request_ends_before_the_disk_is_full(
    prepared: AgentProcess, master: ScriptedMaster
) -> None:
    master.acknowledges = False
    prepared.start("--default-limits", "disk:1GB")
    await master.agent()
    master.launch(
        shell("honest", "head -c 20m /dev/zero >f; sleep 600", "cpus:1;disk:24"),
        shell(
            "over", "head -c 3m /dev/zero >f; sleep 600", "cpus:1;disk:1", limits=Limits(disk=9_000)
        ),
    )
    for name in ("honest", "over"):
        await master.state(name, RUNNING)
    master.launch(shell("filler", GROW, "cpus:1", limits=NO_LIMITS))
    end = await master.state("filler", FAILED, 30)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert "the disk of the agent was low: " in end.message
    assert " of 64.0 MiB were free; the task took " in end.message
    assert "more than the 0.0 MiB that it asked for" in end.message
    # Launches were never refused, and the space of the task is free although its end may be unread.
    disk = seen_by(prepared.pid, prepared.work_dir)
    await eventually(lambda: free_mib(disk) > 30, 30, "the files are removed")
    master.launch(shell("next", "head -c 24m /dev/zero >f", "cpus:1;disk:30"))
    await master.state("next", FINISHED)
    assert not master.refused()
    assert not any(health.problems for health in master.health())
    assert master.states("honest")[-1] is master.states("over")[-1] is RUNNING
