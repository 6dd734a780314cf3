"""Faults of real daemons: killed, without a port, with full disks, and replayed from their logs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from croupier.net.address import Address
from croupier.sdk import TaskState, TaskStatus
from croupier.v1 import task_pb2
from tests.harness.cluster import Cluster, fetch, log_events, processes_with, real_cluster
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.promtool import check_metrics
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

QUICK = ("--heartbeat", "0.5", "--agent-timeout", "5")
HAS = "cpus:4;mem:4GB;disk:1GB"


async def test_an_agent_is_killed(tmp_path: Path) -> None:
    """Its offers are rescinded, its tasks keep running, and the next agent adopts them."""
    seen: list[TaskStatus] = []
    lost: list[object] = []

    class Watcher(Steady):
        async def on_update(self, status: TaskStatus) -> None:
            seen.append(status)

        async def on_failure(self, failure: object) -> None:
            lost.append(failure)

    async with real_cluster(tmp_path, HAS, HAS, flags=QUICK) as cluster:
        seconds = 31415.0
        async with at_work(Watcher("W", cluster.master, "cpus:1;mem:256MB", seconds)) as watcher:
            await eventually(lambda: watcher.launched == 8, 30)
            await eventually(lambda: sum(s.state is TaskState.RUNNING for s in seen) == 8, 30)
            cluster.kill("host0")

            def is_reported() -> bool:
                ends = [s for s in seen if s.state is TaskState.UNREACHABLE]
                return len(ends) == 4 and bool(lost)

            await eventually(is_reported, 60)
            assert await cluster.running() == {"W": 8}
            before = sorted(processes_with(f"sleep\0{seconds}"))
            assert len(before) == 8
            await cluster.start_agent("host0", HAS)
            lost_ids = {s.task_id for s in seen if s.state is TaskState.UNREACHABLE}

            def is_back() -> bool:
                latest = {s.task_id: s.state for s in seen}
                return all(latest[each] is TaskState.RUNNING for each in lost_ids)

            await eventually(is_back, 30)
            assert sorted(processes_with(f"sleep\0{seconds}")) == before
            assert watcher.launched == 8
        await eventually(cluster.conserved)
        await eventually(lambda: not processes_with(f"sleep\0{seconds}"))


async def test_daemons_stop_in_order(tmp_path: Path) -> None:
    """SIGTERM: exit code 0; the agent's tasks are reported as KILLED, not LOST."""
    seen: list[TaskStatus] = []

    class Watcher(Steady):
        async def on_update(self, status: TaskStatus) -> None:
            seen.append(status)

    async with real_cluster(tmp_path, HAS) as cluster:
        async with at_work(Watcher("W", cluster.master, "cpus:1;mem:256MB", 14142)) as watcher:
            await eventually(lambda: watcher.launched == 4, 30)
            assert cluster.kill("host0", signal.SIGTERM) == 0
            await eventually(lambda: sum(s.state is TaskState.KILLED for s in seen) == 4)
            assert not processes_with("sleep\x0014142")
            assert not await cluster.agents()
        assert cluster.kill("master", signal.SIGTERM) == 0
        assert log_events(cluster.log("master"))[-1]["event"] == "master_stopping"


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster:
        taken = (
            ("--listen", cluster.master, "--http", "127.0.0.1:0"),
            ("--listen", "127.0.0.1:0", "--http", str(cluster.http)),
        )
        for flags in taken:
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "croupier.master", "--store", "memory", *flags],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 1
            lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
            assert len(lines) == 1
            assert "cannot listen on" in lines[0]


async def test_prometheus_accepts_the_metrics(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS) as cluster:
        async with at_work(Steady("S", cluster.master, "cpus:1;mem:256MB", 0.1)) as steady:
            await eventually(lambda: steady.launched > 10)
            page = cluster.metrics(cluster.http)
            (view,) = await cluster.agents()
            host, _, port = view.agent.http_address.rpartition(":")
            agent = await asyncio.to_thread(fetch, f"http://{host}:{port}/metrics")
        check_metrics(page)
        check_metrics(agent)
        assert 'croupier_role_dominant_share{role="S"}' in page
        assert "croupier_messages_dropped_total" in page
        assert "croupier_agent_registered 1.0" in agent
        assert f'croupier_framework_tasks{{framework="{steady.framework_id}"' in page
        assert str(steady.framework_id) not in agent
        assert not any(view.agent.agent_id in text for text in (page, agent))


def test_states_are_those_of_the_wire() -> None:
    named = {state.name: int(state) for state in TaskState}
    assert {f"TASK_{name}": number for name, number in named.items()} == {
        name: number for name, number in task_pb2.TaskState.items() if number
    }


async def test_the_disk_of_all_logs_is_full(tmp_path: Path) -> None:
    """Daemons count the lines that they lose, and serve on."""
    for name in ("master", "host0"):
        (tmp_path / f"{name}.log").symlink_to("/dev/full")
    async with real_cluster(tmp_path, HAS) as cluster:
        (view,) = await cluster.agents()
        for address in (cluster.http, Address.parse(view.agent.http_address)):
            lost = [
                float(line.split()[1])
                for line in cluster.metrics(address).splitlines()
                if line.startswith("croupier_log_lines_lost_total ")
            ]
            assert lost > [0]
        assert [cluster.kill(name, signal.SIGTERM) for name in ("host0", "master")] == [0, 0]


AGENT = "cpus:4;mem:4GB;disk:1GB"


async def under_load(cluster: Cluster, seconds: float) -> None:
    """Run three frameworks with tasks of `seconds`, one without declared demand, and operators."""
    async with AsyncExitStack() as stack:
        frameworks = [
            Steady("a", cluster.master, "cpus:1;mem:64MB", seconds, role="ads"),
            Steady("b", cluster.master, "cpus:1;mem:64MB", seconds, role="web/front"),
            Steady("c", cluster.master, "cpus:0.5;mem:64MB", seconds, role="any", declares=False),
        ]
        for framework in frameworks[:2]:
            await stack.enter_async_context(at_work(framework))
        for framework in frameworks[:2]:

            async def is_at_work(framework: Steady = framework) -> bool:
                return framework.launched > 10

            await eventually(is_at_work, 60, what=f"{framework.name} runs tasks")
        async with at_work(frameworks[2]):
            for flags in (["weights", "set", "ads", "3"], ["why", "a"], ["roles"]):
                ended = await croupier(*flags, "--master", cluster.master)
                assert ended.code == 0, ended.err
            fetch(f"http://{cluster.http}/metrics")
            before = frameworks[0].launched
            await eventually(
                lambda: frameworks[0].launched > before + 15, 60, "the log is long enough"
            )
        # The log must end while they are running.
        cluster.kill("master", signal.SIGKILL)
        await cluster.start_master()


async def test_decisions_of_a_killed_master_are_replayed(tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    async with real_cluster(tmp_path, AGENT, AGENT, flags=("--event-log", str(log))) as cluster:
        await under_load(cluster, 1.5)
    once, twice = await asyncio.gather(*(croupier("replay", str(log)) for _ in range(2)))
    assert once.code == 0, once.err
    assert once.out == twice.out
    assert "the same, byte for byte" in once.out
    verified = await croupier("replay", str(log), "--verify", PYTHONHASHSEED="7")
    assert verified.code == 0, verified.err

    report = json.loads((await croupier("replay", str(log), "--json")).out)
    roles = report["recorded"]["roles"]
    assert set(roles) == {"ads", "any", "web", "web/front"}
    assert roles["ads"]["tasks"] > 10
    assert roles["ads"]["share"] > roles["web"]["share"] > 0
    assert report["recorded"]["utilisation"]["cpus"] > 0.2
    assert oct(log.stat().st_mode & 0o777) == "0o600"
    assert b"sleep" not in log.read_bytes()
