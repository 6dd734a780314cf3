"""`ClusterExecutor` while parts of the cluster, a worker or the program itself are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from croupier.futures import ClusterBroken, ClusterExecutor, WorkerDied
from tests.harness.cluster import Cluster, processes_with, real_cluster
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.executors import executor_on, noted, notes
from tests.harness.processes import is_running, parent_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

AGENT = "cpus:2;mem:2GB"
CALLS = 60
WAIT_S = 60.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    flags = ("--secrets-key-file", str(tmp_path / "secrets.key"))
    async with real_cluster(tmp_path, AGENT, flags=flags) as running:
        yield running


def submitted(executor: ClusterExecutor, path: Path) -> list[Any]:
    return [executor.submit(noted, path, number, 0.1) for number in range(CALLS)]


async def all_ran_once(futures: list[Any], path: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*map(asyncio.wrap_future, futures))
    assert results == list(range(CALLS))
    assert Counter(number for number, _ in notes(path)) == Counter(range(CALLS))


async def test_calls_go_on_while_the_master_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with executor_on(cluster.master) as executor:
        futures = submitted(executor, path)
        await eventually(lambda: len(notes(path)) >= 5, 30, "calls run")
        cluster.kill("master")
        so_far = len(notes(path))
        await eventually(lambda: len(notes(path)) > so_far + 4, 30, "calls run without a master")
        await cluster.start_master("--secrets-key-file", str(tmp_path / "secrets.key"))
        # The new master knows the framework: it launches another worker.
        large = executor.options(cpus=0.3).submit(abs, -1)
        await all_ran_once([*futures], path)
        assert await asyncio.wait_for(asyncio.wrap_future(large), WAIT_S) == 1


async def test_calls_go_on_while_the_agent_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with executor_on(cluster.master) as executor:
        futures = submitted(executor, path)
        await eventually(lambda: len(notes(path)) >= 5, 30, "calls run")
        cluster.kill("host0")
        so_far = len(notes(path))
        await eventually(lambda: len(notes(path)) > so_far + 4, 30, "calls run without an agent")
        await cluster.start_agent("host0", AGENT)
        await all_ran_once(futures, path)
        assert len({pid for _, pid in notes(path)}) <= 2, "the workers stayed"


async def victim(path: Path, which: Callable[[int], int]) -> None:
    """Kill the process that runs a call, or its keeper."""
    await eventually(lambda: notes(path), 30, "a call runs")
    os.kill(which(notes(path)[-1][1]), signal.SIGKILL)


@pytest.mark.parametrize("which", [int, parent_of], ids=["child", "keeper"])
async def test_a_call_whose_worker_is_killed_runs_again_if_it_may(
    cluster: Cluster, tmp_path: Path, which: Callable[[int], int]
) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    with executor_on(cluster.master, max_workers=1) as executor:
        failing = asyncio.wrap_future(executor.submit(noted, once, 1, 600))
        await victim(once, which)
        with pytest.raises(WorkerDied, match=r"SIGKILL|signal 9"):
            await asyncio.wait_for(failing, WAIT_S)
        retried = asyncio.wrap_future(executor.options(retries=1).submit(noted, again, 2, 1.0))
        await victim(again, which)
        assert await asyncio.wait_for(retried, WAIT_S) == 2
    assert len(notes(once)) == 1
    assert len(notes(again)) == 2
    pids = [pid for _, pid in notes(once) + notes(again)]
    await eventually(lambda: not any(map(is_running, pids)), 60, "no process is left")


PROGRAM = """
import sys, time
from pathlib import Path
from croupier.futures import ClusterExecutor

def run(path):
    import os
    Path(path).write_text(str(os.getpid()))
    while True:
        pass  # holds the interpreter

with ClusterExecutor(1, cpus=0.1, mem="128MB", master=sys.argv[1], name="doomed") as executor:
    executor.submit(run, sys.argv[2]).result()
"""


async def test_workers_end_when_the_program_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, cluster.master, str(path)])
    try:
        await eventually(lambda: path.exists() and path.read_text(), 30, "the call runs")
        worker = int(path.read_text())
        keeper = parent_of(worker)
    finally:
        program.kill()
        program.wait()
    await eventually(
        lambda: not is_running(worker) and not is_running(keeper), 20, "the worker ends"
    )

    async def no_tasks() -> bool:
        return (await cluster.running()).get("doomed", 0) == 0

    await eventually(no_tasks, 60, "no task is left")


async def test_a_killed_task_fails_its_call(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with executor_on(cluster.master, name="killed") as executor:
        call = asyncio.wrap_future(executor.submit(noted, path, 1, 600))
        await eventually(lambda: notes(path), 30, "the call runs")
        worker = notes(path)[0][1]
        listed = await croupier("tasks", "--json", "--master", cluster.master)
        (task,) = [task for task in json.loads(listed.out) if task["name"] == "killed"]
        killed = await croupier("kill", task["task_id"], "--master", cluster.master)
        assert killed.code == 0, killed.err
        with pytest.raises(WorkerDied, match="KILLED"):
            await asyncio.wait_for(call, WAIT_S)
        await eventually(lambda: not is_running(worker), 60, "the process ends")
        assert await asyncio.wrap_future(executor.submit(abs, -1)) == 1


async def test_a_removed_framework_breaks_the_executor(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with executor_on(cluster.master, name="removed") as executor:
        call = asyncio.wrap_future(executor.submit(noted, path, 1, 600))
        await eventually(lambda: notes(path), 30, "the call runs")
        removed = await croupier(
            "framework", "teardown", "removed", "--yes", "--master", cluster.master
        )
        assert removed.code == 0, removed.err
        with pytest.raises((ClusterBroken, WorkerDied)):
            await asyncio.wait_for(call, WAIT_S)
        await eventually(lambda: not processes_with(str(path)), 60, "nothing is left")


async def test_a_master_without_a_key_is_named(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, AGENT) as cluster:
        with executor_on(cluster.master) as executor:
            call = asyncio.wrap_future(executor.submit(abs, 1))
            with pytest.raises(ClusterBroken, match="secret"):
                await asyncio.wait_for(call, WAIT_S)
