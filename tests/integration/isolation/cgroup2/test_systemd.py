"""The units of an agent and its tasks under a real systemd, with control groups of version 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from croupier.model.task import Reason, TaskState
from tests.harness import limited_tasks as tasks
from tests.harness.compiled_shim import place_shim
from tests.harness.eventually import eventually
from tests.harness.scripted_master import ScriptedMaster, shell
from tests.harness.uml import REPO

SYSTEMD = Path("/usr/lib/systemd/systemd")
UNITS = Path("/run/systemd/system")
ROOT = Path("/sys/fs/cgroup/host")
RUNNING, FAILED = TaskState.RUNNING, TaskState.FAILED
# What a small system lacks, and what a read-only disk does not allow.
LEAST = "[Unit]\nDefaultDependencies=no\n"
AGENT = """[Service]
ExecStart=
ExecStart={python} -m croupier.agent
UnsetEnvironment=CROUPIER_CONFIG
Environment=CROUPIER_MASTER={master} CROUPIER_HTTP=127.0.0.1:0
Environment=CROUPIER_WORK_DIR={work} CROUPIER_RESOURCES=cpus:2;mem:256MB;disk:64MB
Environment=CROUPIER_ISOLATION=cgroup CROUPIER_TASK_USER=root CROUPIER_TASK_USERS=*,root
# For processors whose registers the guest cannot save.
PassEnvironment=GLIBC_TUNABLES OPENSSL_ia32cap
StateDirectory=
WorkingDirectory={repo}
StandardOutput=append:{log}
StandardError=append:{log}
"""
# A group of its own, which is the root for all that systemd starts.
BOOT = """
echo 0 >/sys/fs/cgroup/host/cgroup.procs
exec unshare --cgroup sh -c 'umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec /usr/lib/systemd/systemd --system --unit=tiny.target --log-target=kmsg --show-status=no'
"""


class System:
    """A running systemd in namespaces of its own."""

    def __init__(self) -> None:
        if not SYSTEMD.exists():
            pytest.skip(f"there is no {SYSTEMD}")
        Path("/proc/sys/kernel/printk_devkmsg").write_text("on\n")
        UNITS.mkdir(parents=True, exist_ok=True)
        (UNITS / "tiny.target").write_text(LEAST)
        ROOT.mkdir()
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        env = os.environ | {"container": "uml", "SYSTEMD_UNIT_PATH": str(UNITS)}
        self._process = subprocess.Popen([*unshare, "sh", "-c", BOOT], env=env)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=30)

    def add(self, unit: str, more: str = "") -> None:
        """Install a unit of ours, with a drop-in."""
        (UNITS / unit).write_text((REPO / "deploy/systemd" / unit).read_text())
        drop_in = UNITS / f"{unit}.d"
        drop_in.mkdir()
        (drop_in / "test.conf").write_text(LEAST + more)

    def ctl(self, *words: str) -> str:
        """Run systemctl where systemd runs."""
        own = self._process.pid
        (child,) = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        inside = ["nsenter", "-t", child, "-p", "-m", "systemctl", *words]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise OSError(f"systemctl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def is_running(self) -> bool:
        with suppress(OSError, ValueError):
            return bool(self.ctl("is-active", "tiny.target"))
        return False


def processes(unit: str) -> dict[str, str]:
    """Return the group of each process of a unit, below that of the unit."""
    base = ROOT / "system.slice" / unit
    return {
        pid: str(path.parent.relative_to(base))
        for path in base.rglob("cgroup.procs")
        for pid in path.read_text().split()
    }


@pytest.fixture
def system() -> Iterator[System]:
    system = System()
    yield system
    system.close()


async def registered(master: ScriptedMaster, sessions: int, log: Path) -> None:
    """Wait until agents have registered so often; a guest is slow."""
    try:
        await eventually(
            lambda: len([each for each in master.sessions if each.register]) >= sessions, 100
        )
    except AssertionError as error:
        kernel = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
        told = log.read_text() if log.exists() else "no log"
        raise AssertionError(f"{told}\n{kernel[-4000:]}") from error


async def test_limited_tasks_outlive_a_restart_of_their_agent(
    system: System, master: ScriptedMaster, tmp_path: Path
) -> None:
    """Memory limits hold over the restart, and systemd finds no process left over."""
    work, log, gate = tmp_path / "work", tmp_path / "agent.log", tmp_path / "gate"
    place_shim(work)
    await eventually(system.is_running, 30, "systemd runs")
    system.add("croupier-tasks.service")
    system.add(
        "croupier-agent.service",
        AGENT.format(python=sys.executable, master=master.address, work=work, log=log, repo=REPO),
    )
    system.ctl("daemon-reload")
    system.ctl("start", "croupier-agent")
    await registered(master, 1, log)
    waits = f"while ! test -e {gate}; do sleep 0.2; done"
    master.launch(
        shell("hog", f"{waits}; {tasks.AT_ONCE}", tasks.MEM), shell("long", "sleep 600", tasks.MEM)
    )
    for name in ("hog", "long"):
        await master.state(name, RUNNING, 120)
    assert len(processes("croupier-agent.service")) == 1
    places = list(processes("croupier-tasks.service").values())
    assert places.count("croupier-shims") == 3, "and the process that holds the group"
    assert sum(bool(re.fullmatch(r"croupier-\w{16}/[\w-]+", each)) for each in places) >= 2
    system.ctl("restart", "croupier-agent")
    await registered(master, 2, log)
    system.ctl("kill", "--signal=KILL", "croupier-agent")
    await registered(master, 3, log)
    gate.touch()
    end = await master.state("hog", FAILED, 120)
    assert Reason(end.reason) is Reason.MEMORY_LIMIT
    assert end.message.startswith("memory limit of 32 MiB exceeded; peak 32 MiB")
    assert master.states("long")[-1] is RUNNING
    said = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert "left-over process" not in said
    system.ctl("stop", "croupier-tasks")
    await master.state("long", FAILED, 120)
    assert processes("croupier-tasks.service") == {}
