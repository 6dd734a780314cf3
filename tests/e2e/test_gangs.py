"""Gangs on real agents: they start together on several hosts, know each other, and end together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from croupier.sdk import Framework, Gang, Reason, Resources, Task, TaskState, TaskStatus
from croupier.v1 import operator_pb2
from tests.harness.cluster import real_cluster
from tests.harness.command import ended, started
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

HAS = "cpus:1;mem:1GB"
# Hosts of a test have names that no resolver knows; so they meet at an address of this test alone.
HERE = f"127.{os.getpid() // 256 % 256}.{os.getpid() % 256}.1"
# At its first start a rank hangs, as if it worked for long.
MEET = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["HERE"], int(os.environ["MASTER_PORT"]))
try:
    os.mkdir(f'{os.environ["BEGUN"]}.{rank}')
    time.sleep(3600)
except FileExistsError:
    pass
if rank == 0:
    with socket.create_server(place) as server:
        for _ in range(size - 1):
            connection, _ = server.accept()
            print("met", connection.recv(100).decode(), flush=True)
            connection.close()
else:
    while True:
        try:
            with socket.create_connection(place, timeout=60) as connection:
                connection.sendall(f"rank {rank} of {size}".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
hosts = open(os.environ["CROUPIER_HOSTFILE"]).read().splitlines()
print("hosts", len(hosts), hosts[0] == os.environ["MASTER_ADDR"] + " slots=1")
"""


class Submitting(Framework):
    """Submits, and notes the latest status of each task."""

    def __init__(self, master: str) -> None:
        super().__init__(name="gangs", master=master)
        self.states: dict[str, TaskStatus] = {}
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_update(self, status: TaskStatus) -> None:
        self.states[status.task_id] = status

    def all_are(self, state: TaskState, *task_ids: str) -> bool:
        found = [self.states[each].state for each in task_ids if each in self.states]
        return found == [state] * len(task_ids)


async def test_a_gang_of_4_whose_task_is_killed_starts_again_and_meets(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    given = ["--env", f"HERE={HERE}", "--env", f"BEGUN={begun}", "--nodes", "4", "--restarts", "1"]
    async with real_cluster(tmp_path, *[HAS] * 4) as cluster:
        argv = ["run", "--master", cluster.master, *given, "--", sys.executable, "-c", MEET]
        async with started(*argv) as run:
            await eventually(
                lambda: len(list(tmp_path.glob("begun.*"))) == 4, 60, what="all have begun"
            )
            pids = list[int]()

            async def is_known() -> bool:
                tasks = (await cluster.operator.ListTasks(operator_pb2.ListTasksRequest())).tasks
                pids[:] = [view.status.pid for view in tasks if view.task.gang.rank == 2]
                return any(pids)

            # A task may have begun before the master is told that it runs.
            await eventually(is_known, 60, what="the master knows the process")
            (pid,) = pids
            os.kill(pid, signal.SIGKILL)
            done = await ended(run, 90)
    assert done.code == 0
    assert "signal 9 (SIGKILL); restart 1 of 1 of its gang" in done.err
    met = [f"[0] met rank {rank} of 4" for rank in (1, 2, 3)]
    hosts = [f"[{rank}] hosts 4 True" for rank in range(4)]
    assert sorted(done.out.splitlines()) == sorted(met + hosts)


async def test_a_gang_waits_for_all_its_room_and_ends_with_a_member(tmp_path: Path) -> None:
    unit, flag = Resources.parse("cpus:1;mem:32MB"), tmp_path / "fail"
    fails = Task(
        shell=f"until [ -e {flag} ]; do sleep 0.1; done; exit 3", resources=unit, task_id="f"
    )
    others = [
        Task(shell="exec sleep 3600", resources=unit, task_id=each, grace_s=1) for each in "ab"
    ]
    async with (
        real_cluster(tmp_path, HAS, HAS) as cluster,
        at_work(Submitting(cluster.master)) as framework,
    ):
        verdicts = await framework.submit([fails, *others], gang=Gang("g"))
        assert not any(verdict.error for verdict in verdicts)

        cluster.kill("master")
        await cluster.start_master()
        await cluster.start_agent("host2", HAS)
        await eventually(
            lambda: framework.all_are(TaskState.RUNNING, "f", "a", "b"), 60, what="all run"
        )
        assert len({status.agent_id for status in framework.states.values()}) == 3

        flag.touch()
        await eventually(
            lambda: framework.all_are(TaskState.KILLED, "a", "b"), 60, what="the others end"
        )
        assert framework.states["f"].exit_code == 3
        assert {framework.states[each].reason for each in "ab"} == {Reason.GANG_ENDED}


# At its first start, rank 0 hangs, and rank 1 fails when both have begun.
GANG_JOB = """
[tasks.train]
nodes = 2
retries = 1
backoff = "0.1s"
resources = {cpus = 1, mem = "32MB"}
shell = '''
mkdir "$BEGUN.$RANK" || exit 0
[ $RANK = 1 ] || exec sleep 3600
until [ -e "$BEGUN.0" ]; do sleep 0.1; done
exit 3
'''
"""


async def test_a_task_of_a_job_file_on_2_nodes_is_run_again_as_one(tmp_path: Path) -> None:
    file, state = tmp_path / "job.toml", tmp_path / "state.sqlite"
    file.write_text(GANG_JOB + f'[defaults.env]\nBEGUN = "{tmp_path / "begun"}"\n')
    async with real_cluster(tmp_path, HAS, HAS) as cluster:
        argv = ["batch", str(file), "--state", str(state), "--master", cluster.master]
        async with started(*argv) as batch:
            done = await ended(batch, 120)
    assert done.code == 0, done
    assert "train: rank 1: exit code 3; 1 retry is left" in done.err
    assert len(list(tmp_path.glob("begun.*"))) == 2
