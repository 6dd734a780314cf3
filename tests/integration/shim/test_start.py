"""Starts of tasks: their properties, and the errors."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

import pytest

from croupier.agent.core.events import Exited, LaunchFailed, Started
from croupier.agent.unix_user import find_user
from croupier.model.preemption import CHECKPOINT_SIGNALS
from tests.harness.eventually import eventually
from tests.harness.processes import descriptors
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


async def test_a_task_has_its_directory_and_environment(runner: TaskRunner) -> None:
    mine = {**PATH, "A": "x=y", "T.B": "1", "EMPTY": "", "TEXT": "ü\udcff\n"}
    runner.spawn("t1", "/usr/bin/env", "-0", environment=mine)
    assert await runner.ended("t1") == Exited(key("t1"), 0)
    seen = (runner.home("t1") / "stdout").read_bytes().rstrip(b"\0").split(b"\0")
    mark = f"CROUPIER_TASK_RUN={runner.runs / 't1'}"
    wanted = [os.fsencode(f"{name}={value}") for name, value in mine.items()]
    assert sorted(seen) == sorted([*wanted, mark.encode()])
    runner.shell("t2", "pwd -P")
    await runner.ended("t2")
    assert runner.printed("t2") == f"{runner.home('t2')}\n"


async def test_a_task_has_only_its_input_and_output_open(runner: TaskRunner) -> None:
    inherited = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        runner.spawn("t1", "sleep", "60")
    finally:
        os.close(inherited)
    home = runner.home("t1")
    assert descriptors(await runner.started("t1")) == {
        0: "/dev/null",
        1: str(home / "stdout"),
        2: str(home / "stderr"),
    }


async def test_a_task_leads_a_session_with_default_signals(runner: TaskRunner) -> None:
    runner.spawn("t1", "sleep", "60")
    pid = await runner.started("t1")
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    # posix_spawn skips the two signals of the C library, which programs set up themselves.
    ignored = int(status["SigIgn"], 16) & ~(0b11 << 31)
    assert (int(status["SigBlk"], 16), ignored) == (0, 0)


async def test_programs_are_found_as_in_a_shell(runner: TaskRunner, tmp_path: Path) -> None:
    for name, line, mode in (("a", "echo a", 0o755), ("b", "echo b", 0o755), ("no", "", 0o644)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name / "tool").chmod(mode)
    path = f"{tmp_path}/none:{tmp_path}/no:{tmp_path}/b:{tmp_path}/a"
    runner.spawn("t1", "tool", environment={"PATH": path})
    await runner.ended("t1")
    assert runner.printed("t1") == "b\n"
    runner.spawn("t2", "true", environment={})
    assert await runner.ended("t2") == Exited(key("t2"), 0)


async def test_a_program_that_cannot_run_has_an_error(runner: TaskRunner, tmp_path: Path) -> None:
    garbage, plain = tmp_path / "garbage", tmp_path / "plain"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o755)
    plain.write_text("#!/bin/sh\n")
    found_but_plain = {"PATH": f"{tmp_path}:/usr/bin"}
    runner.spawn("t1", "/no/such/program")
    runner.spawn("t2", "no-such-program")
    runner.spawn("t3", str(garbage))
    runner.spawn("t4", str(plain))
    runner.spawn("t5", "plain", environment=found_but_plain)
    no_program = "no such program, or its interpreter is missing"
    no_permission = "permission denied: it is not executable"
    expected = {
        "t1": f"cannot run '/no/such/program': {no_program}",
        "t2": f"cannot run 'no-such-program': {no_program}",
        "t3": f"cannot run '{garbage}': exec format error: neither a program of this machine"
        " nor a script with #!",
        "t4": f"cannot run '{plain}': {no_permission}",
        "t5": f"cannot run 'plain': {no_permission}",
    }
    for name, message in expected.items():
        code = 127 if no_program in message else 126
        assert await runner.ended(name) == LaunchFailed(key(name), message, code)
        assert not list(runner.home(name).iterdir())
    assert runner.failed == ["exec"] * 5


async def test_a_missing_sandbox_is_the_failed_step(runner: TaskRunner) -> None:
    with runner.sandboxes.create(key("t1")) as sandbox:
        runner.home("t1").rename(runner.work / "elsewhere")
        runner.supervisor.spawn(launch_of("t1", "true"), sandbox)
    message = "cannot enter the sandbox: No such file or directory"
    cause = "cannot start a task, at step sandbox: No such file or directory"
    assert await runner.ended("t1") == LaunchFailed(key("t1"), message, cause=cause)
    assert runner.failed == ["sandbox"]


async def test_impossible_arguments_leave_nothing_behind(runner: TaskRunner) -> None:
    with pytest.raises(ValueError, match="null byte"):
        runner.spawn("t1", "echo", "a\0b")
    with pytest.raises(ValueError, match="surrogates"):
        runner.spawn("t1", "echo", "\ud800")
    with pytest.raises(OSError, match="Argument list too long"):
        runner.spawn("t1", "echo", "x" * 200_000)
    assert not list(runner.runs.iterdir())
    runner.spawn("t1", "true")
    await runner.ended("t1")
    with pytest.raises(FileExistsError):
        runner.spawn("t1", "true")


async def test_a_lack_of_descriptors_leaves_nothing_behind(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(fd: int) -> int:
        os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("croupier.agent.shim.start.move_up", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            runner.spawn("t1", "true")
    assert not list(runner.runs.iterdir())
    runner.spawn("t1", "true")
    await runner.ended("t1")


async def test_variables_have_no_effect_on_the_shim(runner: TaskRunner) -> None:
    preload = {**PATH, "LD_PRELOAD": "/no/such/lib.so", "PYTHONSTARTUP": "/no", "PYTHONHOME": "/no"}
    runner.spawn("t1", "sleep", "60", environment=preload)
    await runner.started("t1")
    environ = Path(f"/proc/{runner.shim_of('t1')}/environ")
    if os.geteuid() != 0:
        # A shim is not dumpable: its variables are closed to its own user.
        with pytest.raises(PermissionError):
            environ.read_bytes()
        return
    words = environ.read_bytes().rstrip(b"\0").split(b"\0")
    names = {word.partition(b"=")[0] for word in words if word}
    assert all(name.startswith(b"T.") or name == b"LC_CTYPE" for name in names)
    # Only the dynamic loader of the task prints an error, after the start was reported.
    stderr = runner.home("t1") / "stderr"
    await eventually(lambda: "ld.so" in stderr.read_text(), what="the loader's error")
    assert stderr.read_text().count("ld.so") == 1


@AS_ROOT
async def test_a_task_runs_as_another_user_with_its_groups(runner: TaskRunner) -> None:
    account = find_user("nobody")
    assert account is not None
    line = "id -u; id -G; touch mine; grep -h ^Cap[EP] /proc/self/status; umask"
    runner.spawn("t1", "/bin/sh", "-c", line, account=account)
    assert await runner.ended("t1") == Exited(key("t1"), 0)
    uid, groups, *capabilities, umask = runner.printed("t1").splitlines()
    assert (int(uid), int(groups.split()[0])) == (account.uid, account.gid)
    assert set(map(int, groups.split())) == set(account.groups)
    assert all(int(line.split()[1], 16) == 0 for line in capabilities)
    assert int(umask, 8) == _umask()
    assert (runner.home("t1") / "mine").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@pytest.mark.parametrize("user", ["", pytest.param("nobody", marks=AS_ROOT)])
async def test_the_kernel_kills_a_task_before_the_agent(runner: TaskRunner, user: str) -> None:
    runner.spawn("t1", "sleep", "60", account=find_user(user))
    pid = await runner.started("t1")
    own = _oom_score_adj(os.getpid())
    assert _oom_score_adj(pid) == max(500, own)
    assert _oom_score_adj(runner.shim_of("t1")) == own


@AS_ROOT
async def test_a_program_that_another_user_may_not_run_has_an_error(
    runner: TaskRunner, tmp_path: Path
) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(stat.S_IRWXU)
    runner.spawn("t1", str(program), account=find_user("nobody"))
    message = f"cannot run '{program}': permission denied: it is not executable"
    assert await runner.ended("t1") == LaunchFailed(key("t1"), message, 126)


@AS_ROOT
async def test_a_missing_program_is_not_found_although_the_user_may_not_search_all_of_path(
    runner: TaskRunner, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "there").touch(mode=0o755)
    path = {"PATH": f"{secret}:/usr/bin"}
    runner.spawn("t1", "no-such-program", environment=path, account=find_user("nobody"))
    runner.spawn("t2", "there", environment=path, account=find_user("nobody"))
    missing = "cannot run 'no-such-program': no such program, or its interpreter is missing"
    denied = "cannot run 'there': permission denied: it is not executable"
    assert await runner.ended("t1") == LaunchFailed(key("t1"), missing, 127)
    assert await runner.ended("t2") == LaunchFailed(key("t2"), denied, 126)


@AS_ROOT
async def test_a_task_of_another_user_ends_with_its_shim(runner: TaskRunner) -> None:
    runner.spawn("t1", "sleep", "60", account=find_user("nobody"))
    await runner.started("t1")
    os.kill(runner.shim_of("t1"), SIGKILL)
    assert await runner.ended("t1") == Exited(key("t1"), unknown=True)


@pytest.mark.parametrize("number", [Signals(each) for each in CHECKPOINT_SIGNALS])
async def test_a_task_gets_the_signal_to_save_its_state(
    runner: TaskRunner, number: Signals
) -> None:
    name = number.name.removeprefix("SIG")
    runner.shell("t1", f"trap 'exit 7' {name}; touch ready; while :; do sleep 0.05; done")
    await runner.started("t1")
    await eventually((runner.home("t1") / "ready").exists)
    runner.supervisor.signal(key("t1"), number)
    assert await runner.ended("t1") == Exited(key("t1"), 7)


@pytest.mark.parametrize("number", [SIGTERM, SIGKILL])
async def test_a_task_can_be_killed_while_it_starts(runner: TaskRunner, number: int) -> None:
    for at in range(20):
        runner.spawn(f"t{at}", "sleep", "60")
        runner.supervisor.signal(key(f"t{at}"), SIGTERM if number == SIGTERM else SIGKILL)
    for at in range(20):
        assert await runner.ended(f"t{at}") == Exited(key(f"t{at}"), signal=number)
        kinds = [type(each) for each in runner.reports if each.key == key(f"t{at}")]
        assert kinds == [Started, Exited]


def _oom_score_adj(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def _umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now
