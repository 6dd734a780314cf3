"""`croupier local` and the commands that people use on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.real_local import Local, running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("local"), "--agents", "3") as local:
        yield local


def is_soon(predicate: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Return whether `predicate` becomes true within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_two_hundred_tasks_end_and_leave_nothing(local: Local) -> None:
    done = local.croupier("run", "-n", "200", "--cpus", "0.1", "--mem", "16MB", "--", "true")
    assert done.returncode == 0, done.stderr
    output = json.loads(local.croupier("tasks", "--json").stdout)
    states = [task["state"] for task in output if task["task_id"].startswith("true-")]
    assert states.count("FINISHED") >= 200
    assert set(states) == {"FINISHED"}
    assert json.loads(local.croupier("frameworks", "--json").stdout) == []
    agents = json.loads(local.croupier("agents", "--json").stdout)
    assert len(agents) == 3
    assert all(agent["tasks"] == 0 for agent in agents)


def test_the_master_may_be_named_on_either_side_of_the_command(local: Local) -> None:
    for words in (
        ["--master", local.master, "agents", "--json"],
        [f"--master={local.master}", "agents", "--json"],
        ["agents", "--json", "--master", local.master],
        ["agents", "--json", "--master", f"{local.master},127.0.0.1:1"],
    ):
        assert len(json.loads(local.croupier(*words).stdout)) == 3


def test_a_killed_agent_adopts_its_tasks_and_local_ends_everything(tmp_path: Path) -> None:
    with running_local(tmp_path, "--agents", "2") as local:
        process = subprocess.Popen(
            [str(local.bin_dir / "croupier"), "run", "--master", local.master, "-n", "2",
             "--cpus", "0.5", "--", "sh", "-c", "setsid sleep 86399 & sleep 86399"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        sleep = b"sleep\086399\0"
        assert is_soon(lambda: [cmdline(pid) for pid in sleepers(local)].count(sleep) == 4)
        process.kill()
        process.wait()
        agents = [pid for pid in local.leftovers() if b"croupier.agent" in cmdline(pid)]
        assert len(agents) == 2
        before = sleepers(local)
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        assert is_soon(lambda: json.loads(local.croupier("agents", "--json").stdout) != [])
        assert len(before) >= 4
        assert sleepers(local) == before
        assert local.end() == 0
    assert is_soon(lambda: not local.leftovers())


def test_a_run_continues_when_master_and_agent_are_killed(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do echo line $n; sleep 0.1; done; exit 3"
    with running_local(tmp_path, "--agents", "1") as local:
        process = subprocess.Popen(
            [str(local.bin_dir / "croupier"), "run", "--master", local.master, "--", "sh", "-c",
             script],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        for daemon in (b"croupier.agent", b"croupier.master"):
            for pid in local.leftovers():
                if daemon in cmdline(pid):
                    os.kill(pid, signal.SIGKILL)
        # `communicate` would lose what `readline` has read ahead.
        out, err = process.stdout.read(), process.communicate(timeout=60)[1]
        assert process.returncode == 3, err
        assert (first + out).splitlines() == [f"line {number}" for number in range(1, 41)]
        assert local.end() == 0
    assert is_soon(lambda: not local.leftovers())


def test_the_daemons_of_a_killed_local_end(tmp_path: Path) -> None:
    with running_local(tmp_path, "--agents", "2") as local:
        assert len(local.leftovers()) >= 4
        local.end(signal.SIGKILL)
        assert is_soon(lambda: not local.leftovers())


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def sleepers(local: Local) -> list[int]:
    """Return the processes of tasks, whose environment names the sandbox."""
    return [pid for pid in local.leftovers() if b"86399" in cmdline(pid)]


AS_NOBODY = """
import os, sys
import croupier.cli.connection, croupier.ctl.lists, croupier.net.credential_search, ssl
from croupier.ctl.__main__ import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_another_user_is_refused(local: Local) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "croupier/credentials"
    [found] = config.glob(f"{local.master}.toml")
    assert found.stat().st_mode & 0o077 == 0
    secrets = local.work_dir / "cluster/local-secrets"
    for flags, refusal in (
        ([], "it closed the connection; does it require TLS"),
        (["--tls-ca", str(secrets / "ca.crt")], "Permission denied"),
        (["--token-file", str(secrets / "admin.token")], "Permission denied"),
    ):
        done = local.run(sys.executable, "-c", AS_NOBODY, "agents", *flags)
        assert done.returncode != 0
        assert refusal in done.stderr
    assert local.croupier("agents").returncode == 0, "its own user needs no flags"
