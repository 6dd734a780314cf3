"""Tasks in namespaces outlive an agent that is killed, and the next one reports their ends."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from croupier.model.task import TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.debian import program as tool
from tests.harness.scripted_master import F, ScriptedMaster, shell
from tests.integration.agent.conftest import registered

RUNNING, FAILED, KILLED = TaskState.RUNNING, TaskState.FAILED, TaskState.KILLED
WAITS = "while ! test -e gate; do sleep 0.05; done; echo /proc/[0-9]*; exit 7"


@pytest.fixture
async def boxing(
    master: ScriptedMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AgentProcess]:
    """Return a registered agent that gives namespaces to each task."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tool('bwrap').parent}")
    # The directory of a test is below a private one: the task is of the agent's own account.
    async with registered(master, tmp_path, isolation="process,namespaces") as agent:
        yield agent


async def test_boxed_tasks_keep_running_and_their_true_ends_are_reported(
    boxing: AgentProcess, master: ScriptedMaster
) -> None:
    line = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    master.launch(shell("t1", WAITS), shell("t2", line), shell("t3", "kill -SEGV $$"))
    pids = [(await master.state(name, RUNNING)).pid for name in ("t1", "t2")]
    assert (await master.state("t3", FAILED)).signal == signal.SIGSEGV
    boxing.signal(signal.SIGKILL)
    await boxing.ended()
    boxing.start()
    register = (await master.agent(2)).register
    assert register is not None
    home = boxing.work_dir / "sandboxes" / F
    (home / "t1" / "gate").touch()
    assert (await master.state("t1", FAILED)).exit_code == 7
    assert (home / "t1" / "stdout").read_text() == "/proc/1 /proc/2\n"
    master.kill("t2", grace_ms=5000)
    end = await master.state("t2", KILLED)
    assert (end.pid, end.exit_code) == (pids[1], 9)
