"""Masters with their stores in memory, and peers that are connected and have sent nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from croupier.master.app import MasterDaemon
from croupier.net.transport import make_channel
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.harness.secured import SecuredMaster, secured_master


@pytest.fixture
async def master() -> AsyncIterator[MasterDaemon]:
    async with running_master() as master:
        yield master


@pytest.fixture
async def channel(master: MasterDaemon) -> AsyncIterator[grpc.aio.Channel]:
    async with make_channel(master.address) as channel:
        yield channel


@pytest.fixture
def operator(channel: grpc.aio.Channel) -> OperatorServiceStub:
    return OperatorServiceStub(channel)


@pytest.fixture
async def agent(master: MasterDaemon) -> AsyncIterator[RawAgent]:
    async with RawAgent(master.address) as agent:
        yield agent


@pytest.fixture
async def framework(master: MasterDaemon) -> AsyncIterator[RawFramework]:
    async with RawFramework(master.address) as framework:
        yield framework


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[SecuredMaster]:
    """Return a master with authentication."""
    async with secured_master(tmp_path) as secured:
        yield secured
