"""False masters lock no agent, and false agents end no session and no master."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from structlog.testing import capture_logs

from croupier.agent import link
from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenKind
from croupier.model.ids import AgentId
from croupier.model.store_position import MAX_EPOCH
from croupier.net.credentials import ClientSecurity
from croupier.net.server_tls import ServerTls, TlsFiles, server_credentials
from croupier.v1.framework_pb2 import ERROR_CODE_CONFLICT
from tests.harness.agents import running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, StreamEnded, running_master
from tests.harness.scripted_master import ScriptedMaster
from tests.harness.secured import bearing, secured_master
from tests.integration.agent.test_identity import QUICK, tls_of

A1 = AgentId("a1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "TIMES", QUICK)


def credentials_of(files: PemFiles) -> grpc.ServerCredentials:
    tls = ServerTls.load(TlsFiles(files.cert, files.key, files.ca), time.time())
    return server_credentials(lambda: tls, requires_certificate=True)


@pytest.mark.parametrize("role", ["client/mallory", "agent/a2"])
async def test_a_server_with_another_certificate_of_the_authority_is_no_master(
    tmp_path: Path, role: str
) -> None:
    """It gives no orders, and its epoch is not recorded."""
    false, true = ScriptedMaster(), ScriptedMaster()
    for master, name in ((false, role), (true, "master/m1")):
        master.credentials = credentials_of(authority().issue(tmp_path / name, name))
        await master.start()
    false.cluster, false.epoch = "one", MAX_EPOCH
    true.cluster, true.epoch = "one", 3
    own = authority().issue(tmp_path / "own", "agent/a1")
    options = {"tls": tls_of(own), "hostname": "h"}
    try:
        with capture_logs() as said:
            async with running_agent(
                tmp_path / "work", false.address, true.address, **options
            ) as agent:
                await true.agent()
                await eventually(lambda: agent.link.is_registered)
                await eventually(lambda: agent.state.master_epoch == 3)
                assert not false.sessions
        text = "not that of a master of this cluster"
        assert any(text in line.get("error", "") for line in said)
    finally:
        await false.stop()
        await true.stop()


@dataclass
class Cluster:
    """A master, and the credential of each agent; None without authentication."""

    master: MasterDaemon
    security: dict[str, ClientSecurity | None]

    def agent(self, agent_id: str) -> RawAgent:
        return RawAgent(self.master.address, self.security[agent_id])


@asynccontextmanager
async def cluster(directory: Path, *, auth: bool) -> AsyncIterator[Cluster]:
    if not auth:
        async with running_master() as master:
            yield Cluster(master, dict.fromkeys(("a1", "a2")))
        return
    async with secured_master(directory) as secured:
        tokens = {
            name: secured.token_for(f"agent/{name}", TokenKind.AGENT) for name in ("a1", "a2")
        }
        yield Cluster(secured.master, {name: bearing(token) for name, token in tokens.items()})


@pytest.mark.parametrize("auth", [True, False])
@pytest.mark.parametrize("epoch", [MAX_EPOCH, 2**64 - 1])
async def test_an_agent_that_reports_a_high_epoch_deposes_no_master(
    tmp_path: Path, auth: bool, epoch: int
) -> None:
    async with cluster(tmp_path, auth=auth) as found, found.agent("a1") as honest:
        await honest.register(agent_id="a1")
        term = found.master.leadership.term()
        async with found.agent("a2") as liar:
            with pytest.raises((StreamEnded, AssertionError)):
                await liar.register(agent_id="a2", cluster=honest.heard.cluster, master_epoch=epoch)
            (error,) = (each.error for each in liar._orders if each.HasField("error"))
            assert error.code == ERROR_CODE_CONFLICT
        assert found.master.leadership.term() is term
        assert found.master.driver.state.agents[A1].session is not None


async def test_nobody_registers_as_another_agent(tmp_path: Path) -> None:
    async with cluster(tmp_path, auth=True) as found, found.agent("a1") as honest:
        await honest.register(agent_id="a1")
        session = found.master.driver.state.agents[A1].session
        found.security["nobody"] = None
        for name, refusal in (("a2", "PERMISSION_DENIED"), ("nobody", "UNAUTHENTICATED")):
            async with found.agent(name) as impostor:
                with pytest.raises(StreamEnded, match=refusal):
                    await impostor.register(**honest.claim)
        assert found.master.driver.state.agents[A1].session == session
