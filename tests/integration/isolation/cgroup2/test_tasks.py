"""Control groups of version 2 in a guest, and tasks at their limits in them."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from croupier.agent.shim.build import Shim
from tests.harness import limited_tasks as tasks
from tests.harness.debian import program
from tests.harness.eventually import eventually
from tests.harness.limited_tasks import Limited


@pytest.mark.parametrize("line", [tasks.AT_ONCE, tasks.SLOWLY, tasks.IN_MANY])
async def test_memory(limited: Limited, line: str) -> None:
    await tasks.check_memory(limited, line)


@pytest.mark.parametrize("check", tasks.CHECKS)
async def test_limits(limited: Limited, check: Callable[[Limited], Awaitable[None]]) -> None:
    await check(limited)


async def test_adoption(tmp_path: Path, shim: Shim) -> None:
    await tasks.check_adoption(tmp_path, shim)


CONTAINER = f"""
group=/sys/fs/cgroup/container; mkdir $group; echo 0 >$group/cgroup.procs
exec unshare --cgroup --mount sh -ec 'umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup
sleep 60 & {sys.executable} -c "
from croupier.agent.isolation.cgroup.isolator import own_groups, place_for
print(place_for(own_groups(), chr(120)).directories)"
cat /sys/fs/cgroup/cgroup.subtree_control /proc/$!/cgroup /proc/self/cgroup; kill $!'
"""


def test_an_agent_beside_others_in_a_container_makes_room_for_groups() -> None:
    done = subprocess.run(
        ["sh", "-ec", CONTAINER], capture_output=True, text=True, timeout=120, check=False
    )
    place, controllers, *groups = done.stdout.splitlines()
    assert place == "{'all': '/sys/fs/cgroup/x'}", done.stderr
    assert {"memory", "pids"} <= set(controllers.split())
    assert groups == ["0::/croupier-agent"] * 2


ROOT = Path("/sys/fs/cgroup")
ORDINARY = 65534
# quotactl(2): Q_SETQUOTA of a project.
SET_PROJECT_QUOTA = 0x800008 << 8 | 2


@pytest.fixture
async def group() -> AsyncIterator[Path]:
    path = ROOT / "test"
    path.mkdir()
    yield path
    (path / "cgroup.kill").write_text("1")
    await eventually(lambda: "populated 0" in (path / "cgroup.events").read_text())
    path.rmdir()


def started_in(group: Path, command: str) -> subprocess.Popen[str]:
    """Start `sh -c command` as a process of `group`, and return once it is there."""
    enter = f"echo 0 >{group}/cgroup.procs; echo; {command}"
    process = subprocess.Popen(["sh", "-c", enter], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    return process


def test_controllers_and_files(group: Path) -> None:
    have = (group / "cgroup.controllers").read_text().split()
    assert {"cpu", "io", "memory", "pids"} <= set(have)
    for file in ("cpu.max", "cpu.weight", "io.max", "memory.peak", "pids.peak", "cgroup.kill"):
        assert (group / file).exists(), file


def test_a_memory_limit_kills_the_group(group: Path) -> None:
    (group / "memory.max").write_text(str(32 << 20))
    (group / "memory.oom.group").write_text("1")
    with started_in(group, "exec sleep 60") as neighbour:
        with started_in(group, "exec tail /dev/zero") as hog:
            assert hog.wait(30) == -signal.SIGKILL
        assert neighbour.wait(30) == -signal.SIGKILL
    events = (group / "memory.events").read_text()
    assert "oom_group_kill 1" in events
    assert int((group / "memory.peak").read_text()) == 32 << 20


def test_a_group_is_killed_at_once(group: Path) -> None:
    with started_in(group, "exec sleep 60") as process:
        (group / "cgroup.kill").write_text("1")
        assert process.wait(30) == -signal.SIGKILL


def test_a_limit_of_processes(group: Path) -> None:
    (group / "pids.max").write_text("1")
    with started_in(group, "sleep 60 & wait") as process:
        assert process.wait(30) == 2
    assert "max 1" in (group / "pids.events").read_text()


def test_loopback_is_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 5).close()


@pytest.mark.parametrize("user", [0, ORDINARY])
def test_bwrap_makes_namespaces(user: int) -> None:
    bwrap = str(program("bwrap"))
    words = [
        bwrap,
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--unshare-all",
        "sh",
        "-c",
        "echo $$",
    ]
    ran = subprocess.run(words, user=user, group=user, capture_output=True, text=True, timeout=90)
    assert (ran.returncode, ran.stdout.strip()) == (0, "2"), ran.stderr


def test_a_project_quota_holds_for_an_ordinary_user(tmp_path: Path) -> None:
    image, disk = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, 32 << 20)
    disk.mkdir()
    make = [
        str(program("mkfs.ext4")),
        "-q",
        "-O",
        "project,quota",
        "-E",
        "quotatype=prjquota",
        str(image),
    ]
    subprocess.run(make, check=True, timeout=90)
    subprocess.run(["mount", "-o", "loop,prjquota", image, disk], check=True, timeout=90)
    try:
        box = disk / "box"
        box.mkdir()
        subprocess.run(["chattr", "-p", "7", "+P", box], check=True, timeout=90)
        device = next(
            line.split()[0]
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.split()[1] == str(disk)
        )
        # struct dqblk: limits in KiB, and the flag that says that they are set.
        limit = struct.pack("=8QI4x", 1024, 0, 0, 0, 0, 0, 0, 0, 1)
        assert ctypes.CDLL(None).quotactl(SET_PROJECT_QUOTA, device.encode(), 7, limit) == 0
        # The file is opened here, because the user may not enter the directories above it.
        with (box / "file").open("wb") as file:
            filled = subprocess.run(
                ["dd", "if=/dev/zero", "bs=64k", "count=64"],
                user=ORDINARY,
                group=ORDINARY,
                stdout=file,
                stderr=subprocess.PIPE,
                text=True,
                timeout=90,
            )
        assert os.strerror(errno.EDQUOT) in filled.stderr
        # The directory counts too.
        assert 900 << 10 < (box / "file").stat().st_size < 1 << 20
    finally:
        subprocess.run(["umount", disk], check=True, timeout=90)
