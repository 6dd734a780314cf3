"""An unhealthy agent refuses launches after few failures, and takes them again once healthy."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from croupier.agent import health_check
from croupier.agent.core.events import HealthChecked
from croupier.agent.machine import LocalMachine
from croupier.agent.recover import clean_up
from croupier.model.agent_orders import LaunchTask
from croupier.model.health import LAUNCH, Problem
from croupier.model.ids import DEFAULT_ROLE
from croupier.model.task import TaskState
from croupier.v1 import agent_pb2 as pb
from tests.harness import small_disks
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.integration.agent.conftest import RESOURCES, Serving

FAILED, FINISHED, RUNNING = TaskState.FAILED, TaskState.FINISHED, TaskState.RUNNING
# Launches may fail until the first failure has triggered a check of the work dir.
FEW = 20


async def launch_each(master: ScriptedMaster, count: int, first: int = 0) -> list[str]:
    """Launch tasks one after the other; return those that were not refused."""
    updated = []
    for number in range(first, first + count):
        name = f"t{number}"
        master.launch(shell(name, "true"))
        await eventually(lambda name=name: _is_answered(master, name), what=f"{name} is answered")  # type: ignore[misc]
        if name not in master.refused():
            updated.append(name)
    return updated


def _is_answered(master: ScriptedMaster, name: str) -> bool:
    states = master.states(name)
    return bool(states and states[-1].is_terminal) or name in master.refused()


async def until_healthy(master: ScriptedMaster) -> None:
    """Wait until the agent has reported that it is healthy."""

    def is_healthy() -> bool:
        return not master.health()[-1].problems

    await eventually(is_healthy, what="the agent is healthy again")


async def readiness(serving: Serving) -> tuple[int, str]:
    url = f"http://{serving.agent.http_address}/readyz"
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status, await response.text()


def parts(health: pb.AgentHealth) -> set[str]:
    return {problem.part for problem in health.problems}


async def test_a_removed_work_dir_fails_few_launches(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    master.launch(shell("before", "sleep 60"))
    await master.state("before", RUNNING)
    shutil.rmtree(tmp_path / "work")
    failed = await launch_each(master, 100)
    assert len(failed) <= FEW
    assert parts(master.health()[-1]) == {"work-dir", "checkpoint"}
    assert "was removed or replaced" in master.refused()["t99"]
    status, text = await readiness(serving)
    assert status == 503
    assert text.startswith("unhealthy: ")
    assert "drain it, then start it again" in text
    # Tasks keep running, and can be killed.
    assert serving.agent.state.is_live(next(iter(serving.agent.state.tasks)))
    master.kill("before", 0)
    await eventually(lambda: _is_answered(master, "before"), what="the task has ended")
    assert not serving.task.done()


async def test_a_restored_work_dir_is_used_again(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    (tmp_path / "work").rename(tmp_path / "aside")
    await launch_each(master, FEW)
    assert master.refused()
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
    (tmp_path / "aside").rename(tmp_path / "work")
    await until_healthy(master)
    master.launch(shell("after", "true"))
    await master.state("after", FINISHED)
    assert await readiness(serving) == (200, "ready\n")


async def test_missing_directories_are_created_again(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "work" / "runs")
    updated = await launch_each(master, 50)
    # The last ones may find a healthy agent.
    assert sum(master.states(name)[-1] is FAILED for name in updated) <= FEW
    assert parts(master.health()[0]) == {"work-dir"}
    await until_healthy(master)
    assert await launch_each(master, 1, 50) == ["t50"]
    assert master.states("t50")[-1] is FINISHED


@contextmanager
def hanging_disk() -> Iterator[None]:
    """Make commits hang within the context, and report them after 50 ms."""
    answers, sync = threading.Event(), os.fdatasync

    def hang(fd: int) -> None:
        assert answers.wait(60)
        sync(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health_check, "ANSWER_S", 0.05)
        patch.setattr(os, "fdatasync", hang)
        try:
            yield
        finally:
            answers.set()


async def test_a_commit_that_hangs_is_reported_before_its_batch_is_performed(
    serving: Serving, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[str] = []
    has = LocalMachine.has_sandbox

    def has_sandbox(machine: LocalMachine, order: LaunchTask) -> bool:
        looked_for.append(order.task.task_id)
        return has(machine, order)

    monkeypatch.setattr(LocalMachine, "has_sandbox", has_sandbox)
    with hanging_disk():
        master.launch(shell("first", "true"))
        await eventually(lambda: bool(master.health()), 30, "the master has a report")
        assert parts(master.health()[-1]) == {"work-dir"}
        assert (await readiness(serving))[0] == 503
        assert not master.states("first")
        master.launch(shell("late", "true"))
        await eventually(lambda: _waits(serving, "late"), 30, "the launch has arrived")
    await master.state("first", FINISHED)
    await eventually(lambda: _is_answered(master, "late"), 30, "the launch is answered")
    assert "does not answer" in master.refused()["late"]
    assert looked_for == ["first"]
    await until_healthy(master)


async def test_a_recovery_in_a_hanging_batch_does_not_hide_the_problem(
    serving: Serving, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = serving.agent._inbox.put_now

    async def no_answer(*_: object) -> None:
        pass

    # The test sends the results of checks.
    monkeypatch.setattr(health_check.HealthCheck, "_answer", no_answer)
    put(HealthChecked((Problem(LAUNCH, "the shim is gone"),)))
    await eventually(lambda: bool(master.health()), 30, "the agent is unhealthy")
    with hanging_disk():
        put(HealthChecked((), is_thorough=True))
        put(LaunchTask(F, shell("t", "true"), DEFAULT_ROLE))
        await eventually(lambda: len(master.health()) > 1, 30, "the master has a report")
    await master.state("t", FINISHED)
    assert [parts(reported) for reported in master.health()][1:] == [{"work-dir"}] * 2


def _waits(serving: Serving, name: str) -> bool:
    events = [event for event, _ in serving.agent._inbox._events]
    return any(isinstance(event, LaunchTask) and event.task.task_id == name for event in events)


@pytest.fixture
async def on_small_disk(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """Start an agent whose work dir is a disk of 16 MB in its own mount namespace."""
    work = tmp_path / "work"
    prefix = small_disks.on_small_disk(work, "16m")
    agent = AgentProcess(master.address, work, tmp_path / "agent.log", RESOURCES, "--on-stop=end")
    agent.prefix = prefix
    agent.start()
    try:
        await master.agent()
        yield agent
    finally:
        agent.end()
        await clean_up(work)


async def test_a_full_disk_keeps_its_reserve_for_ends(
    on_small_disk: AgentProcess, master: ScriptedMaster
) -> None:
    work = small_disks.seen_by(on_small_disk.pid, on_small_disk.work_dir)
    master.launch(shell("before", "for _ in $(seq 3000); do [ -e go ] && exit 7; sleep 0.02; done"))
    await master.state("before", RUNNING)
    small_disks.fill(work)
    # The records of these would take several times the reserve.
    tasks = [shell(f"t{number}", "true") for number in range(4000)]
    for begin in range(0, len(tasks), 100):
        master.launch(*tasks[begin : begin + 100])
    answered = {task.task_id for task in tasks}
    await eventually(
        lambda: answered <= {*master.refused(), *(s.task_id for s in master.statuses)},
        60,
        "all are answered",
    )
    reported = {status.task_id for status in master.statuses} - {"before"}
    assert len(reported) <= 200
    assert parts(master.health()[-1]) == {"disk"}
    sandbox = next((work / "sandboxes").glob("*/before*"))
    os.mkfifo(sandbox / "go")
    assert (await master.state("before", FAILED)).exit_code == 7
    small_disks.make_room(work)
    await until_healthy(master)
    master.launch(shell("after", "true"))
    await master.state("after", FINISHED)
