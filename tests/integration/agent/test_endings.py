"""However an agent ends, its tasks end with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from croupier.model.errors import Conflict, FailedOver
from croupier.model.task import TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.processes import is_running, read_pid, running_as
from tests.harness.scripted_master import F, ScriptedMaster, program, shell
from tests.integration.agent.conftest import Serving, Start

RUNNING, KILLED = TaskState.RUNNING, TaskState.KILLED

# A child in the group, one that made a session of its own, one that is a daemon of init, and
# a daemon that shed its environment.
CHILDREN = """
sleep 71 & echo $! > child
setsid sh -c 'echo $$ > daemon; exec sleep 72' &
sh -c 'setsid sh -c "echo \\$\\$ > orphan; exec sleep 73" & exit 0'
env -i setsid sh -c 'echo $$ > bare; exec sleep 75' &
wait
"""


async def _pids(folder: Path, *names: str) -> list[int]:
    await eventually(lambda: all(read_pid(folder / name) for name in names), what=str(names))
    return [read_pid(folder / name) or 0 for name in names]


async def _family(master: ScriptedMaster, work_dir: Path) -> list[int]:
    """Tasks of all kinds; the pids of all that they have started."""
    master.launch(
        shell("t1", CHILDREN),
        shell("t2", "exec env -i /bin/sleep 74 > /dev/null 2>&1"),
        shell("t3", "trap '' TERM HUP INT; while :; do sleep 0.1; done", grace_ms=60_000),
    )
    tasks = [(await master.state(name, RUNNING)).pid for name in ("t1", "t2", "t3")]
    children = await _pids(work_dir / "sandboxes" / F / "t1", "child", "daemon", "orphan", "bare")
    assert all(is_running(pid) for pid in (*tasks, *children))
    return tasks + children


async def test_an_agent_that_is_killed_leaves_nothing(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    family = await _family(master, process.work_dir)
    process.signal(signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL
    await eventually(lambda: not any(is_running(pid) for pid in family), what="all are gone")


async def test_an_agent_that_is_killed_amid_launches_leaves_nothing(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    seconds = f"600.{os.getpid()}"
    bare = ("env", "-i", "/bin/sleep", seconds)
    master.launch(*(program(f"t{n}", *bare, resources="cpus:0.001") for n in range(300)))
    await eventually(lambda: len(master.statuses) > 200)
    assert running_as(f"/bin/sleep {seconds}")
    process.signal(signal.SIGKILL)
    await process.ended()
    await eventually(lambda: not running_as(f"/bin/sleep {seconds}"), what="all are gone")


async def test_an_agent_that_is_asked_to_end_leaves_nothing(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    family = await _family(master, process.work_dir)
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0
    assert not any(is_running(pid) for pid in family)
    assert [master.states(name)[-1] for name in ("t1", "t2", "t3")] == [KILLED] * 3
    assert master.session.goodbye is not None


async def test_an_agent_that_is_interrupted_ends_in_order(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    process.signal(signal.SIGINT)
    assert await process.ended() == 0
    assert master.session.goodbye is not None


async def test_an_agent_whose_id_is_taken_over_says_so_in_one_line(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    master.hang_up(FailedOver("a newer session of this agent has taken over"))
    assert await process.ended() == 1
    said = process.log.read_text().splitlines()
    assert said[-1] == "croupier-agent: a newer session of this agent has taken over"


async def test_a_watchdog_that_dies_is_replaced_and_knows_what_runs(
    serving: Serving, master: ScriptedMaster
) -> None:
    guard = serving.agent.guard
    first = guard.pid
    assert first is not None
    master.launch(program("t1", "sleep", "60"))
    pid = (await master.state("t1", RUNNING)).pid
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: guard.pid not in (None, first), what="another watchdog")
    assert is_running(pid), "no task suffers for it"
    assert master.states("t1")[-1] is RUNNING
    await serving.end()
    assert not is_running(pid)


async def test_two_agents_cannot_share_a_work_dir(start: Start, master: ScriptedMaster) -> None:
    await start()
    with pytest.raises(Conflict, match="another agent uses the work dir"):
        await start()


async def test_an_agent_does_not_begin_beside_the_tasks_of_the_last(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    family = await _family(master, process.work_dir)
    process.signal(signal.SIGKILL)
    await process.ended()
    process.start()
    again = await master.agent(sessions=2)
    assert not any(is_running(pid) for pid in family)
    assert again.register is not None
    assert (again.register.agent_id, list(again.register.tasks)) == ("A1", [])
