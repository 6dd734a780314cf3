"""Gangs on real agents: they start together on several hosts, know each other, and end together."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from croupier.sdk import Framework, Gang, Reason, Resources, Task, TaskState, TaskStatus
from tests.harness.cluster import real_cluster
from tests.harness.command import ended, started
from tests.harness.eventually import eventually
from tests.harness.steady import at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HAS = "cpus:1;mem:1GB"
# Hosts of a test have names that no resolver knows; so they meet at an address of this test alone.
HERE = f"127.{os.getpid() // 256 % 256}.{os.getpid() % 256}.1"
MEET = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["HERE"], int(os.environ["MASTER_PORT"]))
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
print(os.environ["MASTER_ADDR"], open(os.environ["CROUPIER_HOSTFILE"]).read().split())
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


async def test_run_starts_a_command_on_several_agents_which_meet(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, HAS) as cluster:
        argv = ["run", "--master", cluster.master, "--nodes", "2", "--env", f"HERE={HERE}"]
        async with started(*argv, "--", sys.executable, "-c", MEET) as run:
            done = await ended(run, 90)
    assert (done.code, done.err) == (0, "")
    # The order of hosts is that in which the agents have room.
    first = "host0" if "[0] host0 " in done.out else "host1"
    second = {"host0": "host1", "host1": "host0"}[first]
    hosts = f"{first} ['{first}', 'slots=1', '{second}', 'slots=1']"
    lines = ["[0] met rank 1 of 2", f"[0] {hosts}", f"[1] {hosts}"]
    assert sorted(done.out.splitlines()) == sorted(lines)


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
