"""Tasks at their limits in control groups of version 2."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from croupier.agent.shim.build import Shim
from tests.harness import limited_tasks as tasks
from tests.harness.limited_tasks import Limited


@pytest.fixture
async def limited(tmp_path: Path, shim: Shim) -> AsyncIterator[Limited]:
    limited = Limited(tmp_path, shim)
    yield limited
    await limited.close()


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
        ["sh", "-ec", CONTAINER], capture_output=True, text=True, timeout=60, check=False
    )
    place, controllers, *groups = done.stdout.splitlines()
    assert place == "{'all': '/sys/fs/cgroup/x'}", done.stderr
    assert {"memory", "pids"} <= set(controllers.split())
    assert groups == ["0::/croupier-agent"] * 2
