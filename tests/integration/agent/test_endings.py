"""Ends of an agent, by signals and by errors of its command line, and what it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.core.tasks import Key
from croupier.model.errors import Conflict, FailedOver, NotFound
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskState
from croupier.v1 import agent_pb2 as pb
from croupier.v1.exec_pb2 import ExecCommand
from croupier.wire.task import task_to_wire
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import collect
from tests.harness.processes import is_running, read_pid
from tests.harness.scripted_master import F, ScriptedMaster, program, shell
from tests.harness.supervisor_fixture import key
from tests.integration.agent.conftest import Start, registered

RUNNING, KILLED = TaskState.RUNNING, TaskState.KILLED

# A child in the group, one with its own session, a daemon, and a daemon without its environment.
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
    """Launch tasks of all kinds; return the pids of all their processes."""
    master.launch(
        shell("t1", CHILDREN),
        shell("t2", "exec env -i /bin/sleep 74 > /dev/null 2>&1"),
        shell("t3", "trap '' TERM HUP INT; while :; do sleep 0.1; done", grace_ms=60_000),
    )
    tasks = [(await master.state(name, RUNNING)).pid for name in ("t1", "t2", "t3")]
    children = await _pids(work_dir / "sandboxes" / F / "t1", "child", "daemon", "orphan", "bare")
    assert all(is_running(pid) for pid in (*tasks, *children))
    return tasks + children


@pytest.fixture
async def ending(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """Return a registered agent in a process of its own, with `--on-stop end`."""
    async with registered(master, tmp_path, "--on-stop", "end") as agent:
        yield agent


async def test_on_stop_end_leaves_no_process(ending: AgentProcess, master: ScriptedMaster) -> None:
    family = await _family(master, ending.work_dir)
    ending.signal(signal.SIGTERM)
    assert await ending.ended() == 0
    assert not any(is_running(pid) for pid in family)
    assert [master.states(name)[-1] for name in ("t1", "t2", "t3")] == [KILLED] * 3
    assert master.session.goodbye is not None


async def test_sigint_stops_the_agent_with_code_0(
    ending: AgentProcess, master: ScriptedMaster
) -> None:
    ending.signal(signal.SIGINT)
    assert await ending.ended() == 0
    assert master.session.goodbye is not None


async def test_on_stop_leave_sends_no_goodbye(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    family = await _family(master, process.work_dir)
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0
    assert all(is_running(pid) for pid in family)
    await eventually(lambda: master.session.is_over)
    assert master.session.goodbye is None
    process.start()
    again = await master.agent(sessions=2)
    assert again.register is not None
    assert {task.latest.state for task in again.register.tasks} == {RUNNING.value}
    assert len(again.register.tasks) == 3
    assert all(is_running(pid) for pid in family)


async def test_cleanup_ends_all_tasks_and_removes_the_records(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    family = await _family(master, process.work_dir)
    first = master.session.register
    process.signal(signal.SIGKILL)
    await process.ended()
    assert all(is_running(pid) for pid in family)
    process.start("--recover", "cleanup")
    assert await process.ended() == 0
    assert not any(is_running(pid) for pid in family)
    process.start()
    again = (await master.agent(sessions=2)).register
    assert first is not None
    assert again is not None
    assert again.agent_id != first.agent_id
    assert not again.tasks


async def test_an_id_taken_over_by_another_agent_is_one_line(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    master.launch(program("t1", "sleep", "60"))
    running = await master.state("t1", RUNNING)
    master.hang_up(FailedOver("a newer session of this agent has taken over"))
    assert await process.ended() == 1
    lines = process.log.read_text().splitlines()
    assert lines[-1] == "croupier-agent: a newer session of this agent has taken over"
    assert is_running(running.pid), "the tasks belong to the other agent now"


async def test_two_agents_cannot_share_a_work_dir(start: Start, master: ScriptedMaster) -> None:
    await start()
    with pytest.raises(Conflict, match="another agent uses the work dir"):
        await start()


# Commands beside tasks of an agent: their variables, over restarts, and which tasks have them.


VALUES = SecretValues({"PASSWORD": "hunter2"})
T1: Key = (F, key("t1")[1])


async def variables(agent: AgentDaemon) -> set[str]:
    one = await agent.execs.start(T1, ExecCommand(argv=["env"]))
    output, _ = await collect(one)
    assert (await one.wait()).exit_code == 0
    await one.close()
    found = set(output.splitlines())
    assert len([each for each in found if each.startswith("CROUPIER_EXEC_RUN=")]) == 1
    return {each for each in found if not each.startswith("CROUPIER_EXEC_RUN=")}


async def test_a_command_has_the_variables_and_secrets_of_its_task_over_restarts(
    start: Start, master: ScriptedMaster
) -> None:
    first = await start(on_stop="leave")
    await master.agent()
    with pytest.raises(NotFound):
        await variables(first.agent)
    info = program("t1", "sleep", "600", environment={"NAME": "a b"})
    info = replace(info, command=replace(info.command, secrets=VALUES.withheld()))
    launch = pb.LaunchTask(framework_id=F, task=task_to_wire(info, VALUES))
    master.order(pb.Order(launch=launch))
    pid = (await master.state("t1", TaskState.RUNNING)).pid
    told = set(Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0"))
    assert {"NAME=a b", "PASSWORD=hunter2"} < told
    assert await variables(first.agent) == told

    one = await first.agent.execs.start(T1, ExecCommand(argv=["sleep", "600"]))
    await first.end()
    assert (await one.wait()).signal is not None, "it ends with the agent"
    second = await start()
    await master.agent(2)
    assert await variables(second.agent) == told
    master.kill("t1", grace_ms=0)
    await master.state("t1", TaskState.KILLED)
    await eventually(lambda: not second.agent.state.is_live(T1))
    with pytest.raises(NotFound, match="task t1 does not run on this agent"):
        await variables(second.agent)


def run(*arguments: str) -> tuple[int, list[str]]:
    argv = [sys.executable, "-m", "croupier.agent", *arguments]
    environment = os.environ | {"CROUPIER_LOG_LEVEL": "error"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=30, env=environment, check=False
    )
    assert not done.stdout
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "0.0.0.0:0"], "can be reached from other machines"),
        (["--resources", "cpus:x"], "cpus: 'x' is not an amount"),
        (["--attributes", "rack"], "'rack' is not NAME:VALUE"),
        (["--master", "a:1,b:99999"], "is not a port"),
        (["--log-level", "loud"], "loud"),
        (["--bogus", "1"], "--bogus"),
    ],
)
def test_a_bad_value_is_one_line_and_code_2(arguments: list[str], message: str) -> None:
    code, lines = run(*arguments)
    assert code == 2
    (line,) = lines
    assert line.startswith("croupier-agent: ")
    assert message in line


def test_a_port_in_use_is_one_line_and_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, (line,) = run("--http", f"127.0.0.1:{port}", "--work-dir", str(tmp_path))
    assert code == 1
    assert line.startswith(f"croupier-agent: cannot listen on 127.0.0.1:{port}: ")
    assert line.endswith("Address already in use")


def test_an_unusable_work_dir_is_one_line_and_code_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, lines = run("--http", "127.0.0.1:0", "--work-dir", str(tmp_path / "file" / "work"))
    assert code == 1
    place = tmp_path / "file" / "work"
    assert lines == [f"croupier-agent: cannot use the work dir {place}: Not a directory"]


def test_damaged_records_are_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.log").write_text("nonsense\n")
    code, (line,) = run("--http", "127.0.0.1:0", "--work-dir", str(tmp_path))
    assert code == 1
    assert line == (
        f"croupier-agent: {tmp_path}/checkpoint.log is damaged: line 1 is damaged. Tasks"
        " keep running. To continue without the lost records, start with --recover=best-effort;"
        " to end all tasks of this agent and forget it, run with --recover=cleanup"
    )
    assert run("--recover", "cleanup", "--work-dir", str(tmp_path)) == (0, [])


def test_cleanup_refuses_a_work_dir_that_no_agent_has_used(tmp_path: Path) -> None:
    code, lines = run("--recover", "cleanup", "--work-dir", str(tmp_path / "typo"))
    assert code == 1
    assert "is not an agent's work dir" in lines[0]
    assert not (tmp_path / "typo").exists()
    assert not (tmp_path / "checkpoint.log").exists()


def test_the_command_loads_grpc_and_aiohttp_only_to_serve() -> None:
    code = """
import sys, croupier.agent.__main__
print([name for name in ("grpc", "aiohttp", "prometheus_client") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
