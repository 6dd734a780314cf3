"""The output files of tasks: those that write nothing have none, and leave theirs to the next.

Also processes that tell more of their arguments and variables than they have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from croupier.agent.core.events import Exited
from croupier.agent.core.tasks import Key
from croupier.agent.exec import task_execs
from croupier.agent.sandbox import STREAMS
from croupier.agent.shim import build, run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.compiling import compile_program
from croupier.agent.shim.orphans import MOST_BYTES, read_own_words, sweep
from croupier.agent.unix_user import UnixUser
from tests.harness.eventually import eventually
from tests.harness.supervisor_fixture import TaskRunner, key

NOBODY = UnixUser("nobody", 65534, 65534, ())


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """Return a shim that waits 0.9 s for the end of a task, and not 5 ms."""
    path = tmp_path_factory.mktemp("patient") / "shim"
    flags = ("-O2", "-DSOON_NS=900000000L")
    why = compile_program(path, build._SOURCE, build._VERSION, [flags])
    if why:
        pytest.skip(why)
    return Shim((str(path),))


async def run(runner: TaskRunner, name: str, line: str) -> dict[str, str]:
    """Run a shell line; return the files of its sandbox."""
    runner.shell(name, line)
    await runner.ended(name)
    return {path.name: path.read_text() for path in runner.home(name).iterdir()}


def spare(runner: TaskRunner) -> dict[str, int]:
    """Return the spare files of the one shim by their streams."""
    found = (runner.work / "spare").iterdir()
    return {STREAMS[int(path.suffix[1:])]: path.stat().st_ino for path in found}


async def silent(runner: TaskRunner, name: str) -> dict[str, int]:
    """Run a task that writes nothing; return the spare files."""
    assert await run(runner, name, "true") == {}
    return spare(runner)


def marks(runner: TaskRunner) -> tuple[int, int, int, list[str]]:
    """Return what a task may have changed of the spare file for stdout."""
    (path,) = (runner.work / "spare").glob("*.0")
    found = path.stat()
    return found.st_mode, found.st_blocks, found.st_nlink, os.listxattr(path)


async def test_a_task_that_writes_nothing_has_no_files(runner: TaskRunner) -> None:
    first = await silent(runner, "t1")
    assert set(first) == set(STREAMS)
    assert await run(runner, "t2", "exit 3") == {}
    assert spare(runner) == first


async def test_what_a_short_task_writes_is_in_its_sandbox(runner: TaskRunner) -> None:
    assert await run(runner, "t1", "echo out") == {"stdout": "out\n"}
    first = spare(runner)
    assert set(first) == {"stderr"}
    assert await run(runner, "t2", "echo out; echo err >&2") == {
        "stdout": "out\n",
        "stderr": "err\n",
    }
    assert runner.home("t2").joinpath("stderr").stat().st_ino == first["stderr"]
    assert spare(runner) == {}


async def test_a_task_that_runs_has_both_files(runner: TaskRunner) -> None:
    runner.shell(
        "t1", "while [ ! -e go ]; do sleep 0.02; done; echo late; wc -l <stdout; exec sleep 60"
    )
    await runner.started("t1")
    home = runner.home("t1")
    await eventually(lambda: {path.name for path in home.iterdir()} == set(STREAMS))
    (home / "go").touch()
    await eventually(lambda: (home / "stdout").read_text() == "late\n1\n")


async def test_a_file_of_the_task_with_that_name_stays(runner: TaskRunner) -> None:
    assert await run(runner, "t1", "echo own > stdout") == {"stdout": "own\n"}
    assert await run(runner, "t2", "echo own > stdout; sleep 1.5") == {
        "stdout": "own\n", "stderr": ""
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "chmod 666 /proc/self/fd/1",
        "ln /proc/self/fd/1 /proc/self/fd/2 other 2>/dev/null || chmod 666 /proc/self/fd/1",
        "fallocate -n -l 4096 /proc/self/fd/1",
        """python3 -S -c 'import os; os.setxattr(1, "user.left", b"x")' || chmod 666 /dev/fd/1""",
    ],
)
async def test_a_file_that_a_task_has_changed_is_not_used_again(
    runner: TaskRunner, line: str
) -> None:
    await silent(runner, "t1")
    first = marks(runner)
    await run(runner, "t2", line)
    await silent(runner, "t3")
    assert marks(runner) == first


async def test_a_file_that_is_open_elsewhere_is_not_used_again(runner: TaskRunner) -> None:
    first = await silent(runner, "t1")
    (path,) = (runner.work / "spare").glob("*.0")
    with path.open("ab"):
        await silent(runner, "t2")
        assert (await silent(runner, "t3"))["stdout"] != first["stdout"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts tasks as other users")
async def test_each_task_owns_its_files(runner: TaskRunner) -> None:
    first = await silent(runner, "t1")
    runner.spawn("t2", "/bin/sh", "-c", "echo a", account=NOBODY)
    await runner.ended("t2")
    stdout = (runner.home("t2") / "stdout").stat()
    assert (stdout.st_uid, stdout.st_mode & 0o777) == (65534, 0o600)
    assert stdout.st_ino == first["stdout"]
    await silent(runner, "t3")
    assert {path.owner() for path in (runner.work / "spare").iterdir()} == {"root"}


async def test_spare_files_go_with_their_shim(tmp_path: Path, shim: Shim) -> None:
    runner = TaskRunner(tmp_path, shim)
    await run(runner, "t1", "true")
    (tmp_path / "spare" / "4194305.0").touch()
    other = TaskRunner(tmp_path, shim, runs=tmp_path / "others")
    assert len(spare(runner)) == len(list((tmp_path / "spare").iterdir())) == 2
    other.supervisor.close()
    runner.supervisor.close()
    assert not list((tmp_path / "spare").iterdir())


async def test_the_run_file_of_a_forgotten_run_is_used_again(runner: TaskRunner) -> None:
    async def inode(name: str) -> int:
        runner.shell(name, "exit 3")
        assert (await runner.ended(name)) == Exited(key(name), exit_code=3)
        assert run_file.read_path(runner.runs / name).end == run_file.End(exit_code=3)
        return (runner.runs / name).stat().st_ino

    first = await inode("t1")
    assert await inode("t2") != first
    runner.supervisor.forget("t1")
    assert not (runner.runs / "t1").exists()
    assert await inode("t3") == first
    assert {path.name for path in runner.runs.iterdir()} == {"t2", "t3"}


async def test_a_run_file_that_is_linked_or_locked_is_not_used_again(runner: TaskRunner) -> None:
    for number, name in enumerate(("linked", "locked")):
        await run(runner, name, "true")
        path = runner.runs / name
        inode = path.stat().st_ino
        with path.open("rb") as held:
            if name == "linked":
                os.link(path, runner.work / "link")
            else:
                assert run_file.try_lock(held.fileno())
            runner.supervisor.forget(name)
            await run(runner, f"t{number}", "true")
            assert (runner.runs / f"t{number}").stat().st_ino != inode


async def is_silent(runner: TaskRunner, name: str, line: str) -> bool:
    """Run a shell line; return whether its sandbox is handed to the next task."""
    runner.shell(name, line)
    await runner.ended(name)
    inode = runner.home(name).stat().st_ino
    runner.sandboxes.vacate(key(name))
    runner.shell(f"{name}-next", "true")
    await runner.ended(f"{name}-next")
    return runner.home(f"{name}-next").stat().st_ino == inode


async def test_the_next_task_gets_the_sandbox_of_one_that_wrote_nothing(runner: TaskRunner) -> None:
    assert await is_silent(runner, "t1", "exit 3")
    assert await run(runner, "last", "echo out") == {"stdout": "out\n"}


@pytest.mark.parametrize(
    "line",
    [
        "echo out",
        "touch file",
        "mkdir directory",
        "touch .hidden",
        "chmod 755 .",
        "setfattr -n user.left -v x . 2>/dev/null || chmod 755 .",
        "while [ ! -e stdout ]; do sleep 0.01; done",
        "mv ../t1 ../other; mkdir ../t1; touch ../other/file",
        "chmod 666 /proc/self/fd/1",
    ],
)
async def test_a_sandbox_that_a_task_has_changed_is_not_handed_over(
    runner: TaskRunner, line: str
) -> None:
    assert not await is_silent(runner, "t1", line)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts tasks as other users")
async def test_the_sandbox_of_another_user_is_not_handed_over(runner: TaskRunner) -> None:
    runner.spawn("t1", "/bin/true", account=NOBODY)
    await runner.ended("t1")
    assert runner.sandboxes.vacate(key("t1")) == key("t1")


async def test_the_sandbox_is_not_handed_over_if_a_command_ran_beside_the_task(
    runner: TaskRunner,
) -> None:
    def end_companions(_: Key, then: Callable[[], None]) -> bool:
        then()
        return True

    runner.supervisor.ends.end_companions = end_companions
    assert not await is_silent(runner, "t1", "true")


TOLD = 1 << 28
# Says that an empty part of its memory is its variables and arguments, which needs no right.
PROGRAM = f"""
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
at = libc.mmap(None, {TOLD}, mmap.PROT_READ, flags, -1, 0)
own = id(sys) & ~4095
borders = [own, own + 4096, *[own] * 5, *[at, at + {TOLD}] * 2]
told = struct.pack("12QIi", *borders, 0, 0, -1)
print(libc.prctl(35, 14, told, len(told), 0), flush=True)
sys.stdin.read()
"""


@contextmanager
def boaster() -> Iterator[int]:
    """Start the program; yield its pid."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answer = process.stdout.readline()
        try:
            if answer != b"0\n":
                pytest.skip("this kernel lets no process change that")
            yield process.pid
        finally:
            process.stdin.close()


def test_no_process_makes_the_agent_read_all_of_its_memory() -> None:
    with boaster() as pid:
        for name in ("environ", "cmdline"):
            assert len(read_own_words(f"/proc/{pid}/{name}")) == MOST_BYTES
        tracemalloc.start()
        try:
            assert task_execs._variables(pid, ["PASSWORD"]) == {}
            sweep([f"/no/such/run/{os.getpid()}"])
            assert tracemalloc.get_traced_memory()[1] < 32 * MOST_BYTES
        finally:
            tracemalloc.stop()
