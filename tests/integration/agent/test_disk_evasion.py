"""Ways to take more disk than the limit, on a real agent, and a disk that runs low."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from croupier.agent.recover import clean_up
from croupier.model.isolation import NO_LIMITS, Limits
from croupier.model.task import Reason, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.scripted_master import ScriptedMaster, shell
from tests.harness.small_disks import on_small_disk, seen_by
from tests.integration.agent.conftest import Serving

RUNNING, FAILED, FINISHED = TaskState.RUNNING, TaskState.FAILED, TaskState.FINISHED
SMALL = "cpus:0.1;mem:16;disk:1"
# Files of 400 KiB each, below any limit of file sizes.
UNLINKED = (
    "exec 3>a 4>b 5>c 6>d; rm a b c d;"
    " for n in 3 4 5 6; do head -c 400k /dev/zero >&$n; done; sleep 600"
)
MANY = "seq 12000 | xargs touch; sleep 600"
# 1 MiB each.
GROW = "n=0; while :; do n=$((n+1)); head -c 1m /dev/zero >f$n; sleep 0.1; done"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (UNLINKED, "disk limit of 1.0 MiB exceeded; peak 1."),
        (MANY, "limit of 10000 files exceeded, for a disk limit of 1.0 MiB"),
    ],
)
async def test_a_task_that_evades_its_limit_is_ended(
    serving: Serving, master: ScriptedMaster, line: str, says: str
) -> None:
    master.launch(shell("evader", line, SMALL), shell("honest", "sleep 600", SMALL))
    # Thousands of files take long to make and to measure beside other tests.
    end = await master.state("evader", FAILED, 60.0)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert says in end.message
    assert master.states("honest")[-1] is RUNNING


async def test_temporary_files_are_in_the_sandbox(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    line = 'test "$(dirname $(mktemp))" = "$CROUPIER_SANDBOX" && mktemp -u -p ""'
    master.launch(shell("t1", line), shell("t2", "echo $TMPDIR"))
    await master.state("t1", FINISHED)
    await master.state("t2", FINISHED)
    (box,) = (tmp_path / "work/sandboxes").glob("*/t2")
    assert (box / "stdout").read_text().strip() == str(box)


def free_mib(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize >> 20


@pytest.fixture
async def prepared(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """Prepare an agent on a disk of 64 MiB of its own."""
    disk = tmp_path / "disk"
    resources = "cpus:4;mem:64MB;disk:64MB"
    agent = AgentProcess(master.address, disk / "work", tmp_path / "agent.log", resources)
    agent.prefix = on_small_disk(disk, "64m")
    yield agent
    # The disk is seen by the agent and its tasks only; a descriptor of it outlives the agent.
    work = os.open(seen_by(agent.pid, disk / "work"), os.O_RDONLY)
    try:
        agent.end()
        await clean_up(Path(f"/proc/self/fd/{work}"))
    finally:
        os.close(work)


async def test_a_task_that_names_no_disk_gets_a_quarter_of_it(
    prepared: AgentProcess, master: ScriptedMaster
) -> None:
    prepared.start()
    await master.agent()
    master.launch(shell("filler", GROW, "cpus:1"))
    end = await master.state("filler", FAILED, 30)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert "disk limit of 16.0 MiB exceeded" in end.message


async def test_the_largest_task_over_its_request_ends_before_the_disk_is_full(
    prepared: AgentProcess, master: ScriptedMaster
) -> None:
    master.acknowledges = False
    prepared.start("--default-limits", "disk:1GB")
    await master.agent()
    master.launch(
        shell("honest", "head -c 20m /dev/zero >f; sleep 600", "cpus:1;disk:24"),
        shell(
            "over", "head -c 3m /dev/zero >f; sleep 600", "cpus:1;disk:1", limits=Limits(disk=9_000)
        ),
    )
    for name in ("honest", "over"):
        await master.state(name, RUNNING)
    master.launch(shell("filler", GROW, "cpus:1", limits=NO_LIMITS))
    end = await master.state("filler", FAILED, 30)
    assert Reason(end.reason) is Reason.DISK_LIMIT
    assert "the disk of the agent was low: " in end.message
    assert " of 64.0 MiB were free; the task took " in end.message
    assert "more than the 0.0 MiB that it asked for" in end.message
    # Launches were never refused, and the space of the task is free although its end may be unread.
    disk = seen_by(prepared.pid, prepared.work_dir)
    await eventually(lambda: free_mib(disk) > 30, 30, "the files are removed")
    master.launch(shell("next", "head -c 24m /dev/zero >f", "cpus:1;disk:30"))
    await master.state("next", FINISHED)
    assert not master.refused()
    assert not any(health.problems for health in master.health())
    assert master.states("honest")[-1] is master.states("over")[-1] is RUNNING
