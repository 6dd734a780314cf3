"""A master with a gateway, and a scheduler of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from croupier.master.app import MasterDaemon
from tests.harness.masters import ANY_PORT, running_master
from tests.harness.mesos import RawScheduler, gateway


@pytest.fixture
async def master() -> AsyncIterator[MasterDaemon]:
    async with running_master(mesos_listen=ANY_PORT) as master:
        yield master


@pytest.fixture
async def scheduler(master: MasterDaemon) -> AsyncIterator[RawScheduler]:
    async with RawScheduler(gateway(master)) as scheduler:
        yield scheduler
