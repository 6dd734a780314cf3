"""Executors of Mesos, unmodified, at an agent; their framework is of the SDK."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from croupier.model.task import Reason
from croupier.net.transport import free_addresses
from croupier.sdk import ExecutorSpec, Task, TaskState
from tests.e2e.test_executors import EXECUTOR, HAS, QUICK, Owner, owned
from tests.harness.cluster import real_cluster
from tests.harness.eventually import eventually
from tests.harness.mesos_clients import packages

PROGRAM = Path(packages.__file__).with_name("run_pymesos_executor.py")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def mesos_executor(own: Owner) -> Task:
    return Task(
        [sys.executable, str(PROGRAM), str(own.notes)],
        resources=EXECUTOR,
        task_id="e1",
        executor=ExecutorSpec(api="mesos"),
        env={"PYTHONPATH": str(packages.python_clients())},
    )


async def test_an_executor_of_pymesos_runs_tasks_and_survives_its_agent(tmp_path: Path) -> None:
    [listen] = free_addresses(1)
    flags = ("--mesos-listen", str(listen))
    async with real_cluster(tmp_path, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        await cluster.start_agent("host0", HAS, *flags)
        go = tmp_path / "go"
        await own.launch(
            mesos_executor(own), own.task("t1", "echo hello"), own.task("t2", f"wait {go}")
        )
        status = await own.has("t1", TaskState.FINISHED)
        assert status.data == b"hello"
        await own.has("t2", TaskState.RUNNING)
        await own.send_message("e1", b"ping")
        await eventually(lambda: own.messages, what="an answer")
        assert own.messages[0].data == b"re: ping"
        cluster.kill("host0")
        await cluster.start_agent("host0", HAS, *flags)
        go.write_text("")
        await own.has("t2", TaskState.FINISHED)
        await own.launch(own.task("t3", "sleep"))
        await own.has("t3", TaskState.RUNNING)
        await own.kill("t3")
        assert (await own.has("t3", TaskState.KILLED)).reason is Reason.KILLED_BY_FRAMEWORK
        await own.kill("e1")
        await own.has("e1", TaskState.KILLED)
        notes = own.noted()
        assert notes[0] == "registered e1"
        assert "shutdown" in notes
        launched = Counter(each for each in notes if each.startswith("launched"))
        assert launched == {"launched t1": 1, "launched t2": 1, "launched t3": 1}
