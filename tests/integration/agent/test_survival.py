"""Tasks outlive their agent, and the next agent reports all their states."""

from __future__ import annotations

import os
import signal
from binascii import a2b_base64
from pathlib import Path

import pytest

from croupier.agent.isolation.process import landlock_version
from croupier.agent.record_lines import body_in
from croupier.model.errors import InvalidRequest, NotLeader, Unavailable
from croupier.model.task import Reason, TaskState
from croupier.v1 import agent_pb2 as pb
from tests.harness.agent_process import AgentProcess
from tests.harness.eventually import eventually
from tests.harness.processes import is_running, running_as
from tests.harness.scripted_master import F, ScriptedMaster, program, shell
from tests.integration.agent.conftest import RESOURCES, Start

RUNNING, FINISHED, FAILED = TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED
KILLED, GONE = TaskState.KILLED, TaskState.GONE
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have its processes only")


def agent_apart(
    master: ScriptedMaster, directory: Path, isolation: str = "process"
) -> AgentProcess:
    """Return an agent in a pid namespace whose first process, a shell, survives `kill -1`."""
    log = directory / "agent.log"
    agent = AgentProcess(master.address, directory / "work", log, RESOURCES, isolation=isolation)
    words = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    agent.prefix = (*words, "/bin/sh", "-c", 'while :; do "$@"; sleep 0.1; done', "sh")
    return agent


async def killed(process: AgentProcess) -> None:
    process.signal(signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL


async def returned(master: ScriptedMaster, sessions: int = 2) -> dict[str, pb.AgentTask]:
    """Return the tasks in REGISTER of the next agent."""
    register = (await master.agent(sessions)).register
    assert register is not None
    return {task.task.task_id: task for task in register.tasks}


def until(gate: Path, code: int) -> str:
    """Return a shell line that exits with a code once a file exists."""
    return f"while ! test -e {gate}; do sleep 0.02; done; exit {code}"


async def test_tasks_keep_running_and_their_true_ends_are_reported(
    process: AgentProcess, master: ScriptedMaster, tmp_path: Path
) -> None:
    gates = [tmp_path / f"gate{n}" for n in range(2)]
    master.launch(*(shell(f"t{n}", until(gates[n // 6], n)) for n in range(12)))
    pids = {f"t{n}": (await master.state(f"t{n}", RUNNING)).pid for n in range(12)}
    await killed(process)
    gates[0].touch()
    await eventually(lambda: not any(is_running(pids[f"t{n}"]) for n in range(6)))
    process.start()
    reported = await returned(master)
    assert {name: task.latest.pid for name, task in reported.items()} == pids
    assert all(is_running(pids[f"t{n}"]) for n in range(6, 12))
    gates[1].touch()
    for n in range(12):
        end = await master.state(f"t{n}", FAILED if n else FINISHED)
        assert (end.exit_code, end.pid, end.sequence) == (n, pids[f"t{n}"], 3)
        numbers = [status.sequence for status in master.of(f"t{n}")]
        assert sorted(set(numbers)) == [1, 2, 3]


async def test_unacknowledged_updates_keep_their_numbers(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    master.acknowledges = False
    master.launch(shell("t1", "exit 7"), program("t2", "sleep", "60"))
    await master.state("t1", FAILED)
    await master.state("t2", RUNNING)
    before = {(s.task_id, s.sequence): s.SerializeToString() for s in master.statuses}
    for sessions in (2, 3):
        await killed(process)
        process.start()
        for name, task in (await returned(master, sessions)).items():
            reported = {(name, s.sequence): s.SerializeToString() for s in task.unacknowledged}
            assert reported.items() == {k: v for k, v in before.items() if k[0] == name}.items()
    master.acknowledge("t1", 3)
    master.acknowledge("t2", 2)
    master.launch(shell("t3", "true"))
    await master.state("t3", FINISHED)
    await killed(process)
    process.start()
    assert set(await returned(master, 4)) == {"t2", "t3"}


async def test_an_agent_killed_during_launches_starts_each_task_once(
    process: AgentProcess, master: ScriptedMaster, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    line = f'echo "$CROUPIER_TASK_ID" >> {ledger}'
    tasks = [shell(f"t{n}", line, resources="cpus:0.001") for n in range(200)]
    sessions = 1
    master.launch(*tasks)
    for after in (20, 60, 120):
        await eventually(lambda after=after: len(master.statuses) > after)  # type: ignore[misc]
        await killed(process)
        process.start()
        sessions += 1
        reported = await returned(master, sessions)
        # As a master does: a task that the agent does not know is launched again.
        known = set(reported) | {s.task_id for s in master.statuses}
        master.launch(*(task for task in tasks if task.task_id not in known))
    for task in tasks:
        assert (await master.state(task.task_id, FINISHED)).exit_code == 0
    assert sorted(ledger.read_text().split()) == sorted(task.task_id for task in tasks)


async def test_the_next_agent_carries_out_a_kill(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    master.launch(shell("t1", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    pid = (await master.state("t1", RUNNING)).pid
    output = process.work_dir / "sandboxes" / F / "t1" / "stdout"
    await eventually(lambda: output.read_text() == "up\n")
    master.kill("t1", grace_ms=1500)
    await master.state("t1", TaskState.KILLING)
    await killed(process)
    assert is_running(pid)
    process.start()
    end = await master.state("t1", KILLED)
    assert (end.reason, end.signal) == (Reason.NONE, signal.SIGKILL)
    assert not is_running(pid)


async def test_a_task_whose_shim_is_killed_too_is_ended_and_reported(
    process: AgentProcess, master: ScriptedMaster
) -> None:
    seconds = f"600.{os.getpid()}"
    master.launch(shell("t1", f"setsid sleep {seconds} & sleep {seconds}"))
    await master.state("t1", RUNNING)
    await eventually(lambda: len(running_as(f"sleep {seconds}")) == 2)
    (run,) = (process.work_dir / "runs").iterdir()
    shim = int(run.read_text().split("shim ")[1].split()[0])
    await killed(process)
    os.kill(shim, signal.SIGKILL)
    process.start()
    end = await master.state("t1", FAILED)
    assert end.reason == Reason.EXECUTOR_TERMINATED
    assert not end.HasField("exit_code")
    assert not running_as(f"sleep {seconds}")


@AS_ROOT
async def test_a_task_that_kills_all_processes_is_reported_by_the_next_agent(
    master: ScriptedMaster, tmp_path: Path
) -> None:
    agent = agent_apart(master, tmp_path, "none")
    agent.start()
    try:
        await master.agent()
        master.launch(shell("t1", "kill -KILL -1"))
        end = await master.state("t1", FAILED)
        assert end.reason == Reason.EXECUTOR_TERMINATED
        assert len(master.sessions) > 1
        master.launch(shell("t2", "exit 3"))
        assert (await master.state("t2", FAILED)).exit_code == 3
    finally:
        agent.end()


@AS_ROOT
async def test_a_task_that_kills_all_processes_reaches_only_its_own(
    master: ScriptedMaster, tmp_path: Path
) -> None:
    if landlock_version() < 6:
        pytest.skip("the kernel has no Landlock 6")
    agent = agent_apart(master, tmp_path)
    agent.start()
    try:
        await master.agent()
        master.launch(program("t1", "sleep", "60"))
        await master.state("t1", RUNNING)
        master.launch(shell("t2", "kill -STOP -1; kill -KILL -1; exit 7"))
        assert (await master.state("t2", FAILED)).exit_code == 7
        master.launch(shell("t3", "exit 3"))
        assert (await master.state("t3", FAILED)).exit_code == 3
        assert len(master.sessions) == 1
        assert master.states("t1")[-1] == RUNNING
    finally:
        agent.end()


async def test_tasks_of_an_earlier_boot_are_gone_unless_their_end_is_recorded(
    start: Start, master: ScriptedMaster, tmp_path: Path
) -> None:
    serving = await start(on_stop="leave", boot_id=lambda: "boot-1")
    await master.agent()
    master.launch(shell("t1", until(tmp_path / "gate", 3)), program("t2", "sleep", "60"))
    pids = [(await master.state(name, RUNNING)).pid for name in ("t1", "t2")]
    shims = [int(_stat(pid, 1)) for pid in pids]
    await serving.end()
    (tmp_path / "gate").touch()
    await eventually(lambda: not is_running(pids[0]))
    os.kill(shims[1], signal.SIGKILL)
    await eventually(lambda: not is_running(pids[1]), what="the task dies with its shim")
    await start(boot_id=lambda: "boot-2")
    assert (await master.state("t1", FAILED)).exit_code == 3
    gone = await master.state("t2", GONE)
    assert (gone.reason, gone.message) == (Reason.AGENT_REBOOTED, "the machine was rebooted")
    register = master.session.register
    assert register is not None
    assert register.boot_id == "boot-2"


def names(text: bytes, task_id: str) -> bool:
    """Return whether the line of a checkpoint names the task."""
    body = body_in(text)
    return not body.startswith(b"{") and b"\x02" + task_id.encode() in a2b_base64(body)


class TestDamagedRecords:
    async def test_are_refused_and_tasks_keep_running(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        pid = await self._damage(start, master, tmp_path)
        with pytest.raises(InvalidRequest, match=r"checkpoint.log is damaged: line \d+ is damaged"):
            await start()
        assert is_running(pid)

    async def test_are_skipped_at_best_effort_and_reported_to_the_master(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        pid = await self._damage(start, master, tmp_path)
        serving = await start(recover="best-effort")
        reported = await returned(master)
        assert set(reported) == {"t2"}
        assert master.session.register is not None
        assert master.session.register.incomplete
        assert not is_running(pid), "the agent ends a task without a record"
        await eventually(lambda: not serving.agent.state.incomplete)
        await serving.end()
        await start()
        assert await returned(master, 3) == {}
        assert not master.session.register.incomplete

    async def _damage(self, start: Start, master: ScriptedMaster, tmp_path: Path) -> int:
        """Run two tasks and damage the record of the first; return its pid."""
        serving = await start(on_stop="leave")
        await master.agent()
        master.launch(program("t1", "sleep", "60"))
        pid: int = (await master.state("t1", RUNNING)).pid
        master.launch(program("t2", "sleep", "60"))
        await master.state("t2", RUNNING)
        await serving.end()
        log = tmp_path / "work" / "checkpoint.log"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(b"x" + each[1:] if names(each, "t1") else each for each in lines))
        return pid


class TestALostTail:
    """The last lines of the checkpoint are missing; the other lines are undamaged."""

    async def test_is_detected_by_the_mark_and_tasks_keep_running(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        pid = await self._cut(start, master, tmp_path / "work")
        words = r"its last \d+ lines are missing\. Tasks keep running.* --recover=best-effort"
        for _ in range(2):
            with pytest.raises(InvalidRequest, match=words):
                await start()
        assert is_running(pid)

    async def test_is_detected_by_a_task_that_no_record_names(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        pid = await self._cut(start, master, tmp_path / "work")
        (tmp_path / "work" / "checkpoint.mark").unlink()
        words = r"checkpoint\.log is incomplete: processes of 1 tasks run that no record names"
        with pytest.raises(InvalidRequest, match=words):
            await start()
        assert is_running(pid)
        # As if a service manager restarts the agent until the task has ended.
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not is_running(pid))
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="were found missing at an earlier start"):
                await start()
        await start(recover="best-effort")
        await master.agent(2)
        assert master.session.register is not None
        assert master.session.register.incomplete

    @pytest.mark.parametrize("has_mark", [True, False])
    async def test_is_reported_to_the_master_at_best_effort(
        self, start: Start, master: ScriptedMaster, tmp_path: Path, has_mark: bool
    ) -> None:
        pid = await self._cut(start, master, tmp_path / "work")
        if not has_mark:
            (tmp_path / "work" / "checkpoint.mark").unlink()
        serving = await start(recover="best-effort")
        assert set(await returned(master)) == {"t1"}
        assert master.session.register is not None
        assert master.session.register.incomplete
        assert not is_running(pid)
        await eventually(lambda: not serving.agent.state.incomplete)
        await serving.end()
        await start()
        # The end of t1, which ended with its agent, may be unacknowledged.
        assert set(await returned(master, 3)) <= {"t1"}
        assert not master.session.register.incomplete

    async def test_includes_a_missing_log(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        pid = await self._cut(start, master, tmp_path / "work")
        (tmp_path / "work" / "checkpoint.log").unlink()
        with pytest.raises(InvalidRequest, match=r"checkpoint\.log is lost\."):
            await start()
        assert is_running(pid)
        await start(recover="best-effort")
        assert await returned(master) == {}
        assert master.session.register is not None
        assert master.session.register.incomplete
        assert not is_running(pid)

    async def _cut(self, start: Start, master: ScriptedMaster, work_dir: Path) -> int:
        """Run two tasks and lose all records of the second; return its pid."""
        serving = await start(on_stop="leave")
        await master.agent()
        master.launch(program("t1", "sleep", "60"))
        await master.state("t1", RUNNING)
        master.launch(program("t2", "sleep", "60"))
        pid: int = (await master.state("t2", RUNNING)).pid
        await serving.end()
        log = work_dir / "checkpoint.log"
        lines = log.read_bytes().splitlines(keepends=True)
        first = next(at for at, text in enumerate(lines) if names(text, "t2"))
        log.write_bytes(b"".join(lines[:first]))
        return pid


async def test_an_agent_with_less_than_its_tasks_use_refuses_to_start(
    start: Start, master: ScriptedMaster
) -> None:
    serving = await start(on_stop="leave")
    await master.agent()
    master.launch(program("t1", "sleep", "60", resources="cpus:3"))
    await master.state("t1", RUNNING)
    await serving.end()
    with pytest.raises(InvalidRequest, match=r"hold cpus:3, but it has .* --recover=cleanup"):
        await start(resources="cpus:2;mem:1GB")


class TestEpochs:
    async def test_an_older_master_is_not_obeyed(
        self, start: Start, master: ScriptedMaster, tmp_path: Path
    ) -> None:
        master.epoch = 7
        serving = await start(on_stop="leave")
        await master.agent()
        await eventually(lambda: serving.agent.state.master_epoch == 7)
        master.epoch = 6
        master.launch(shell("t1", f"touch {tmp_path}/ran"))
        await eventually(lambda: len(master.sessions) > 2, what="the agent disconnects repeatedly")
        assert not serving.agent.state.tasks
        assert not serving.agent.link.is_registered
        await serving.end()
        # The next agent has the epoch in its records.
        restarted = await start()
        last = await master.agent(len(master.sessions) + 1)
        assert last.register is not None
        assert last.register.master_epoch == 7
        master.epoch = 8
        link = restarted.agent.link
        await eventually(lambda: link.is_registered, what="a newer master is obeyed")
        assert not (tmp_path / "ran").exists()

    async def test_the_agent_connects_at_once_to_a_leader_that_a_follower_names(
        self, start: Start, master: ScriptedMaster
    ) -> None:
        leader = ScriptedMaster()
        await leader.start()
        leader.epoch, master.refusal = 3, NotLeader("another leads", str(leader.address))
        try:
            serving = await start()
            await leader.agent()
            await eventually(lambda: serving.agent.link.is_registered)
            # A redirect of a follower counts although its epoch is 0.
            await leader.stop()
            await eventually(lambda: len(master.sessions) > 1)
            await leader.start()
            await leader.agent(sessions=2)
            await serving.end()
        finally:
            await leader.stop()


async def test_an_update_that_cannot_be_written_ends_the_agent_and_no_task(
    start: Start, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = await start()
    await master.agent()
    master.launch(program("t1", "sleep", "60"))
    pid = (await master.state("t1", RUNNING)).pid

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        master.launch(program("t2", "sleep", "60"))
        with pytest.raises(Unavailable, match=r"cannot write .*checkpoint.log: Input/output error"):
            await serving.task
    assert is_running(pid)
    assert master.states("t2") == []
    await start()
    assert "t1" in await returned(master)


def _stat(pid: int, field: int) -> str:
    """Return a field of /proc/PID/stat after the name: 1 is the parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
