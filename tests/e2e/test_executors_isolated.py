"""Executors with a uid of their own, and in boxes: both reach their agent, also after a restart."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.model.task import Reason
from croupier.net.transport import free_addresses
from croupier.sdk import ExecutorSpec, Resources, Task, TaskState
from tests.e2e.test_executors import HAS, QUICK, Owner, owned
from tests.harness import executor_program
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.mesos_clients import packages
from tests.harness.open_directory import open_directory

REPO = Path(__file__).parents[2]
EXECUTOR = Resources.parse("cpus:0.1;mem:128MB")
OWN = ("--isolation", "auto", "--task-user", "own")
SHOWN = (REPO, Path(sys.prefix), Path(sys.base_prefix))
BOXED = (
    "--isolation", "process,cgroup,namespaces", "--task-user", "own",
    "--visible-paths", ",".join(map(str, SHOWN)),
)  # fmt: skip

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give tasks uids of their own"),
]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory that tasks of other users can enter."""
    with open_directory() as path:
        yield path


def python_of_others() -> tuple[str, dict[str, str]]:
    """Return an interpreter that all users can run, and its variables; skip without one."""
    sources = [str(REPO / part) for part in ("agent", "framework_sdk", "master", "proto")]
    variables = {"PYTHONPATH": os.pathsep.join([*sources, sysconfig.get_path("platlib")])}
    name = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        try:
            subprocess.run(
                [python, "-c", "import croupier.sdk.executor"],
                env=variables, user=2_000_000, group=2_000_000, extra_groups=(), cwd="/",
                check=True, capture_output=True,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, variables
    pytest.skip("all interpreters with Croupier's libraries are closed to other users")


@asynccontextmanager
async def isolated(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[Cluster, Owner]]:
    async with real_cluster(tmp_path, flags=QUICK) as cluster:
        cluster.agent_flags = flags
        path = os.pathsep.join([str(program("bwrap").parent), os.environ["PATH"]])
        cluster.environment = {**os.environ, "PATH": path}
        await cluster.start_agent("host0", HAS)
        async with owned(cluster, tmp_path) as own:
            yield cluster, own


def executor(python: str, variables: dict[str, str], *, network: bool) -> Task:
    return Task(
        [python, executor_program.__file__, "notes", "greet"],
        resources=EXECUTOR,
        env=variables,
        task_id="e1",
        executor=ExecutorSpec(),
        network=network,
        limits="mem:256MB",
    )


@pytest.mark.parametrize("flags", [OWN, BOXED], ids=["uid", "namespaces"])
async def test_an_isolated_executor_runs_tasks_and_survives_its_agent(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    python, variables = python_of_others() if flags is OWN else (sys.executable, {})
    async with isolated(tmp_path, *flags) as (cluster, own):
        task = executor(python, variables, network=flags is OWN)
        await own.launch(task, own.task("t1", "echo hello"))
        assert (await own.has("t1", TaskState.FINISHED)).data == b"hello"
        [sandbox] = tmp_path.glob("host0/sandboxes/*/e1")
        assert sandbox.stat().st_uid >= 100_000
        await eventually(lambda: own.messages, what="the executor has registered")
        await own.send_message("e1", b"ping")
        await eventually(lambda: len(own.messages) == 2, what="an answer")
        assert own.messages[1].data == b"re: ping"
        await own.launch(own.task("t2", "wait go"), own.task("t3", "sleep"))
        await own.has("t2", TaskState.RUNNING)
        await own.has("t3", TaskState.RUNNING)
        cluster.kill("host0")
        (sandbox / "go").write_text("")
        await cluster.start_agent("host0", HAS)
        await own.has("t2", TaskState.FINISHED)
        await own.kill("t3")
        assert (await own.has("t3", TaskState.KILLED)).reason is Reason.KILLED_BY_FRAMEWORK
        # What tasks use counts as the executor's. Only its own limit holds, not their resources.
        await own.launch(own.task("t4", "sleep"), own.task("t5", "hog 140000000"))
        await own.has("t5", TaskState.FINISHED)
        await own.launch(own.task("t6", "hog 140000000"))
        assert (await own.has("e1", TaskState.FAILED)).reason is Reason.MEMORY_LIMIT
        assert (await own.has("t4", TaskState.FAILED)).reason is Reason.EXECUTOR_TERMINATED
        assert (await own.has("t6", TaskState.FAILED)).reason is Reason.EXECUTOR_TERMINATED
        notes = (sandbox / "notes").read_text().splitlines()
        assert notes[0] == "registered "
        launched = Counter(each for each in notes if each.startswith("launched"))
        assert set(launched.values()) == {1}


@pytest.mark.parametrize("flags", [OWN, BOXED], ids=["uid", "namespaces"])
async def test_an_isolated_executor_of_mesos_is_known_by_its_uid(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    python = python_of_others()[0] if flags is OWN else sys.executable
    clients = packages.python_clients()
    [listen] = free_addresses(1)
    flags = (*flags, "--mesos-listen", str(listen))
    async with isolated(tmp_path, *flags) as (cluster, own):
        mesos = Task(
            [python, str(Path(packages.__file__).with_name("run_pymesos_executor.py")), "notes"],
            resources=EXECUTOR,
            task_id="e1",
            executor=ExecutorSpec(api="mesos"),
            env={"PYTHONPATH": str(clients)},
        )
        await own.launch(mesos, own.task("t1", "echo hello"), own.task("t2", "wait go"))
        assert (await own.has("t1", TaskState.FINISHED)).data == b"hello"
        await own.has("t2", TaskState.RUNNING)
        cluster.kill("host0")
        await cluster.start_agent("host0", HAS)
        [sandbox] = tmp_path.glob("host0/sandboxes/*/e1")
        assert sandbox.stat().st_uid >= 100_000
        (sandbox / "go").write_text("")
        await own.has("t2", TaskState.FINISHED)
