"""Tasks at their limits in the control groups of this machine. `cgroup2/` has those of a guest."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from croupier.agent.isolation.cgroup.isolator import open_groups, own_groups, place_for
from croupier.agent.shim.build import Shim
from croupier.model.errors import Unavailable
from tests.harness import limited_tasks as tasks
from tests.harness.limited_tasks import Limited


@pytest.fixture(scope="module", autouse=True)
def groups() -> None:
    try:
        open_groups(
            place_for(own_groups(), f"croupier-test-probe-{os.getpid()}"), tasks.NO_BOUNDS
        ).close()
    except (Unavailable, OSError) as reason:
        pytest.skip(f"this machine lets no control groups be made: {reason}")


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
