"""Options of the shim: what they do to the task, the order, and what is refused."""

from __future__ import annotations

import errno
import os
import resource
import struct
import subprocess
from pathlib import Path

import pytest

from croupier.agent.core.events import Exited, LaunchFailed
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import find_user
from croupier.model.isolation import Usage
from croupier.net.transport import free_addresses
from tests.harness.supervisor_fixture import TaskRunner, key

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
# Landlock: abstract sockets and signals. Seccomp: a filter that allows all system calls.
SCOPES = "landlock=0:0:3"
ALLOW_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
# For x86_64 and aarch64: `uname` answers EPERM.
NO_UNAME = {"x86_64": 63, "aarch64": 160}


async def status(runner: TaskRunner, *options: str) -> dict[str, str]:
    """Return /proc/self/status of a task with these options."""
    runner.spawn("t1", "cat", "/proc/self/status", options=options)
    assert await runner.ended("t1") == Exited(key("t1"), 0)
    return dict(line.split(":\t", 1) for line in runner.printed("t1").splitlines())


async def test_the_child_enters_groups_and_the_shim_does_not(
    runner: TaskRunner, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    options = (f"group={tmp_path}/a", f"group={tmp_path}/b", f"kill={tmp_path}/kill")
    (tmp_path / "kill").touch()
    runner.shell("t1", "cat ../../../kill; exit 3", *options)
    assert await runner.ended("t1") == Exited(key("t1"), 3)
    texts = [(tmp_path / name).read_text() for name in ("a", "b", "kill")]
    assert (texts, runner.printed("t1")) == (["0", "0", "1"], "")


async def test_limits_are_set_and_never_above_the_present_one(runner: TaskRunner) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    options = (
        f"limit={resource.RLIMIT_NOFILE}:100:{2**64 - 1}",
        f"limit={resource.RLIMIT_CORE}:0:0",
        f"limit={resource.RLIMIT_FSIZE}:8192:8192",
    )
    line = "ulimit -n; ulimit -Hn; ulimit -c; head -c 100000 /dev/zero > big; echo $?"
    runner.shell("t1", line, *options)
    await runner.ended("t1")
    # SIGXFSZ ends the writer, and not the shim.
    assert runner.printed("t1").split() == ["100", str(hard), "0", str(128 + 25)]
    assert (runner.home("t1") / "big").stat().st_size == 8192


async def test_a_umask_is_set(runner: TaskRunner) -> None:
    runner.shell("t1", "umask; touch made", "umask=027")
    await runner.ended("t1")
    assert runner.printed("t1") == "0027\n"
    assert (runner.home("t1") / "made").stat().st_mode & 0o777 == 0o640


@AS_ROOT
async def test_the_bounding_set_keeps_only_what_is_named(runner: TaskRunner) -> None:
    found = await status(runner, "bounding=21")
    assert [int(found[name], 16) for name in ("CapBnd", "CapPrm", "CapEff", "CapAmb")] == [
        0x21,
        0x21,
        0x21,
        0,
    ]


async def test_privileges_end_with_the_program(runner: TaskRunner) -> None:
    assert (await status(runner, "no-new-privs"))["NoNewPrivs"] == "1"


async def test_a_filter_is_installed(runner: TaskRunner, tmp_path: Path) -> None:
    path = tmp_path / "filter"
    # Load the number; jump over one instruction unless it is uname; EPERM; allow.
    load = struct.pack("=HBBI", 0x20, 0, 0, 0)
    jump = struct.pack("=HBBI", 0x15, 0, 1, NO_UNAME[os.uname().machine])
    refuse = struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | errno.EPERM)
    path.write_bytes(load + jump + refuse + ALLOW_ALL)
    runner.shell(
        "t1", "uname || grep Seccomp: /proc/self/status", "no-new-privs", f"seccomp={path}"
    )
    await runner.ended("t1")
    assert runner.printed("t1") == "Seccomp:\t2\n"


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 8])
async def test_a_bad_filter_fails_the_start(
    runner: TaskRunner, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "filter").write_bytes(content)
    runner.shell("t1", "true", "no-new-privs", f"seccomp={tmp_path}/filter")
    message = "cannot isolate the task (seccomp): Invalid argument"
    cause = "cannot start a task, at step isolation: Invalid argument"
    assert await runner.ended("t1") == LaunchFailed(key("t1"), message, cause=cause)
    assert runner.failed == ["isolation"]


@pytest.mark.parametrize("option", ["group", "seccomp"])
async def test_a_missing_file_fails_the_start(runner: TaskRunner, option: str) -> None:
    runner.shell("t1", "touch ran", f"{option}=/no/such/file")
    end = await runner.ended("t1")
    assert isinstance(end, LaunchFailed)
    assert end.message == f"cannot isolate the task ({option}): No such file or directory"
    assert not (runner.home("t1") / "ran").exists()
    record = run_file.read_path(runner.runs / "t1")
    assert record.error == run_file.StartError("isolation", errno.ENOENT, option)


async def test_a_landlocked_task_reaches_no_process_but_its_own(runner: TaskRunner) -> None:
    # CAP_PERFMON, which root has, would allow to read the environment.
    bounding = ("bounding=0",) if os.geteuid() == 0 else ()
    shim = "/proc/$PPID"
    line = f"kill -0 $$ && ! kill -KILL $PPID && ! cat {shim}/environ && ! ls -l {shim}/fd/"
    runner.shell("t1", line, "no-new-privs", SCOPES, *bounding)
    assert await runner.ended("t1") == Exited(key("t1"), 0)


async def test_only_given_ports_can_be_bound(runner: TaskRunner) -> None:
    program = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[1:]):\n"
        "    try: socket.create_server(('127.0.0.1', port)); print(port)\n"
        "    except PermissionError: print('refused')\n"
    )
    below, given, above = sorted(address.port for address in free_addresses(3))
    words = ("python3", "-S", "-c", program, *map(str, (below, given, above)), "0")
    options = ("no-new-privs", f"landlock=0:1:0:{given}-{given},0-0")
    runner.spawn("t1", *words, options=options)
    await runner.ended("t1")
    assert runner.printed("t1").split() == ["refused", str(given), "refused", "0"]


async def test_landlocked_files_can_all_be_used(runner: TaskRunner) -> None:
    # Device files and moves between directories: both are handled, and allowed everywhere.
    line = "mkdir a b; echo x > a/f; mv a/f b/g; ln b/g a/h; cat a/h"
    runner.shell("t1", line, "no-new-privs", "landlock=2800:0:0")
    await runner.ended("t1")
    assert runner.printed("t1") == "x\n"


@AS_ROOT
async def test_all_options_together(runner: TaskRunner, tmp_path: Path) -> None:
    (tmp_path / "filter").write_bytes(ALLOW_ALL)
    (tmp_path / "group").touch()
    tmp_path.chmod(0o755)
    line = "cat /proc/self/status; id -u; umask"
    options = (
        f"seccomp={tmp_path}/filter",
        SCOPES,
        "no-new-privs",
        "bounding=0",
        "umask=077",
        "limit=7:64:64",
        f"group={tmp_path}/group",
        f"user={find_user('nobody')}",
    )
    runner.work.chmod(0o755)
    runner.shell("t1", line, *options)
    end = await runner.ended("t1")
    assert end == Exited(key("t1"), 0)
    printed = runner.printed("t1")
    assert all(f"{name}:\t0000000000000000\n" in printed for name in ("CapBnd", "CapEff", "CapPrm"))
    assert printed.splitlines()[-2:] == ["65534", "0077"]


WRONG = (
    "unknown=1",
    "no-new-privs=1",
    "user=1",
    "user=1:x",
    "user=1:2:3;4",
    "user=4294967295:1",
    "group=relative",
    "kill=",
    "seccomp=relative",
    "limit=7:1",
    "limit=16:1:1",
    "limit=7:2:1",
    "limit=7:-1:1",
    "limit=7:1:99999999999999999999",
    "umask=8",
    "umask=1000",
    "bounding=",
    "bounding=xyz",
    "landlock=1:1",
    "landlock=0:1:0:5",
    "landlock=0:1:0:6-5",
    "landlock=0:1:0:1-65536",
    "umask",
)


@pytest.mark.parametrize("words", [*([word] for word in WRONG), ["umask=1", "umask=1"]])
def test_a_wrong_option_is_refused(shim: Shim, tmp_path: Path, words: list[str]) -> None:
    touch = ["--", "touch", str(tmp_path / "ran")]
    words = [*shim.argv, str(tmp_path), *words, *touch]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"croupier-shim 2\n")
    assert not (tmp_path / "ran").exists()


async def test_the_usage_of_all_processes_is_written(runner: TaskRunner) -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    # The second process outlives the first, and is killed in the sweep.
    sleeps = "b = bytearray(30_000_000)\nopen('ready', 'w').close()\nimport time; time.sleep(60)"
    wait = "while ! [ -e ready ]; do sleep 0.01; done"
    line = f'python3 -S -c "{spin}"; python3 -S -c "{sleeps}" & {wait}; exit 0'
    runner.shell("t1", line)
    end = await runner.measured("t1")
    assert isinstance(end, Exited)
    usage = end.ending.usage
    assert usage is not None
    assert 200 <= usage.cpu_ms < 20_000
    assert 30_000_000 < usage.memory_peak < 200_000_000
    assert runner.supervisor.adopt(key("t1"), "t1") == end


def test_a_usage_line_is_read() -> None:
    lines = ("croupier-run 2\n", "shim 9 1\n", "task 8 1\n", "exit 4\n", "usage 5 6 7 8\n")
    record = run_file.parse("".join(line.ljust(run_file.LINE) for line in lines).encode())
    assert record.usage == Usage(5, 6 * 1024, 0, 7 * 1024, 8 * 1024)


async def test_a_shim_gives_its_task_a_raised_score_and_keeps_its_own(runner: TaskRunner) -> None:
    runner.spawn("t1", "sleep", "60")
    pid, shim = await runner.started("t1"), runner.shim_of("t1")
    scores = [int(Path(f"/proc/{each}/oom_score_adj").read_text()) for each in (pid, shim)]
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert scores == [max(own, 500), own]
