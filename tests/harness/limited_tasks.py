"""Tasks at their limits in control groups, in either version of them.

Safety: each task that takes memory or processes ends by itself at a small amount, and `Limited`
starts none unless the kernel has taken the limits of a group.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from croupier.agent.core.events import Ending, Exited, Vanished
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.cgroup.bounds import MIB, Bounds
from croupier.agent.isolation.cgroup.directory import name_for
from croupier.agent.isolation.cgroup.places import read_places
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Layers, Setting
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.model.isolation import NO_LIMITS, Feature, Limits, Usage
from croupier.model.resources import Resources
from croupier.model.task import Reason
from tests.harness.eventually import eventually
from tests.harness.supervisor_fixture import TaskRunner, key, launch_of

TOTAL = Resources.parse("cpus:2;mem:256MB")
MEM = "mem:32MB"
# They take 160 MiB at most: at once, in small steps, and in many processes.
AT_ONCE = "head -c 160m /dev/zero | tail | cat >/dev/null; exit 3"
SLOWLY = (
    "x=$(head -c 1m /dev/zero | tr '\\0' a); y=; i=0;"
    " while [ $i -lt 80 ]; do y=$y$x; i=$((i+1)); done; exit 3"
)
# The shells hold on to their 4 MiB: without a command after it, `sleep` replaces the shell.
IN_MANY = (
    "for i in $(seq 12); do (x=$(head -c 4m /dev/zero | tr '\\0' a); sleep 5; :) & done; wait;"
    " exit 3"
)
NO_BOUNDS, SMALL = Bounds(), Bounds(32 * MIB, 16 * MIB, 500, 50_000, 10)
SPIN = "while :; do :; done"


def group_layers(work: Path, shim: Shim, *, quota: bool = False) -> Layers:
    """Return isolation by control groups only."""
    flags = IsolationFlags(
        isolation=("cgroup",), default_limits=Limits(pids=100), cpu_quota="on" if quota else "off"
    )
    return assemble(Setting(flags, TOTAL, work, shim))


class Limited:
    """Runs tasks in control groups, and checks how they end."""

    def __init__(self, work: Path, shim: Shim, *, quota: bool = False) -> None:
        self.layers = group_layers(work, shim, quota=quota)
        self.runner = TaskRunner(work, shim, isolation=self.layers)
        self._check_limits()

    def start(self, name: str, line: str, resources: str = MEM, limits: Limits = NO_LIMITS) -> None:
        """Start a task."""
        self.runner.limited(name, line, resources, limits)

    async def ending(self, name: str) -> tuple[Exited, Ending, Usage]:
        """Wait for the end of a task; return it, and what was measured."""
        end = await self.runner.measured(name)
        assert isinstance(end, Exited)
        assert end.ending.usage is not None, end
        return end, end.ending, end.ending.usage

    async def close(self) -> None:
        """End all tasks, and check that nothing is left of any."""
        left = await self.runner.supervisor.end(10)
        self.runner.supervisor.close()
        for report in self.runner.reports:
            self.layers.forget(report.key[1])
        # Groups whose last process was about to end.
        for _ in self.runner.reports:
            self.layers.forget("none")
        self.layers.close()
        assert left == 0
        assert not left_groups(self.runner.work)

    def _check_limits(self) -> None:
        """Refuse to run anything unless a group has the limits that were written."""
        assert self.layers.features >= {Feature.MEMORY, Feature.PIDS}
        probe = launch_of("probe", "/bin/true")
        options = self.layers.prepare(probe).options
        groups = [Path(word.partition("=")[2]).parent for word in options]
        found = {path.name: path for group in groups for path in group.iterdir()}
        parents = {path.name: path for group in groups for path in group.parent.iterdir()}
        memory = parents.get("memory.limit_in_bytes") or parents["memory.max"]
        assert memory.read_text().strip() == str(256 * MIB)
        assert found["pids.max"].read_text().strip() == "100"
        self.layers.forget("probe")


def left_groups(work: Path) -> list[Path]:
    """Return the directories of groups of the agent on a work dir."""
    places = read_places(work, name_for(work))
    paths = {Path(path) for place in places for path in place.directories.values()}
    return [path for path in paths if path.exists()]


async def check_memory(limited: Limited, line: str) -> None:
    """A task that takes too much memory is told its limit and its peak; its neighbour lives."""
    limited.start("honest", "sleep 60", "mem:16MB")
    limited.start("hog", line)
    end, ending, usage = await limited.ending("hog")
    assert end.exit_code != 0
    assert ending.exceeded is not None
    assert ending.exceeded.reason is Reason.MEMORY_LIMIT
    assert ending.exceeded.message == "memory limit of 32 MiB exceeded; peak 32 MiB", ending
    assert 30 * MIB <= usage.memory_peak < 33 * MIB
    assert usage.cpu_ms > 0
    assert not limited.runner._of("honest", Exited)
    assert limited.layers.is_empty("hog")


async def check_fork_bomb(limited: Limited) -> None:
    """A task that forks meets its limit of processes, and is told how often."""
    line = "for i in $(seq 40); do sleep 60 & done; wait"
    limited.start("bomb", line, limits=Limits(pids=10))
    end, ending, usage = await limited.ending("bomb")
    assert end.exit_code == 2, "the shell cannot fork"
    (note,) = ending.notes
    assert note.startswith("pids limit of 10 was met ")
    assert ending.exceeded is None
    assert usage.pids_peak in (0, 10)
    assert limited.layers.is_empty("bomb")


async def check_weights(limited: Limited) -> None:
    """Cpus that are short are shared by the cpus of tasks."""
    line = f"taskset -pc 0 $$ >&2; {SPIN}"
    limited.start("small", line, "cpus:0.5;mem:32MB")
    limited.start("large", line, "cpus:2;mem:32MB")
    await eventually(lambda: spent(limited, "small") + spent(limited, "large") > 3000, 60)
    assert spent(limited, "large") > 2 * spent(limited, "small")


async def check_quota(limited: Limited) -> None:
    """A task keeps to its limit of cpus even if others are idle."""
    limited.start("spin", SPIN, "cpus:0.1;mem:32MB", Limits(cpus=200))
    await eventually(lambda: spent(limited, "spin") > 10)
    begun, before = time.monotonic(), spent(limited, "spin")
    await eventually(lambda: spent(limited, "spin") >= before + 300, 60)
    assert time.monotonic() - begun > 0.75, "0.3 s of cpu take 1.5 s"


async def check_usage_of_all_processes(limited: Limited) -> None:
    """Processes count although no other waits for them."""
    line = "trap '' CHLD; (i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait; exit 0"
    limited.start("t1", line)
    end, ending, usage = await limited.ending("t1")
    assert (end.exit_code, ending.exceeded, ending.notes) == (0, None, ())
    assert usage.cpu_ms > 0
    assert 0 < usage.memory_peak < 32 * MIB


async def check_escape(limited: Limited) -> None:
    """Processes that leave session and sandbox are killed with a task whose shim was killed."""
    line = "setsid env -i sh -c 'echo $$ >escaped; cd /; exec sleep 60' >/dev/null 2>&1 & sleep 60"
    limited.start("t1", line)
    await limited.runner.started("t1")
    pid = await limited.runner.pid_in("t1", "escaped")
    await eventually(lambda: "sleep" in Path(f"/proc/{pid}/cmdline").read_text())
    kill_by_pid(limited.runner.shim_of("t1"))
    end, _, _ = await limited.ending("t1")
    assert end.unknown
    assert limited.layers.is_empty("t1")


async def check_leftovers(limited: Limited) -> None:
    """A group that was made for a task that never started is removed by the next agent."""
    limited.layers.prepare(launch_of("never", "/bin/true"))
    limited.start("known", "sleep 60")
    await limited.runner.started("known")
    following = group_layers(limited.runner.work, limited.runner.shim)
    try:
        assert following.usage("never") is not None
        following.clean({"known"})
        assert following.usage("never") is None
        assert following.usage("known") is not None
        assert not following.is_empty("known")
    finally:
        following.close()


async def check_adoption(work: Path, shim: Shim) -> None:
    """Limits hold and usage is true for the next agent, and for ends that none has seen."""
    first = Limited(work, shim)
    first.start("lives", f"mkfifo pipe; read go <pipe; {AT_ONCE}")
    first.start("ends", "mkfifo pipe; read go <pipe; exit 4")
    for name in ("lives", "ends"):
        await first.runner.started(name)
    first.runner.supervisor.close()
    (first.runner.home("ends") / "pipe").write_text("\n")
    # The shim writes the end just before it releases the run file.
    await eventually(lambda: not run_file.is_locked(first.runner.runs / "ends"))
    following = Limited(work, shim)
    following.layers.clean({"lives", "ends"})
    ended = following.runner.supervisor.adopt(key("ends"), "ends")
    assert isinstance(ended, Exited)
    assert ended.exit_code == 4
    assert ended.ending.usage is not None
    assert ended.ending.usage.memory_peak > 0
    assert not isinstance(following.runner.supervisor.adopt(key("lives"), "lives"), Vanished)
    (following.runner.home("lives") / "pipe").write_text("\n")
    _, ending, _ = await following.ending("lives")
    assert ending.exceeded is not None
    following.layers.forget("ends")
    await following.close()


CHECKS: tuple[Callable[[Limited], Awaitable[None]], ...] = (
    check_fork_bomb,
    check_weights,
    check_quota,
    check_usage_of_all_processes,
    check_escape,
    check_leftovers,
)


def spent(limited: Limited, name: str) -> int:
    """Return the time on cpus of a task that runs, in milliseconds."""
    usage = limited.layers.usage(name)
    return usage.cpu_ms if usage is not None else 0


def kill_by_pid(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)
