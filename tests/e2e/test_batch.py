"""`croupier batch` on a real cluster: kill -9 of batch, master and agent, Ctrl-C and --resume.

Each task appends its name to a file when it begins and when it ends, so a task that ran twice, or
before its dependencies, shows.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from croupier.cli.signals import SAME_SIGNAL_S
from croupier.v1 import operator_pb2, task_pb2
from tests.harness.cluster import Cluster, processes_with, real_cluster
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

HAS = "cpus:8;mem:4GB;disk:1GB"
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "60")
# 200 tasks: a task, an array, one more for each of its tasks, and a task for all of them.
JOB = """
name = "job"
[defaults]
resources = {{cpus = 0.5, mem = "16MB"}}
[tasks.first]
shell = "{begin}; {end}"
[tasks.map]
array = 99
shell = "{begin}; sleep 0.05; {end}"
after = "first"
[tasks.reduce]
array = 99
shell = "{begin}; {end}"
after = "map[{{i}}]"
[tasks.last]
shell = "{begin}; {end}"
after = ["map", "reduce"]
"""
NAMES = ["first", *(f"{step}[{n}]" for step in ("map", "reduce") for n in range(99)), "last"]


class World:
    """A cluster, a job file and a record of what its tasks did."""

    def __init__(self, cluster: Cluster, work_dir: Path) -> None:
        self.cluster, self.work_dir = cluster, work_dir
        self.master = cluster.master
        self.record = work_dir / "record"
        self.record.write_text("")
        self.job = work_dir / "job.toml"
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, text: str, **more: str) -> None:
        """Write the job file; tasks say in the record that they begin and end."""
        says = {
            kind: f"echo {kind} $CROUPIER_TASK_ID >> {self.record}" for kind in ("begin", "end")
        }
        self.job.write_text(text.format(**says, **more))

    def batch(self, *flags: str) -> subprocess.Popen[str]:
        """Start `croupier batch`."""
        process = subprocess.Popen(
            [sys.executable, "-m", "croupier.ctl", "batch", str(self.job), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "CROUPIER_MASTER": self.master,
                "XDG_STATE_HOME": str(self.work_dir / "state"),
            },
        )
        self.processes.append(process)
        return process

    async def finished(
        self, process: subprocess.Popen[str], timeout_s: float = 200
    ) -> tuple[int, str, str]:
        """Wait for its end; return its code and its output."""
        out, err = await asyncio.to_thread(process.communicate, None, timeout_s)
        return process.returncode, out, err

    def events(self, kind: str) -> list[str]:
        """Return the task ids that began or ended, in order."""
        lines = self.record.read_text().splitlines()
        return [line.split()[1] for line in lines if line.startswith(kind)]

    async def reached(self, count: int) -> None:
        """Wait until this many tasks have ended."""
        await eventually(lambda: len(self.events("end")) >= count, 60, f"{count} tasks ended")

    def check_once_in_order(self) -> None:
        """Check that each of the 200 tasks ran once, and after its dependencies."""
        for kind in ("begin", "end"):
            counted = Counter(task_id.rpartition(".")[0] for task_id in self.events(kind))
            assert len(counted) == len(NAMES)
            assert set(counted.values()) == {1}, counted.most_common(3)
        order = [
            (kind, task_id.rpartition(".")[0])
            for kind, task_id in (line.split() for line in self.record.read_text().splitlines())
        ]
        at = {event: number for number, event in enumerate(order)}
        assert order[:2] == [("begin", "first.0"), ("end", "first.0")]
        assert order[-2:] == [("begin", "last.0"), ("end", "last.0")]
        for n in range(99):
            assert at["end", f"map.{n}"] < at["begin", f"reduce.{n}"]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with real_cluster(tmp_path_factory.mktemp("batch"), HAS, flags=QUICK) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world(cluster: Cluster, tmp_path: Path) -> AsyncIterator[World]:
    made = World(cluster, tmp_path)
    try:
        yield made
    finally:
        made.end()
        for view in (await cluster.frameworks()).values():
            framework_id = view.framework.framework_id
            request = operator_pb2.TeardownFrameworkRequest(framework_id=framework_id)
            await cluster.operator.TeardownFramework(request)
        await eventually(cluster.conserved, 60)


async def restart_master(world: World) -> None:
    world.cluster.kill("master")
    await world.cluster.start_master(*QUICK)


async def restart_agent(world: World) -> None:
    world.cluster.kill("host0")
    await world.cluster.start_agent("host0", HAS)


async def test_a_batch_of_200_tasks(world: World) -> None:
    world.write(JOB)
    code, out, err = await world.finished(world.batch())
    assert (code, err) == (0, "") or "of 200 done" in err, (code, out, err)
    assert out.startswith("200 of 200 done, in ")
    world.check_once_in_order()
    assert await world.cluster.frameworks() == {}
    # Again with --resume: nothing is left to do.
    code, out, _ = await world.finished(world.batch("--resume"))
    assert (code, len(world.events("end"))) == (0, 200)


async def test_kill_9_of_batch_and_resume(world: World) -> None:
    world.write(JOB)
    process = world.batch()
    await world.reached(100)
    process.kill()
    await world.finished(process)
    code, out, err = await world.finished(world.batch())
    assert (code, out) == (1, "")
    assert "is unfinished" in err
    assert "--resume continues it" in err
    code, out, err = await world.finished(world.batch("--resume"))
    assert (code, out.startswith("200 of 200 done")) == (0, True), (code, out, err)
    world.check_once_in_order()


async def test_kill_9_of_master_and_later_of_agent(world: World) -> None:
    world.write(JOB)
    process = world.batch()
    await world.reached(40)
    await restart_master(world)
    await world.reached(100)
    await restart_agent(world)
    code, out, err = await world.finished(process)
    assert (code, out.startswith("200 of 200 done")) == (0, True), (code, out, err)
    world.check_once_in_order()


async def test_kill_9_of_everything_at_once(world: World) -> None:
    world.write(JOB)
    process = world.batch()
    await world.reached(40)
    process.kill()
    world.cluster.kill("host0")
    world.cluster.kill("master")
    await world.finished(process)
    await world.cluster.start_master(*QUICK)
    await world.cluster.start_agent("host0", HAS)
    code, out, err = await world.finished(world.batch("--resume"))
    assert (code, out.startswith("200 of 200 done")) == (0, True), (code, out, err)
    world.check_once_in_order()


async def test_running_tasks_are_taken_over(world: World) -> None:
    """A task that runs while batch is dead keeps its process, and its end counts."""
    world.write("""
        [tasks.long]
        shell = "{begin}; while [ ! -e {go} ]; do sleep 0.05; done; {end}"
        [tasks.next]
        shell = "{begin}; {end}"
        after = "long"
    """, go=str(world.work_dir / "go"))  # fmt: skip
    process = world.batch()
    await eventually(lambda: world.events("begin"), 30)
    process.kill()
    await world.finished(process)
    (world.work_dir / "go").write_text("")
    await eventually(lambda: world.events("end"), 30)
    code, out, _ = await world.finished(world.batch("--resume"))
    assert (code, out.startswith("2 of 2 done")) == (0, True)
    assert world.events("begin") == ["long.0.1", "next.0.1"]


async def test_a_second_copy_is_refused(world: World) -> None:
    world.write('[tasks.long]\nshell = "{begin}; sleep 60; {end}"\n')
    process = world.batch()
    await eventually(lambda: world.events("begin"), 30)
    for flags in ((), ("--resume",), ("--restart",)):
        code, _, err = await world.finished(world.batch(*flags))
        assert (code, f"in use by another copy (process {process.pid})" in err) == (1, True), err


async def test_ctrl_c_ends_tasks_and_resume_runs_them_again(world: World) -> None:
    world.write("""
        [defaults]
        resources = {{cpus = 4, mem = "16MB"}}
        [tasks.a]
        shell = "{begin}; {end}"
        [tasks.b]
        array = 4
        shell = "{begin}; [ -e {go} ] || sleep 60; {end}"
        after = "a"
    """, go=str(world.work_dir / "go"))  # fmt: skip
    process = world.batch()
    await eventually(lambda: len(world.events("begin")) == 3, 30)
    process.send_signal(signal.SIGINT)
    code, out, err = await world.finished(process)
    assert (code, out) == (130, "")
    assert "stopped, 1 of 5 done, 4 waiting; --resume continues this run" in err
    await eventually(world.cluster.conserved, 60)
    assert await world.cluster.frameworks() == {}
    (world.work_dir / "go").write_text("")
    code, out, err = await world.finished(world.batch("--resume"))
    assert (code, out.startswith("5 of 5 done")) == (0, True), (code, out, err)
    ended = Counter(task_id.rpartition(".")[0] for task_id in world.events("end"))
    assert ended == {"a.0": 1, "b.0": 1, "b.1": 1, "b.2": 1, "b.3": 1}


async def test_a_second_ctrl_c_leaves_tasks_running(world: World) -> None:
    """The task ignores SIGTERM and has a long grace, so the first signal does not end it."""
    world.write("""
        [tasks.long]
        shell = "trap '' TERM; {begin}; while [ ! -e {go} ]; do sleep 0.05; done; {end}"
        grace = "15s"
    """, go=str(world.work_dir / "go"))  # fmt: skip
    process = world.batch()
    await eventually(lambda: world.events("begin"), 30)
    process.send_signal(signal.SIGINT)
    await eventually(partial(is_killing, world), 30, "the first signal is handled")
    # Signals within this time count as one.
    await asyncio.sleep(SAME_SIGNAL_S)
    process.send_signal(signal.SIGINT)
    code, _, err = await world.finished(process)
    assert (code, "1 task goes on in the cluster; --resume" in err) == (130, True), err
    (world.work_dir / "go").write_text("")
    code, out, _ = await world.finished(world.batch("--resume"))
    assert (code, out.startswith("1 of 1 done")) == (0, True)
    assert world.events("begin") == ["long.0.1"]


async def is_killing(world: World) -> bool:
    """Return whether a task has been told to end."""
    listed = await world.cluster.operator.ListTasks(operator_pb2.ListTasksRequest(), timeout=10)
    return any(view.status.state == task_pb2.TASK_KILLING for view in listed.tasks)


async def test_restart_ends_the_tasks_of_the_run_before(world: World) -> None:
    world.write("[tasks.long]\nshell = \"{begin}; [ -e {go} ] || sleep 60.5; {end}\"\n",
                go=str(world.work_dir / "go"))  # fmt: skip
    process = world.batch()
    await eventually(lambda: world.events("begin"), 30)
    process.kill()
    await world.finished(process)
    (world.work_dir / "go").write_text("")
    code, out, err = await world.finished(world.batch("--restart"))
    assert (code, out.startswith("1 of 1 done")) == (0, True), (code, out, err)
    await eventually(lambda: not processes_with("sleep\x0060.5"), 60)
    assert len(world.events("end")) == 1


async def test_failures_come_first_and_are_tried_again(world: World) -> None:
    world.write("""
        [defaults]
        backoff = "10ms"
        [tasks.good]
        shell = "{begin}"
        [tasks.flaky]
        retries = 2
        shell = "echo x >> {dir}/tries; [ $(wc -l < {dir}/tries) = 3 ]"
        [tasks.bad]
        shell = "echo some words; echo the reason >&2; exit 3"
        retries = 1
        [tasks.slow]
        command = ["sleep", "60"]
        timeout = "0.3s"
        [tasks.absent]
        command = ["no-such-program"]
        [tasks.skipped]
        array = 3
        shell = "{begin}"
        after = ["good", "bad"]
        [tasks.cleanup]
        shell = "{end}"
        after_any = ["skipped", "slow"]
    """, dir=str(world.work_dir))  # fmt: skip
    code, out, err = await world.finished(world.batch())
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("FAILED   bad: exit code 3, on ")
    assert lines[0].endswith(", 2 attempts")
    assert lines[1] == "    | the reason"
    assert lines[2].startswith("FAILED   slow: timed out: ")
    assert lines[3].startswith("FAILED   absent: ")
    assert "SKIPPED  3 tasks, because bad failed" in lines
    assert lines[-1].startswith("3 of 9 done, 3 failed, 3 skipped, in ")
    assert (world.work_dir / "tries").read_text() == "x\n" * 3
    assert world.events("end") == ["cleanup.0.1"]
    assert "bad: exit code 3; 1 retry is left" in err
    # The same summary without running anything, and then the failed ones again.
    again = await world.finished(world.batch("--resume"))
    assert (again[0], again[1].splitlines()[:-1]) == (1, lines[:-1])
    text = world.job.read_text().replace("exit 3", "exit 0").replace("60", "0")
    # A busy machine does not even start a task in so short a time.
    world.job.write_text(text.replace("0.3s", "1m"))
    code, out, _ = await world.finished(world.batch("--resume", "--retry-failed"))
    assert code == 1
    assert out.splitlines()[-1].startswith("8 of 9 done, 1 failed, in "), out
    assert len(world.events("end")) == 1, "cleanup did not run again"


async def test_a_run_that_the_cluster_has_removed(world: World) -> None:
    """Its tasks were killed and their results are lost: they count as failed, and run if asked."""
    world.write("""
        [tasks.a]
        shell = "{begin}; {end}"
        [tasks.b]
        shell = "{begin}; [ -e {go} ] || sleep 60; {end}"
        after = "a"
    """, go=str(world.work_dir / "go"))  # fmt: skip
    process = world.batch("--keep", "0.5s")
    await eventually(lambda: len(world.events("begin")) == 2, 30)
    process.kill()
    await world.finished(process)

    async def is_removed() -> bool:
        return await world.cluster.frameworks() == {}

    await eventually(is_removed, 30)
    code, out, _ = await world.finished(world.batch("--resume"))
    assert (code, "FAILED   b: its result is lost" in out) == (1, True)
    (world.work_dir / "go").touch()
    code, out, _ = await world.finished(world.batch("--resume", "--retry-failed"))
    assert (code, out.startswith("2 of 2 done")) == (0, True)
    assert world.events("end") == ["a.0.1", "b.0.2"]


async def test_a_changed_job_is_refused_if_its_tasks_are_others(world: World) -> None:
    world.write('[tasks.a]\nshell = "{begin}; sleep 60"\n')
    process = world.batch()
    await eventually(lambda: world.events("begin"), 30)
    process.kill()
    await world.finished(process)
    world.write('[tasks.b]\nshell = "{begin}"\n')
    code, _, err = await world.finished(world.batch("--resume"))
    assert (code, "dependencies of the tasks have changed" in err) == (1, True)
    assert [path.name for path in (world.work_dir / "state/croupier/batch").glob("*.sqlite")]


async def test_tasks_beside_a_task_start_and_end_with_it(world: World) -> None:
    world.write(
        """
[tasks.main]
shell = "until [ -e $CROUPIER_GROUP_DIR/ready ]; do sleep 0.1; done; {begin}; {end}"
[tasks.main.beside.helper]
shell = "touch $CROUPIER_GROUP_DIR/ready; exec sleep 7531"
resources = {{cpus = 0.5, mem = "16MB"}}
[tasks.after]
shell = "{begin}; {end}"
after = "main"
[tasks.bad]
shell = "exec sleep 7531"
[tasks.bad.beside.broken]
shell = "exit 3"
part = "member"
"""
    )
    code, out, err = await world.finished(world.batch())
    assert code == 1, (out, err)
    assert world.events("end") == ["main.0.1", "after.0.1"]
    assert "2 of 3 done" in out
    assert "member bad.0.1+broken of its group has ended as FAILED" in out + err
    await eventually(lambda: not processes_with("sleep 7531"), what="all have ended")


async def test_without_a_master_it_fails_at_once_and_keeps_nothing(world: World) -> None:
    world.write(JOB)
    world.master = "127.0.0.1:1"
    code, _, err = await world.finished(world.batch())
    assert (code, "cannot reach a master" in err) == (1, True)
    world.master = world.cluster.master
    code, _, _ = await world.finished(world.batch())
    assert code == 0
