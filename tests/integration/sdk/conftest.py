"""A fake master, and a framework that runs at it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from croupier.net import client_session
from croupier.sdk.testing import FakeMaster
from tests.integration.sdk.recorder import Recorder, running


@pytest.fixture(autouse=True)
def stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell a loop that had to wait for a processor from a master that is silent for 0.3 s."""
    monkeypatch.setattr(client_session, "_STALL_S", 0.1)


@pytest.fixture
async def master() -> AsyncIterator[FakeMaster]:
    async with FakeMaster() as master:
        yield master


@pytest.fixture
async def framework(master: FakeMaster) -> AsyncIterator[Recorder]:
    framework = Recorder(master.address)
    async with running(framework, master):
        yield framework
