"""Tasks as real processes of an agent in this process."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from croupier.agent.__main__ import OWN_OOM_SCORE
from croupier.model.ids import FrameworkId
from croupier.model.task import Reason, Source, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.scripted_master import F, ScriptedMaster, program, shell
from tests.integration.agent.conftest import Serving, Start

RUNNING, FINISHED, FAILED = TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED
KILLED, DROPPED = TaskState.KILLED, TaskState.DROPPED


def sandbox(tmp_path: Path, task_id: str) -> Path:
    return tmp_path / "work" / "sandboxes" / F / task_id


async def test_register_carries_the_configuration(serving: Serving, master: ScriptedMaster) -> None:
    register = master.session.register
    assert register is not None
    assert (register.agent_id, register.hostname) == (serving.agent.state.agent_id, "host-1")
    assert not register.incomplete
    assert register.resources.cpus_milli == 4000
    assert register.http_address == str(serving.agent.http_address)
    assert register.sent_ms > 0
    assert register.boot_id
    assert register.version


async def test_echo_writes_its_output_and_finishes(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    master.launch(shell("t1", "echo out; echo err >&2"))
    finished = await master.state("t1", FINISHED)
    assert master.states("t1") == [TaskState.STARTING, RUNNING, FINISHED]
    assert [s.sequence for s in master.of("t1")] == [1, 2, 3]
    assert (finished.exit_code, finished.agent_id) == (0, serving.agent.state.agent_id)
    assert finished.source == Source.EXECUTOR
    assert (sandbox(tmp_path, "t1") / "stdout").read_text() == "out\n"
    assert (sandbox(tmp_path, "t1") / "stderr").read_text() == "err\n"
    await eventually(lambda: not serving.agent.state.tasks, what="the task is forgotten")


async def test_a_signal_is_reported(serving: Serving, master: ScriptedMaster) -> None:
    master.launch(shell("t1", "kill -SEGV $$"))
    failed = await master.state("t1", FAILED)
    assert (failed.signal, failed.message) == (11, "ended by signal 11 (SIGSEGV)")
    assert not failed.HasField("exit_code")


async def test_failed_launches_carry_the_reason(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    sandbox(tmp_path, "t4").parent.with_name("F2").write_text("in the way")
    master.launch(
        program("t1", "/no/such/program"),
        program("t2", str(garbage)),
        program("t3", str(plain)),
        shell("t5", "true", user="nobody-at-all"),
    )
    master.launch(shell("t4", "true"), framework_id=FrameworkId("F2"))
    expected = {
        "t1": "cannot run '/no/such/program': no such program, or its interpreter is missing",
        "t2": f"cannot run '{garbage}': exec format error",
        "t3": f"cannot run '{plain}': permission denied",
        "t4": "cannot make the sandbox: Not a directory",
        "t5": "there is no user 'nobody-at-all' on this agent",
    }
    codes = {"t1": 127, "t2": 126, "t3": 126}
    for task_id, message in expected.items():
        failed = await master.state(task_id, FAILED)
        assert failed.exit_code == codes.get(task_id, 0)
        assert failed.HasField("exit_code") == (task_id in codes)
        assert failed.message.startswith(message)
        assert failed.reason == Reason.CONTAINER_LAUNCH_FAILED
        assert failed.source == Source.AGENT
        assert master.states(task_id) == [TaskState.STARTING, FAILED]
    assert serving.agent.state.free == serving.agent.state.total


async def test_a_task_that_has_run_is_not_run_again(
    process: AgentProcess, master: ScriptedMaster, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    wait = "until [ -e stdout ]; do sleep 0.01; done"
    line = f"echo ran >> {ledger}; {wait}; rm stdout; mkfifo stdout"
    master.launch(shell("t1", line))
    await master.state("t1", FINISHED)
    for sessions in (2, 3):
        master.statuses.clear()
        # As a master with an older copy of its store does.
        master.launch(shell("t1", line))
        dropped = await master.state("t1", DROPPED)
        assert dropped.reason == Reason.TASK_INVALID
        assert dropped.message.startswith("a task of this id has run on this agent before")
        process.signal(signal.SIGKILL)
        await process.ended()
        process.start()
        await master.agent(sessions)
    assert ledger.read_text() == "ran\n"


async def test_a_task_with_a_sandbox_that_never_started_is_started(
    start: Start, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class KilledError(BaseException):
        pass

    def kill(*arguments: object) -> None:
        raise KilledError

    serving = await start()
    await master.agent()
    with monkeypatch.context() as patched:
        patched.setattr("croupier.agent.supervisor.start_shim", kill)
        patched.setattr("croupier.agent.supervisor.WaitingShims.launch", kill)
        master.launch(shell("t1", "echo ran"))
        with pytest.raises(KilledError):
            await serving.task
    assert sandbox(tmp_path, "t1").exists()
    await start()
    await master.state("t1", FINISHED)
    assert (sandbox(tmp_path, "t1") / "stdout").read_text() == "ran\n"


async def test_a_missing_shim_is_named(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    for shim in (tmp_path / "work").glob("shim-*"):
        shim.unlink()
    master.launch(shell("t1", "true"))
    failed = await master.state("t1", FAILED)
    assert failed.message == "cannot start the shim of '/bin/sh': No such file or directory"


async def test_the_kernel_kills_tasks_before_the_agent(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    may = subprocess.run(
        ["/bin/sh", "-c", f"echo {OWN_OOM_SCORE} > /proc/self/oom_score_adj"],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    own = int(Path("/proc/self/oom_score_adj").read_text())
    agent = int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())
    assert agent == (own if may.returncode else OWN_OOM_SCORE)
    master.launch(program("t1", "sleep", "60"))
    pid = (await master.state("t1", RUNNING)).pid
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) >= 500


async def test_the_environment_is_clean_and_has_the_ports(
    serving: Serving, master: ScriptedMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_AGENT", "x")
    mine = {"GREETING": "hello", "HOME": "/elsewhere", "CROUPIER_TASK_RUN": "forged"}
    ports = "cpus:0.1;ports:[31005-31006,31001]"
    master.launch(shell("t1", "env; pwd", ports, environment=mine))
    await master.state("t1", FINISHED)
    lines = (sandbox(tmp_path, "t1") / "stdout").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines[:-1] if "=" in line)
    assert lines[-1] == str(sandbox(tmp_path, "t1"))
    wanted = {
        "PORT0": "31001", "PORT1": "31005", "PORT2": "31006", "GREETING": "hello",
        "HOME": "/elsewhere", "CROUPIER_TASK_ID": "t1", "CROUPIER_FRAMEWORK_ID": F,
        "CROUPIER_AGENT_ID": serving.agent.state.agent_id,
        "CROUPIER_SANDBOX": str(sandbox(tmp_path, "t1")),
    }  # fmt: skip
    assert wanted.items() <= seen.items()
    assert "A_SECRET_OF_THE_AGENT" not in seen
    assert "PORT3" not in seen
    assert seen["CROUPIER_TASK_RUN"] != "forged"


async def test_a_kill_lets_a_task_end_by_itself(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    master.launch(shell("t1", "trap 'exit 5' TERM; echo; while :; do sleep 0.05; done"))
    await master.state("t1", RUNNING)
    out = sandbox(tmp_path, "t1") / "stdout"
    await eventually(lambda: out.exists() and out.stat().st_size, what="the trap is set")
    master.kill("t1", grace_ms=20_000, reason=int(Reason.KILLED_BY_FRAMEWORK))
    killed = await master.state("t1", KILLED)
    assert killed.exit_code == 5
    assert killed.reason == Reason.KILLED_BY_FRAMEWORK
    assert master.states("t1")[2:] == [TaskState.KILLING, KILLED]
