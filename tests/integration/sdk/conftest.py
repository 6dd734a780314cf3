"""A fake master, and a framework that runs at it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from croupier.sdk.testing import FakeMaster
from tests.integration.sdk.recorder import Recorder, running


@pytest.fixture
async def master() -> AsyncIterator[FakeMaster]:
    async with FakeMaster() as master:
        yield master


@pytest.fixture
async def framework(master: FakeMaster) -> AsyncIterator[Recorder]:
    framework = Recorder(master.address)
    async with running(framework, master):
        yield framework
