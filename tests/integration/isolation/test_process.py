"""Common programs under the level process, as root, as another user and as the agent's own user."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.core.events import Exited
from croupier.agent.isolation.process import ProcessIsolator, landlock_version
from croupier.agent.isolation.seccomp import DENIED, MACHINES, NUMBERS
from croupier.agent.unix_user import UnixUser
from croupier.model.isolation import Limits
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of
from tests.integration.shim.conftest import runner, shim

__all__ = ["runner", "shim"]

# A user without account, as tasks with a uid of their own have.
OWN = UnixUser("task", 1_999_998, 1_999_998, (), is_own=True)
USERS = [None, OWN] if os.geteuid() == 0 else [None]
# Another user may be unable to execute the Python of these tests.
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
DEFAULTS = Limits(pids=200, files=4096)
PROGRAM = "#include <pthread.h>\nint main(void) { return 0; }\n"
THREADS = """
import concurrent.futures, multiprocessing, subprocess, time
with concurrent.futures.ThreadPoolExecutor(50) as pool:
    assert sum(pool.map(lambda n: time.sleep(0.01) or n, range(100))) == 4950
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert subprocess.run(["sleep", "0"]).returncode == 0
import asyncio
async def main():
    server = await asyncio.start_unix_server(lambda r, w: w.close(), "socket")
    reader, writer = await asyncio.open_unix_connection("socket")
    assert not await reader.read()
asyncio.run(main())
"""


class Isolated:
    """Starts tasks at the level process."""

    def __init__(self, runner: TaskRunner, isolator: ProcessIsolator) -> None:
        self.runner, self._isolator = runner, isolator

    def spawn(self, name: str, *argv: str, user: UnixUser | None = None) -> None:
        launch = replace(launch_of(name, *argv), user=user)
        environment = {**PATH, "HOME": str(self.runner.home(name))}
        launch = replace(self._isolator.prepare(launch), environment=environment)
        with self.runner.sandboxes.create(key(name), user, again=True) as sandbox:
            self.runner.supervisor.spawn(launch, sandbox)

    async def run(self, *argv: str, user: UnixUser | None = None, name: str = "t1") -> str:
        """Run a task to its end, which must be exit code 0; return what it printed."""
        self.spawn(name, *argv, user=user)
        end = await self.runner.ended(name)
        errors = self.runner.printed(name, "stderr")
        assert end == Exited(key(name), 0), errors
        return self.runner.printed(name)


@pytest.fixture
def isolated(runner: TaskRunner, tmp_path: Path) -> Isolated:
    return Isolated(runner, ProcessIsolator(DEFAULTS, tmp_path))


@pytest.mark.parametrize("user", USERS)
class TestPrograms:
    async def test_shells(self, isolated: Isolated, user: UnixUser | None) -> None:
        line = "umask; ulimit -c; ulimit -n; (echo sub) | cat; ps -e | grep -c . > /dev/null"
        assert await isolated.run("sh", "-c", line, user=user) == "0027\n0\n4096\nsub\n"

    async def test_status(self, isolated: Isolated, user: UnixUser | None) -> None:
        text = await isolated.run("cat", "/proc/self/status", user=user)
        status = dict(line.split(":\t", 1) for line in text.splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        kept = 0x4FB if os.geteuid() == 0 and user is None else 0
        if os.geteuid() == 0:
            assert int(status["CapBnd"], 16) == kept
        assert int(status["CapEff"], 16) == kept

    async def test_threads_and_processes(self, isolated: Isolated, user: UnixUser | None) -> None:
        await isolated.run(PYTHON, "-c", THREADS, user=user)

    async def test_compilers(self, isolated: Isolated, user: UnixUser | None) -> None:
        if shutil.which("gcc") is None:
            pytest.skip("there is no gcc")
        line = f"printf '{PROGRAM}' > a.c && gcc -pthread -o a a.c && ./a".replace("\n", "\\n")
        await isolated.run("sh", "-c", line, user=user)

    async def test_git(self, isolated: Isolated, user: UnixUser | None) -> None:
        if shutil.which("git") is None:
            pytest.skip("there is no git")
        line = (
            "git init -q a && cd a && echo x > f && git add f && "
            "git -c user.name=a -c user.email=a@b commit -qm a && git clone -q . ../b && cat ../b/f"
        )
        assert await isolated.run("sh", "-c", line, user=user) == "x\n"


@pytest.mark.parametrize("user", USERS)
class TestRefused:
    async def test_changes_of_the_machine(self, isolated: Isolated, user: UnixUser | None) -> None:
        """Each call has arguments that are wrong in any case, so none has an effect."""
        column = MACHINES[os.uname().machine].column
        calls = {rule.name: NUMBERS[rule.name][column] for rule in DENIED if rule.argument is None}
        calls |= {name: NUMBERS[name][column] for name in ("clone", "unshare")}
        wrong = "ctypes.c_long(-1), " * 6
        program = (
            "import ctypes, errno\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            f"for name, number in {calls}.items():\n"
            f"    if number is not None and libc.syscall(ctypes.c_long(number), {wrong}) == -1:\n"
            "        print(name, errno.errorcode[ctypes.get_errno()])\n"
        )
        text = await isolated.run(PYTHON, "-S", "-c", program, user=user)
        answers = dict(line.split() for line in text.splitlines())
        assert answers.pop("clone3") == "ENOSYS"
        assert answers == {n: "EPERM" for n, number in calls.items() if number and n != "clone3"}

    async def test_namespaces(self, isolated: Isolated, user: UnixUser | None) -> None:
        line = "for flag in -U -m -p -n -i -u -C; do unshare $flag true && echo $flag; done; true"
        assert await isolated.run("sh", "-c", line, user=user) == ""

    async def test_its_shim_is_out_of_reach(
        self, isolated: Isolated, user: UnixUser | None
    ) -> None:
        if user is None and landlock_version() < 6:
            pytest.skip("the kernel has no Landlock 6")
        line = (
            "for n in STOP KILL TERM USR1; do kill -$n $PPID && echo $n; done\n"
            "for f in environ mem root/etc fd/3 maps; do "
            "head -c 1 /proc/$PPID/$f >/dev/null && echo $f; done; true"
        )
        assert await isolated.run("sh", "-c", line, user=user) == ""

    async def test_a_neighbour_is_out_of_reach(
        self, isolated: Isolated, user: UnixUser | None
    ) -> None:
        if user is None and landlock_version() < 6:
            pytest.skip("the kernel has no Landlock 6")
        isolated.spawn("neighbour", "sleep", "60", user=user)
        other = await isolated.runner.started("neighbour")
        trace = (
            "import ctypes, os, sys\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            f"print(libc.ptrace(16, {other}, None, None), ctypes.get_errno())\n"
            "vec = (ctypes.c_uint64 * 2)()\n"
            "vec[:] = ctypes.addressof(vec), 8\n"
            f"print(libc.process_vm_readv({other}, vec, 1, vec, 1, 0), ctypes.get_errno())\n"
        )
        assert await isolated.run(PYTHON, "-S", "-c", trace, user=user) == "-1 1\n-1 1\n"
        line = f"kill -9 {other}; cat /proc/{other}/environ; true"
        assert await isolated.run("sh", "-c", line, user=user, name="t2") == ""


async def test_a_task_that_opens_files_without_end_meets_its_limit(isolated: Isolated) -> None:
    program = (
        "import os\n"
        "try:\n"
        "    for number in range(100_000): os.dup(0)\n"
        "except OSError as error: print(number < 4096, error.errno)\n"
    )
    assert await isolated.run(PYTHON, "-S", "-c", program) == "True 24\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a task a uid of its own")
async def test_a_task_that_forks_without_end_meets_its_limit(isolated: Isolated) -> None:
    """It ends by itself after 1,000 processes, should there be no limit."""
    program = (
        "import os, time\n"
        "try:\n"
        "    for number in range(1_000):\n"
        "        if not os.fork(): time.sleep(60)\n"
        "except OSError as error: print(number < 200, error.errno)\n"
    )
    assert await isolated.run(PYTHON, "-S", "-c", program, user=OWN) == "True 11\n"
    own = [path for path in Path("/proc").glob("[0-9]*") if _uid_of(path) == OWN.uid]
    assert not own


def _uid_of(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1
