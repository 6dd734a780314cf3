"""Agents with default isolation: offenders beside an honest task, and kill -9 under tasks."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from croupier.model.task import Reason, TaskState
from tests.harness.neighbours import OFFENDERS, neighbourhood
from tests.harness.processes import is_running
from tests.harness.scripted_master import program

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give tasks uids of their own"),
    pytest.mark.skipif(shutil.which("perl") is None, reason="the tasks are in Perl"),
]
# Tests share the machine. `python -m tests.bench.isolation neighbours` tells the loss. Without
# isolation an offender leaves a hundredth.
LEAST = 0.3
TASKS = 100


async def test_an_honest_task_goes_on_beside_each_offender() -> None:
    async with neighbourhood() as neighbours:
        for offender in OFFENDERS:
            seen = await neighbours.best_beside(offender, LEAST)
            print(f"{seen.name:<24} {seen.rate:5.2f}  {seen.message}")
            assert seen.rate >= LEAST, seen


async def test_a_hundred_isolated_tasks_outlive_kill_9_of_the_agent_with_their_limits() -> None:
    names = [f"t{number}" for number in range(TASKS)]
    async with neighbourhood() as neighbours:
        master, agent = neighbours.master, neighbours.agent
        go = agent.work_dir.parent / "go"
        for number, name in enumerate(names):
            # Half of them exceed their limit of memory.
            then = "my $n = 40000000; my $x = 'a' x $n; exit 4" if number % 2 else "exit 3"
            script = f"select undef, undef, undef, 0.2 until -e '{go}'; {then}"
            resources = "cpus:0.01;mem:16MB"
            master.launch(program(name, "perl", "-e", script, resources=resources))
        pids = [(await master.state(name, TaskState.RUNNING, 60)).pid for name in names]
        agent.signal(signal.SIGKILL)
        await agent.ended()
        agent.start()
        await master.agent(2)
        assert all(is_running(pid) for pid in pids)
        go.touch()
        for number, name in enumerate(names):
            end = await master.state(name, TaskState.FAILED, 60)
            if number % 2:
                assert end.reason == Reason.MEMORY_LIMIT, end
                assert "memory limit of 16 MiB exceeded; peak 16 MiB" in end.message
            else:
                assert end.exit_code == 3, end
                assert end.reason == Reason.COMMAND_EXECUTOR_FAILED
            assert 0 < end.usage.memory_peak_bytes <= 16 << 20
            assert end.usage.cpu_ms > 0
