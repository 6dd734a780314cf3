"""A fake master and a fake agent of `croupier run`, and a fake access service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.harness.run_master import Master
from tests.harness.scripted_access import ScriptedAccess, serving_access
from tests.harness.task_outputs import TaskOutputs, serving_outputs


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    async with Master() as master:
        yield master


@pytest.fixture
async def agent() -> AsyncIterator[TaskOutputs]:
    async with serving_outputs() as outputs:
        yield outputs


@pytest.fixture
async def access() -> AsyncIterator[ScriptedAccess]:
    async with serving_access() as access:
        yield access
