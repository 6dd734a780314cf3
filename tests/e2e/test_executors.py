"""Executors on real agents: they outlive agents and masters, and run each task once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.model.task import Reason
from croupier.sdk import (
    Conflict,
    ExecutorSpec,
    Framework,
    InvalidRequest,
    Message,
    Offer,
    Resources,
    Task,
    TaskState,
    TaskStatus,
    TaskVerdict,
)
from tests.harness import executor_program
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

HAS = "cpus:4;mem:4GB;disk:1GB"
EXECUTOR = Resources.parse("cpus:0.1;mem:64MB")
UNIT = Resources.parse("cpus:0.1;mem:32MB")
QUICK = ("--heartbeat", "0.5", "--agent-timeout", "60")
PROGRAM = executor_program.__file__


class Owner(Framework):
    """A framework of one executor `e1`."""

    def __init__(self, master: str, notes: Path) -> None:
        super().__init__(name="owner", master=master, demand=EXECUTOR + UNIT)
        self.notes = notes
        self.offers: asyncio.Queue[Offer] = asyncio.Queue()
        self.updates: list[TaskStatus] = []
        self.messages: list[Message] = []

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            self.offers.put_nowait(offer)

    async def on_update(self, status: TaskStatus) -> None:
        self.updates.append(status)

    async def on_message(self, message: Message) -> None:
        self.messages.append(message)

    async def launch(self, *tasks: Task) -> list[TaskVerdict]:
        while True:
            verdicts = await self.accept(await self.offers.get(), tasks, refuse_s=0.0)
            # Else the offer has ended.
            if not any(isinstance(verdict.error, Conflict) for verdict in verdicts):
                return verdicts

    def executor(self, way: str = "", spec: ExecutorSpec | None = None) -> Task:
        command = [sys.executable, PROGRAM, str(self.notes), way]
        return Task(
            command,
            resources=EXECUTOR,
            task_id="e1",
            executor=spec or ExecutorSpec(),
            data=b"mine",
        )

    def task(self, task_id: str, data: str, grace_s: float = 3.0) -> Task:
        return Task(
            resources=UNIT,
            task_id=task_id,
            executor_id="e1",
            data=data.encode(),
            grace_s=grace_s,
        )

    def states(self, task_id: str) -> list[TaskState]:
        return [status.state for status in self.updates if status.task_id == task_id]

    async def has(self, task_id: str, state: TaskState) -> TaskStatus:
        def found() -> bool:
            return state in self.states(task_id)

        await eventually(found, 30, what=f"{task_id} is {state:s}")
        same = [each for each in self.updates if each.task_id == task_id]
        return next(each for each in same if each.state is state)

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@asynccontextmanager
async def owned(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Owner]:
    owner = Owner(cluster.master, tmp_path / "notes")
    running = asyncio.create_task(owner.run())
    try:
        yield owner
    finally:
        await owner.stop(teardown=True)
        await running


async def test_tasks_run_in_an_executor(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        verdicts = await own.launch(
            own.task("t0", "echo early"), own.executor(), own.task("t1", "echo hello")
        )
        refused, *rest = verdicts
        assert isinstance(refused.error, InvalidRequest)
        assert [verdict.error for verdict in rest] == [None, None]
        status = await own.has("t1", TaskState.FINISHED)
        assert (status.data, status.message) == (b"hello", "done")
        assert own.states("t1") == [
            TaskState.STARTING,
            TaskState.RUNNING,
            TaskState.FINISHED,
        ]
        assert dict((await own.has("t1", TaskState.RUNNING)).labels)["pid"].isdigit()
        await own.send_message("e1", b"ping")
        await eventually(lambda: own.messages, what="an answer")
        assert own.messages[0].data == b"re: ping"
        assert own.messages[0].executor_id == "e1"
        # A submitted task is placed where its executor is.
        [verdict] = await own.submit([own.task("t2", "echo submitted")])
        assert verdict.error is None
        assert (await own.has("t2", TaskState.FINISHED)).data == b"submitted"
        await own.launch(own.task("t3", "sleep"), own.task("t4", "fail"))
        await own.has("t3", TaskState.RUNNING)
        assert (await own.has("t4", TaskState.FAILED)).message == "as asked"
        await own.kill("t3")
        assert (await own.has("t3", TaskState.KILLED)).reason is Reason.KILLED_BY_FRAMEWORK
        await own.launch(own.task("t5", "sleep"))
        await own.has("t5", TaskState.RUNNING)
        await own.kill("e1")
        assert (await own.has("e1", TaskState.KILLED)).reason is Reason.KILLED_BY_FRAMEWORK
        assert (await own.has("t5", TaskState.KILLED)).message.startswith("its executor e1 ended")
        assert own.noted()[0] == "registered mine"
        assert own.noted()[-1] == "shutdown"
        with pytest.raises(Conflict):
            await own.send_message("e1", b"ping")
        [verdict] = await own.launch(own.task("t6", "echo late"))
        assert isinstance(verdict.error, InvalidRequest)


async def test_executors_and_their_tasks_survive_the_agent_and_the_master(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        go = tmp_path / "go"
        await own.launch(own.executor(), *(own.task(f"t{n}", f"wait {go}") for n in range(5)))
        for number in range(5):
            await own.has(f"t{number}", TaskState.RUNNING)
        cluster.kill("host0")
        # What ends meanwhile is told to the next agent.
        go.write_text("")
        await asyncio.sleep(0.5)
        cluster.kill("master")
        await cluster.start_master(*QUICK)
        await cluster.start_agent("host0", HAS)
        for number in range(5):
            status = await own.has(f"t{number}", TaskState.FINISHED)
            assert status.data == str(go).encode()
        await own.launch(own.task("t9", "echo again"))
        await own.has("t9", TaskState.FINISHED)
        launched = Counter(each for each in own.noted() if each.startswith("launched"))
        assert set(launched.values()) == {1}
        assert len(launched) == 6
        assert own.states("e1") == [TaskState.STARTING, TaskState.RUNNING]
        assert all(len(set(own.states(f"t{n}"))) == len(own.states(f"t{n}")) for n in range(5))


async def test_executors_that_do_not_register_or_end_their_tasks_are_ended(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        spec = ExecutorSpec(registration_timeout_ms=1000)
        await own.launch(own.executor("silent", spec), own.task("t1", "sleep"))
        ended = await own.has("e1", TaskState.FAILED)
        assert ended.reason is Reason.EXECUTOR_REGISTRATION_TIMEOUT
        ended = await own.has("t1", TaskState.FAILED)
        assert ended.reason is Reason.EXECUTOR_REGISTRATION_TIMEOUT


async def test_an_executor_that_ignores_a_kill_is_ended(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        spec = ExecutorSpec(shutdown_grace_ms=500)
        tasks = (own.task("t1", "sleep", grace_s=0.5), own.task("t2", "sleep"))
        await own.launch(own.executor("hang", spec), *tasks)
        await own.has("t2", TaskState.RUNNING)
        await own.has("t1", TaskState.RUNNING)
        await own.kill("t1")
        assert (await own.has("e1", TaskState.FAILED)).reason is Reason.EXECUTOR_TERMINATED
        assert (await own.has("t2", TaskState.FAILED)).reason is Reason.EXECUTOR_TERMINATED
        assert (await own.has("t1", TaskState.KILLED)).reason is Reason.KILLED_BY_FRAMEWORK


async def test_the_next_agent_ends_an_executor_that_died_or_does_not_return(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        await own.launch(own.executor(), own.task("t1", "sleep"))
        running = await own.has("t1", TaskState.RUNNING)
        pid = int(dict(running.labels)["pid"])
        cluster.kill("host0")
        os.kill(pid, signal.SIGSTOP)
        await cluster.start_agent(
            "host0", HAS, "--executor-reregistration-timeout", "1s", on_stop="end"
        )
        ended = await own.has("t1", TaskState.GONE)
        assert ended.reason is Reason.EXECUTOR_REREGISTRATION_TIMEOUT
        ended = await own.has("e1", TaskState.FAILED)
        assert ended.reason is Reason.EXECUTOR_REREGISTRATION_TIMEOUT


EXAMPLE = Path(__file__).parents[2] / "framework_sdk" / "examples" / "worker_pool.py"


async def test_the_example_gives_up_once_its_workers_cannot_start(tmp_path: Path) -> None:
    missing = f"import sys; sys.argv[0] = {str(EXAMPLE)!r}; sys.executable = '/no/such/python'"
    program = f"{missing}; import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, "50",
            env={**os.environ, "CROUPIER_MASTER": cluster.master},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
        assert process.returncode == 1
        assert "worker pool: 3 workers in a row ended before a job: " in errors.decode()
        assert "/no/such/python" in errors.decode()


async def test_the_example_adds_up_what_its_workers_return(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, HAS, flags=QUICK) as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", str(EXAMPLE), "50",
            env={**os.environ, "CROUPIER_MASTER": cluster.master},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert (process.returncode, out.decode()) == (0, "the sum of the squares is 42925\n")


async def test_a_flood_of_updates_and_messages_ends(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        tasks = (own.task("t1", "flood 300"), own.task("t2", "chatter 1000"))
        await own.launch(own.executor(), *tasks)
        await own.has("t1", TaskState.FINISHED)
        await own.has("t2", TaskState.FINISHED)
        numbers = [status.sequence for status in own.updates if status.task_id == "t1"]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_the_tasks_of_an_executor_that_exits_fail(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, HAS, flags=QUICK) as cluster, owned(cluster, tmp_path) as own:
        await own.launch(own.executor(), own.task("t1", "sleep"), own.task("t2", "exit 3"))
        ended = await own.has("t1", TaskState.FAILED)
        assert ended.reason is Reason.EXECUTOR_TERMINATED
        assert ended.message == "its executor e1 ended: exited with code 3"
        assert (await own.has("e1", TaskState.FAILED)).exit_code == 3
