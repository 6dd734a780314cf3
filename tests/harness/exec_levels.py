"""Commands beside tasks at each level of isolation, and what both see of themselves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from croupier.agent.isolation.isolator import Launch
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser
from croupier.model.isolation import Feature, Isolation, Limits
from tests.harness.escape_tries import RESOURCES, layers_of
from tests.harness.eventually import eventually
from tests.harness.exec_fixture import Execs
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of

# What a process sees of itself. Each line is the same in a task and in a command beside it.
FACTS = """
id; id -G; pwd; umask; ulimit -a; env | grep -v CROUPIER_EXEC_RUN | sort
grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap|SigBlk)' /proc/self/status
cat /proc/self/cgroup /proc/self/oom_score_adj /proc/self/mountinfo
for each in mnt pid ipc uts net cgroup user time; do readlink /proc/self/ns/$each; done
ls -a / /dev; ls /proc/self/fd | wc -l; for each in root cwd; do readlink /proc/self/$each; done
"""
TASK = f"({FACTS}) >facts 2>&1; mv facts told; exec sleep 600"


class ExecLevel:
    """Runs a task, and commands beside it, at one level.

    Attributes:
        task: its name.
    """

    def __init__(self, level: str, work: Path, shim: Shim) -> None:
        """Raises InvalidRequest if the machine lacks the level."""
        self.level, self.work, self.task = level, work, "t1"
        is_root = os.geteuid() == 0
        self.layers, self._image = layers_of(level, work, shim, has_own_uids=is_root)
        self.runner = TaskRunner(work, shim, isolation=self.layers)
        self.execs = Execs(self.runner)

    def launch(self, name: str, line: str, user: UnixUser | None) -> Launch:
        """Return the launch of a shell line at this level."""
        launch = launch_of(name, "/bin/sh", "-c", line, user=user)
        isolation = Isolation(namespaces=self.level == "namespaces", image=self._image)
        features = self.layers.features
        limits = Limits(
            files=512 if Feature.FILES in features else 0,
            pids=100 if Feature.PIDS in features else 0,
        )
        info = replace(launch.info, resources=RESOURCES, isolation=isolation, limits=limits)
        return replace(launch, info=info, environment={**PATH, "NAME": "a b"})

    async def start(self, user: UnixUser | None) -> None:
        """Start the task, and wait until it has told its facts."""
        self.execs.task(self.launch(self.task, TASK, user))
        home = self.runner.home(self.task)
        await eventually((home / "told").exists, 30, what="the task tells its facts")
        # On a busy machine the shim's report of the start comes later.
        await eventually(self._is_started, 30, what="the start is known")

    def _is_started(self) -> bool:
        running = self.runner.supervisor.running(key(self.task))
        return running is not None and bool(running.pid)

    async def facts(self) -> tuple[list[str], list[str]]:
        """Return what the task and a command beside it see of themselves."""
        told = (self.runner.home(self.task) / "told").read_text()
        seen = await self.execs.shell(self.task, f"exec 2>&1; {FACTS}")
        return lasting(told), lasting(seen)

    async def close(self) -> None:
        """End everything, and remove what the level has made."""
        await self.execs.close()
        self.layers.clean(())
        self.layers.close()


def lasting(facts: str) -> list[str]:
    """Return the lines without mounts of the chaos suite, which may run at the same time."""
    return [line for line in facts.splitlines() if " croupier-chaos " not in line]
