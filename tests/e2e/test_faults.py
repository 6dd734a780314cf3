"""kill -9, SIGSTOP and orderly stops of real daemons."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from croupier.model.roles import RoleSettings
from croupier.net.address import Address
from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.roles import settings_to_wire
from tests.harness.cluster import fetch, log_events, processes_with, real_cluster
from tests.harness.eventually import eventually
from tests.harness.promtool import check_metrics
from tests.harness.steady import Steady, at_work

pytestmark = pytest.mark.e2e

UNIT = "cpus:1;mem:256MB"
QUICK = ("--heartbeat", "0.2", "--agent-timeout", "1")
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
            await eventually(lambda: watcher.launched == 8)
            await eventually(lambda: sum(s.state is TaskState.RUNNING for s in seen) == 8)
            cluster.kill("host0")

            def is_reported() -> bool:
                ends = [s for s in seen if s.state is TaskState.UNREACHABLE]
                return len(ends) == 4 and bool(lost)

            await eventually(is_reported, 15)
            assert await cluster.running() == {"W": 8}
            before = sorted(processes_with(f"sleep\0{seconds}"))
            assert len(before) == 8
            await cluster.start_agent("host0", HAS)
            lost_ids = {s.task_id for s in seen if s.state is TaskState.UNREACHABLE}

            def is_back() -> bool:
                latest = {s.task_id: s.state for s in seen}
                return all(latest[each] is TaskState.RUNNING for each in lost_ids)

            await eventually(is_back)
            assert sorted(processes_with(f"sleep\0{seconds}")) == before
            assert watcher.launched == 8
        await eventually(cluster.conserved)
        await eventually(lambda: not processes_with(f"sleep\0{seconds}"))


async def test_a_limit_holds_when_master_and_agent_are_killed_together(tmp_path: Path) -> None:
    """Tasks of a missing agent count for their role."""
    async with real_cluster(tmp_path, HAS) as cluster:
        settings = settings_to_wire(RoleSettings(limit={"cpus": 2000}))
        change = pb.RoleChange(role="lim", settings=settings)
        await cluster.operator.UpdateRoles(pb.UpdateRolesRequest(changes=[change]), timeout=10)
        seconds = 27182.0

        async def lim() -> pb.RoleView:
            views = await cluster.operator.ListRoles(pb.ListRolesRequest(), timeout=10)
            return next(view for view in views.roles if view.role == "lim")

        async with at_work(Steady("lim", cluster.master, UNIT, seconds)) as limited:
            await eventually(lambda: limited.launched == 2)
            cluster.kill("master")
            cluster.kill("host0")
            await cluster.start_master()
            await cluster.start_agent("host1", HAS)
            async with at_work(Steady("other", cluster.master, UNIT, seconds)) as other:
                # Without the limit, its role would get the rest of the new agent.
                await eventually(lambda: other.launched == 4)
                assert (limited.launched, (await lim()).used.cpus_milli) == (2, 2000)
            await cluster.start_agent("host0", HAS)
            view = await lim()
            assert (limited.launched, view.tasks, view.used.cpus_milli) == (2, 2, 2000)
        await eventually(cluster.conserved)


async def test_a_framework_is_killed(tmp_path: Path) -> None:
    """Its offers are rescinded at once; its tasks run until its failover timeout."""
    script = tmp_path / "framework.py"
    script.write_text(
        "import sys\n"
        "from tests.harness.steady import Steady\n"
        "Steady('victim', sys.argv[1], 'cpus:1;mem:256MB', 27183).run_forever()\n"
    )
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster:
        victim = subprocess.Popen(
            [sys.executable, str(script), cluster.master],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        try:

            async def is_running() -> bool:
                return await cluster.running() == {"victim": 4}

            await eventually(is_running)
        finally:
            victim.kill()
            victim.wait()
        states = {view.state for view in (await cluster.frameworks()).values()}
        await eventually(lambda: len(processes_with("sleep\x0027183")) == 4)
        assert states <= {"connected", "disconnected"}

        async def is_gone() -> bool:
            return not await cluster.frameworks()

        await eventually(is_gone, 20, what="the framework is removed after its 5 s")
        await eventually(cluster.conserved)
        assert not processes_with("sleep\x0027183")


async def test_a_framework_is_stopped_and_does_not_read(tmp_path: Path) -> None:
    """After SIGSTOP it keeps its offers until their lease expires; then others get them."""
    script = tmp_path / "framework.py"
    script.write_text(
        "import sys\n"
        "from croupier.sdk import Framework\n"
        "class Hoarder(Framework):\n"
        "    async def on_offers(self, offers):\n"
        "        print('holding', flush=True)\n"
        "Hoarder(name='hoarder', master=sys.argv[1]).run_forever()\n"
    )
    flags = (*QUICK, "--offer-lease", "1")
    async with real_cluster(tmp_path, HAS, flags=flags) as cluster:
        hoarder = subprocess.Popen(
            [sys.executable, str(script), cluster.master], stdout=subprocess.PIPE
        )
        try:
            assert hoarder.stdout is not None
            assert await asyncio.to_thread(hoarder.stdout.readline) == b"holding\n"
            hoarder.send_signal(signal.SIGSTOP)
            async with at_work(Steady("other", cluster.master, "cpus:1;mem:256MB")) as other:
                await eventually(lambda: other.launched >= 4, 15)

                async def is_cut_off() -> bool:
                    return (await cluster.frameworks())["hoarder"].state == "disconnected"

                await eventually(is_cut_off, 15)
        finally:
            hoarder.send_signal(signal.SIGKILL)
            hoarder.communicate()
        await eventually(cluster.conserved)


async def test_the_master_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Agents, frameworks and tasks return by themselves; tasks keep running."""
    async with (
        real_cluster(tmp_path, HAS, flags=QUICK) as cluster,
        at_work(Steady("S", cluster.master, "cpus:1;mem:256MB", 16180)) as steady,
    ):
        await eventually(lambda: steady.launched == 4)
        await eventually(lambda: len(processes_with("sleep\x0016180")) == 4)
        before = sorted(processes_with("sleep\x0016180"))
        framework_id = (await cluster.frameworks())["S"].framework.framework_id
        cluster.kill("master")
        await cluster.start_master(*QUICK)

        async def is_back() -> bool:
            views = await cluster.frameworks()
            return views["S"].state == "connected" and views["S"].tasks == 4

        await eventually(is_back, 30)
        assert (await cluster.frameworks())["S"].framework.framework_id == framework_id
        assert sorted(processes_with("sleep\x0016180")) == before


async def test_daemons_stop_in_order(tmp_path: Path) -> None:
    """SIGTERM: exit code 0; the agent's tasks are reported as KILLED, not LOST."""
    seen: list[TaskStatus] = []

    class Watcher(Steady):
        async def on_update(self, status: TaskStatus) -> None:
            seen.append(status)

    async with real_cluster(tmp_path, HAS) as cluster:
        async with at_work(Watcher("W", cluster.master, "cpus:1;mem:256MB", 14142)) as watcher:
            await eventually(lambda: watcher.launched == 4)
            assert cluster.kill("host0", signal.SIGTERM) == 0
            await eventually(lambda: sum(s.state is TaskState.KILLED for s in seen) == 4)
            assert not processes_with("sleep\x0014142")
            assert not await cluster.agents()
        assert cluster.kill("master", signal.SIGTERM) == 0
        assert log_events(cluster.log("master"))[-1]["event"] == "master_stopping"


async def test_a_program_that_cannot_run_is_named(tmp_path: Path) -> None:
    script = tmp_path / "broken"
    script.write_bytes(b"\x7fELF not really")
    script.chmod(0o755)
    ends: dict[str, TaskStatus] = {}
    commands = {"absent": ["/no/such/program"], "broken": [str(script)], "fails": ["false"]}

    class Launcher(Framework):
        async def on_offers(self, offers: list[Offer]) -> None:
            unit = Resources.parse("cpus:0.1;mem:32MB")
            tasks = [Task(argv, resources=unit, task_id=name) for name, argv in commands.items()]
            await self.accept(offers[0], tasks, refuse_s=100)

        async def on_update(self, status: TaskStatus) -> None:
            if status.state.is_terminal:
                ends[status.task_id] = status
            if len(ends) == 3:
                await self.stop(teardown=True)

    async with real_cluster(tmp_path, HAS) as cluster:
        await asyncio.wait_for(Launcher(master=cluster.master).run(), 20)
    assert {status.state for status in ends.values()} == {TaskState.FAILED}
    assert "no such program" in ends["absent"].message.lower()
    assert "exec format" in ends["broken"].message.lower()
    assert ends["fails"].exit_code == 1


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
                timeout=20,
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
