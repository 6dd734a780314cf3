"""Tries to escape from a task: a program beside decoys, at each level and for three users.

Nothing of the machine is changed if a try succeeds; `escapes.c` says how. The neighbour, its shim
and the agent are decoys of the test.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from croupier.agent.core.events import Exited
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.cgroup.directory import name_for
from croupier.agent.isolation.cgroup.places import read_places
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Launch, Layers, Setting
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser
from croupier.model.isolation import Isolation
from croupier.model.resources import Resources
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import Execs
from tests.harness.oci_image import make_root
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of

SOURCE = Path(__file__).resolve().parents[1] / "integration/isolation/escapes.c"
LEVELS = {
    "none": ("none",),
    "process": ("process",),
    "cgroup": ("process", "cgroup"),
    "namespaces": ("process", "cgroup", "namespaces"),
    "container": ("process", "cgroup", "container"),
}
TOTAL = Resources.parse("cpus:2;mem:512MB")
RESOURCES = Resources.parse("cpus:0.1;mem:64MB")
_IPC_CREAT, _IPC_RMID = 0o1000, 0


def compiled_escapes(folder: Path) -> Path:
    """Compile the program, which also runs in an empty image."""
    path = folder / "escapes"
    subprocess.run(["cc", "-O1", "-static", "-o", path, SOURCE], check=True, timeout=60)
    return path


@dataclass(frozen=True, slots=True)
class Decoys:
    """What a task may try to reach, apart from its neighbour.

    Attributes:
        agent: the pid of a process with the agent's user.
        environment: tells the program where they are.
    """

    agent: int
    environment: dict[str, str]


@contextmanager
def decoys(work: Path, tries: Path, owner: int) -> Iterator[Decoys]:
    """Make the decoys; `owner` is the user of the agent."""
    with ExitStack() as opened:
        run = Path("/run") if os.access("/run", os.W_OK) else work.parent
        directory = run / f"croupier-test-{os.getpid()}"
        directory.mkdir(mode=0o755)
        opened.callback(shutil.rmtree, directory)
        name = f"croupier-test-{os.getpid()}"
        listening(opened, str(directory / "socket"))
        (directory / "socket").chmod(0o777)
        listening(opened, f"\0{name}")
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            undealt = free.getsockname()[1]
        shm_file = Path("/dev/shm") / name
        shm_file.write_text("x")
        shm_file.chmod(0o644)
        opened.callback(shm_file.unlink)
        setuid = work.parent / "setuid"
        shutil.copy(tries, setuid)
        setuid.chmod(0o4755)
        checkpoint = work / "checkpoint.log"
        checkpoint.touch(mode=0o600)
        with suppress(PermissionError):
            os.chown(checkpoint, owner, owner)
        demote = None if owner == os.geteuid() else owner
        agent = subprocess.Popen(["sleep", "600"], user=demote, group=demote)
        opened.callback(agent.wait, 10)
        opened.callback(agent.kill)
        environment = {
            "AGENT": str(agent.pid), "WORK": str(work), "DECOY_RUN": str(directory),
            "ABSTRACT": name, "PORT": str(tcp.getsockname()[1]), "UNDEALT": str(undealt),
            "SHM": str(shared_memory(opened)), "SETUID": str(setuid),
        }  # fmt: skip
        yield Decoys(agent.pid, environment)


def listening(opened: ExitStack, name: str) -> None:
    """Listen on a Unix socket."""
    listener = opened.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(name)
    listener.listen(64)


def shared_memory(opened: ExitStack) -> int:
    """Make a segment that everybody may use; return its key."""
    libc, number = ctypes.CDLL(None), 0x43520000 + os.getpid() % 0xFFFF
    segment = libc.shmget(number, 4096, _IPC_CREAT | 0o666)
    assert segment >= 0
    opened.callback(libc.shmctl, segment, _IPC_RMID, None)
    return number


def layers_of(level: str, work: Path, shim: Shim, *, has_own_uids: bool) -> tuple[Layers, str]:
    """Return the isolation of a level, and the image of its tasks.

    Raises:
        InvalidRequest: if the machine lacks the level.
    """
    roots = work.parent / "roots"
    is_image = level == "container"
    image = f"dir:{make_root(roots / 'box')}" if is_image else ""
    flags = IsolationFlags(
        isolation=LEVELS[level],
        image_roots=(roots,) if is_image else (),
        container_runtime=str(program("runc")) if is_image else "",
    )
    return assemble(Setting(flags, TOTAL, work, shim, has_own_uids)), image


class Tries:
    """Runs the program as a task at one level."""

    def __init__(self, level: str, work: Path, shim: Shim) -> None:
        """Raises InvalidRequest if the machine lacks the level."""
        self.work, self.level = work, level
        self._layers, self._image = layers_of(level, work, shim, has_own_uids=True)
        self._runner = TaskRunner(work, shim, isolation=self._layers)

    async def run(
        self,
        tries: Path,
        found: Decoys,
        users: tuple[UnixUser | None, ...],
        *,
        is_command: bool = False,
    ) -> dict[str, str]:
        """Run the program beside a neighbour, as `users`; return `held` or `escaped` by try.

        `is_command`: it is a command beside a task, not a task.
        """
        attacker, neighbour = users
        self._start("victim", neighbour, ("sleep", "600"), {})
        pid = await self._runner.started("victim")
        secret = self._runner.home("victim") / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        if neighbour is not None:
            os.chown(secret, neighbour.uid, neighbour.gid)
        environment = {
            **found.environment,
            "V": str(self._inner(pid)),
            "VSHIM": str(self._runner.shim_of("victim")),
            "VHOME": str(secret.parent),
            **self._groups(),
        }
        if is_command:
            printed = await self._run_command(attacker, environment, tries)
        else:
            self._start("attacker", attacker, ("./escapes",), environment, tries)
            end = await self._runner.measured("attacker")
            errors = self._runner.printed("attacker", "stderr")
            assert isinstance(end, Exited), end
            assert end.exit_code == 0, (end, errors)
            printed = self._runner.printed("attacker")
        assert Path(f"/proc/{pid}").exists()
        return dict(line.split(" ", 1) for line in printed.splitlines())

    async def close(self) -> None:
        """End all tasks, and remove what the level has made."""
        await self._runner.supervisor.end(10)
        self._runner.supervisor.close()
        self._layers.clean(())
        self._layers.close()

    async def _run_command(
        self, user: UnixUser | None, environment: dict[str, str], tries: Path
    ) -> str:
        """Run the program beside a task of its user; return what it has printed."""
        execs = Execs(self._runner)
        waits = ("/bin/sh", "-c", "touch ready; exec sleep 600")
        launch = self._start("attacker", user, waits, environment, tries)
        execs.launches.of[launch.key] = launch
        await self._runner.started("attacker")
        await eventually((self._runner.home("attacker") / "ready").exists, 30)
        end, output, errors = await execs.run("attacker", "./escapes")
        assert end.exit_code == 0, (end, errors)
        await execs.execs.close()
        return output

    def _inner(self, pid: int) -> int:
        """Return the host's pid of the program of a task, below the tool that started it."""
        children = Path(f"/proc/{pid}/task/{pid}/children")
        inner = children.read_text().split() if children.exists() else []
        return int(inner[0]) if inner else pid

    def _groups(self) -> dict[str, str]:
        """Return files of control groups that the program tries to write."""
        paths = {
            name: Path(path)
            for place in read_places(self.work, name_for(self.work))
            for name, path in place.directories.items()
        }
        above = paths.get("memory", self.work)
        enter = "tasks" if (above / "tasks").exists() else "cgroup.procs"
        limit = next(iter(above.glob("victim/memory.limit_in_bytes")), above / "victim/memory.max")
        root = next(iter(Path("/sys/fs/cgroup").glob("*/release_agent")), Path("/none"))
        return {"ENTER": str(above / enter), "LIMIT": str(limit), "RELEASE": str(root)}

    def _start(
        self,
        name: str,
        user: UnixUser | None,
        argv: tuple[str, ...],
        environment: dict[str, str],
        tries: Path | None = None,
    ) -> Launch:
        is_boxed = self.level == "namespaces"
        launch = launch_of(name, *argv, user=user)
        isolation = Isolation(namespaces=is_boxed, image=self._image)
        info = replace(launch.info, resources=RESOURCES, isolation=isolation)
        with self._runner.sandboxes.create(key(name), user, again=True) as sandbox:
            if tries is not None:
                shutil.copy(tries, Path(sandbox.path) / "escapes")
                (Path(sandbox.path) / "escapes").chmod(0o755)
            launch = replace(
                launch,
                info=info,
                sandbox=sandbox.path,
                environment={**PATH, "HOME": sandbox.path, **environment},
            )
            self._runner.supervisor.spawn(self._layers.prepare(launch), sandbox)
        return launch
