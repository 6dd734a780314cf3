"""`DaskCluster` on a real cluster: real work, and workers, masters, agents and clients that die."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster, processes_with, real_cluster
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PAGE = Path(__file__).resolve().parents[2] / "docs/dask.md"
AGENT = "cpus:4;mem:4GB"

# What is killed is in the middle of work: blocks wait for a file.
SURVIVE = """
import os, sys, time
import dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd
from dask.distributed import Client
from croupier.dask import DaskCluster

def after(block, gate):
    while not os.path.exists(gate):
        time.sleep(0.02)
    return block

name, first, second = sys.argv[1:]
with DaskCluster(2, cpus=0.5, mem="400MB", name=name) as cluster, Client(cluster) as client:
    assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
    client.wait_for_workers(2, timeout=60)
    print("computing", flush=True)
    numbers = np.arange(40_000.0).reshape(200, 200)
    blocks = da.from_array(numbers, chunks=(20, 50)).map_blocks(after, first, dtype=float)
    assert blocks.sum().compute() == numbers.sum()
    print("array", flush=True)
    frame = pd.DataFrame({"key": np.arange(4_000) % 7, "value": np.arange(4_000)})
    parts = dd.from_pandas(frame, npartitions=40).map_partitions(after, second, meta=frame)
    found = parts.groupby("key").value.sum().compute().sort_index()
    pd.testing.assert_series_equal(found, frame.groupby("key").value.sum(), check_index=True)
    client.wait_for_workers(2, timeout=60)
    print("frame", flush=True)
    sys.stdin.read()
"""
SCALE = """
import asyncio, time
from croupier.dask import DaskCluster
from dask.distributed import Client

async def in_a_loop():
    settings = {"cpus": 0.5, "mem": "300MB", "name": "loop", "asynchronous": True}
    async with DaskCluster(2, **settings) as cluster, Client(cluster, asynchronous=True) as client:
        await client.wait_for_workers(2, timeout=60)
        await cluster.scale(1)
        while len(cluster.scheduler_info["workers"]) > 1:
            await asyncio.sleep(0.05)
        assert await client.submit(sum, [1, 2, 3]) == 6

asyncio.run(in_a_loop())
with DaskCluster(cpus=0.5, mem="300MB", name="plain", security=False) as cluster:
    with Client(cluster) as client:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        cluster.adapt(0, 2, interval="200ms", wait_count=2)
        assert sum(client.gather(client.map(lambda x: time.sleep(0.05) or x, range(20)))) == 190
        while cluster.worker_spec:
            time.sleep(0.05)
        cluster.adapt(1, 1)
        client.wait_for_workers(1, timeout=60)
        client.restart(timeout=60)
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
"""
# A cluster for each way to fail, side by side.
FAIL = """
import sys
from contextlib import ExitStack
from croupier.dask import DaskCluster, WorkersFailed

def fails(cluster):
    try:
        cluster.wait_for_workers(2, timeout=60)
    except WorkersFailed as error:
        print(error)
    try:
        cluster.scale(5)
    except WorkersFailed:
        print("refused")

with ExitStack() as stack:
    clusters = [
        DaskCluster(2, cpus=0.5, mem="400MB", name=f"failing-{number}", **arguments)
        for number, arguments in enumerate(eval(sys.argv[1]))
    ]
    for cluster in clusters:
        stack.enter_context(cluster)
    for cluster in clusters:
        fails(cluster)
"""


def workers(name: str) -> list[int]:
    """Return the pids of a cluster's workers."""
    return processes_with(f"--name\0{name}-")


@asynccontextmanager
async def secured_cluster(directory: Path, *agents: str) -> AsyncIterator[Cluster]:
    key = directory / "secrets.key"
    key.touch(mode=0o600)
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    async with real_cluster(directory, *agents, flags=flags(directory)) as cluster:
        yield cluster


def flags(directory: Path) -> tuple[str, ...]:
    return ("--secrets-key-file", str(directory / "secrets.key"))


@asynccontextmanager
async def program(
    cluster: Cluster, text: str, *words: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        text,
        *words,
        cwd=cluster.work_dir,
        env={**os.environ, "CROUPIER_MASTER": cluster.master},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process, word: str) -> None:
    """Wait until the program prints a line."""
    assert process.stdout is not None
    async with asyncio.timeout(90):
        line = await process.stdout.readline()
    if line.decode().strip() != word:
        process.kill()
        _, err = await process.communicate()
        raise AssertionError(f"{line!r}, not {word}: {err.decode()}")


async def finish(process: asyncio.subprocess.Process) -> tuple[str, str]:
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode(), err.decode()


async def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = PAGE.read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    # Room for two of its four workers, as starting them takes longest.
    agent = "cpus:1;mem:4GB"
    async with secured_cluster(tmp_path, agent) as cluster, program(cluster, found[1]) as process:
        out, _ = await finish(process)
        for line in out.splitlines():
            assert f"`{line}`" in page
        assert len(out.splitlines()) == 2
        await eventually(lambda: not workers("dask"), 30, "no workers are left")

        async def is_gone() -> bool:
            return await cluster.frameworks() == {}

        await eventually(is_gone, 60, "the framework is removed")


async def test_work_goes_on_when_workers_the_master_and_an_agent_are_killed(tmp_path: Path) -> None:
    """And the workers end when the client is killed."""
    name = f"survivor-{os.getpid()}"
    gates = [tmp_path / "first", tmp_path / "second"]
    words = (name, *map(str, gates))
    async with (
        secured_cluster(tmp_path, AGENT, AGENT) as cluster,
        program(cluster, SURVIVE, *words) as process,
    ):
        await said(process, "computing")
        await kill_a_worker(name)
        cluster.kill("master")
        await cluster.start_master(*flags(tmp_path))
        gates[0].touch()
        await said(process, "array")
        cluster.kill("host0")
        await cluster.start_agent("host0", AGENT)
        await kill_a_worker(name)
        gates[1].touch()
        await said(process, "frame")
        await eventually(lambda: len(workers(name)) == 2, 60, "there are two workers")
        process.kill()
        await eventually(lambda: not workers(name), 60, "no workers are left")


async def kill_a_worker(name: str) -> None:
    """Kill a worker, and wait until there is another one."""
    before = workers(name)
    os.kill(before[0], signal.SIGKILL)
    await eventually(
        lambda: set(workers(name)) - set(before), 60, "a killed worker has been replaced"
    )


async def test_scaling_restarting_and_an_event_loop(tmp_path: Path) -> None:
    async with secured_cluster(tmp_path, AGENT) as cluster, program(cluster, SCALE) as process:
        await finish(process)


ERRORS = (
    ({"env": {"CROUPIER_DASK_PYTHON": "3.0"}}, "its Python is of another minor version"),
    ({"python": "/bin/false"}, "exit code 1; its stderr is in the sandbox of task"),
    ({"python": "/nowhere/python"}, "name a Python that agents have with python=PATH"),
)


async def test_workers_that_cannot_start_are_an_error(tmp_path: Path) -> None:
    arguments = repr([arguments for arguments, _ in ERRORS])
    async with (
        secured_cluster(tmp_path, AGENT) as cluster,
        program(cluster, FAIL, arguments) as process,
    ):
        out, _ = await finish(process)
    said = out.splitlines()
    assert said[1::2] == ["refused"] * len(ERRORS)
    for line, (_, error) in zip(said[::2], ERRORS, strict=True):
        assert "3 workers ended before they had connected; the last one on host0: " in line
        assert error in line
