"""A master and an agent on IPv6: registration, HTTP, and the addresses that they tell."""

from __future__ import annotations

import socket
from pathlib import Path

import aiohttp
import pytest

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.net.unary import call_master
from croupier.v1.operator_pb2 import ListAgentsRequest
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually

LOOPBACK = Address.parse("[::1]:0")


@pytest.fixture(autouse=True)
def _needs_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


async def test_a_cluster_on_ipv6(tmp_path: Path) -> None:
    master = MasterDaemon(MasterConfig(listen=LOOPBACK, http=LOOPBACK, store=StoreChoice(None)))
    try:
        await master.start()
        assert str(master.address).startswith("[::1]:")
        async with running_agent(tmp_path, master.address, http=LOOPBACK) as agent:
            await eventually(lambda: agent.link.is_registered)
            async with make_channel(master.address) as channel:
                question = OperatorServiceStub(channel).ListAgents
                answer = await call_master(question, ListAgentsRequest(), master.address, 5.0)
            (view,) = answer.agents
            assert view.agent.http_address == str(agent.http_address)
            assert view.agent.http_address.startswith("[::1]:")
            for address in (master.http_address, agent.http_address):
                url = f"http://{address}/healthz"
                async with aiohttp.ClientSession() as session, session.get(url) as found:
                    assert found.status == 200
    finally:
        await master.stop()
