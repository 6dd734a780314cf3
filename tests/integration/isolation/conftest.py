"""The shim and the directories of tests.

The folders whose tests run in a guest are left out, except in a guest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from croupier.agent.shim.build import Shim
from tests.harness.compiled_shim import compiled_shim
from tests.harness.limited_tasks import Limited
from tests.harness.open_directory import open_directory
from tests.harness.scripted_master import ScriptedMaster
from tests.harness.uml import in_guest

GUESTS = ("cgroup2", "systemd")
collect_ignore = [] if in_guest() else GUESTS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test of a guest that is named on this machine, which it would change."""
    if item.path.parent.name in GUESTS and not in_guest():
        pytest.fail("it runs in a guest: see test_guests.py", pytrace=False)


@pytest.fixture(scope="session")
def shim() -> Shim:
    return compiled_shim()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory that tasks of other users can enter."""
    with open_directory() as path:
        yield path


@pytest.fixture
async def limited(tmp_path: Path, shim: Shim) -> AsyncIterator[Limited]:
    limited = Limited(tmp_path, shim)
    yield limited
    await limited.close()


@pytest.fixture
async def master() -> AsyncIterator[ScriptedMaster]:
    scripted = ScriptedMaster()
    await scripted.start()
    yield scripted
    await scripted.stop()
