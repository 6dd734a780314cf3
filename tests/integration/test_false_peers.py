"""Peers with the certificates of others, and with keys that were revoked."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from croupier.agent import link
from croupier.cli.connection import Refused
from croupier.cli.flags import Change, Target
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import AuthorityDirectory, CertificateFiles
from croupier.ctl.commands.cert import renew, restore, revoke
from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenKind
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.store_position import MAX_EPOCH
from croupier.net.certificate import read_certificates
from croupier.net.credentials import ClientSecurity
from croupier.net.server_tls import ServerTls, TlsFiles, server_credentials
from croupier.net.transport import make_channel
from croupier.process.tls.flags import TlsFlags
from croupier.v1.access_pb2 import WhoAmIRequest
from croupier.v1.access_pb2_grpc import AccessServiceStub
from croupier.v1.framework_pb2 import ERROR_CODE_CONFLICT
from croupier.v1.operator_pb2 import WatchEventsRequest
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agents import running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, StreamEnded, running_master
from tests.harness.scripted_master import ScriptedMaster
from tests.harness.secured import bearing, secured_master
from tests.integration.agent.test_identity import QUICK, tls_of

A1 = AgentId("a1")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "TIMES", QUICK)


def credentials_of(files: PemFiles) -> grpc.ServerCredentials:
    tls = ServerTls.load(TlsFiles(files.cert, files.key, files.ca), time.time())
    return server_credentials(lambda: tls, requires_certificate=True)


@pytest.mark.parametrize("role", ["client/mallory", "agent/a2"])
@pytest.mark.usefixtures("quick")
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
@pytest.mark.usefixtures("quick")
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


@pytest.mark.usefixtures("quick")
async def test_nobody_registers_as_another_agent(tmp_path: Path) -> None:
    async with cluster(tmp_path, auth=True) as found, found.agent("a1") as honest:
        await honest.register(agent_id="a1")
        session = found.master.driver.state.agents[A1].session
        found.security["nobody"] = None
        async with found.agent("a2") as impostor:
            with pytest.raises(StreamEnded, match="PERMISSION_DENIED"):
                await impostor.register(**honest.claim)
        async with found.agent("nobody") as impostor:
            # It is refused before its REGISTER, and a write that fails would hide the status.
            assert (await impostor.ended())[0] is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(StreamEnded):
                await impostor.register(**honest.claim)
        assert found.master.driver.state.agents[A1].session == session


class Site:
    """An authority's directory with the certificates of a master, a client and an agent."""

    def __init__(self, folder: Path) -> None:
        self.authority = AuthorityDirectory(folder / "certs")
        self.authority.init("test", 365, utc_now(), force=False)
        self.made: dict[str, CertificateFiles] = {}
        for kind, name, hosts in (
            ("master", "m1", ("127.0.0.1",)),
            ("client", "admin", ()),
            ("client", "spare", ()),
            ("agent", "a1", ()),
        ):
            self.issue(Leaf(kind, name, hosts))

    def issue(self, leaf: Leaf) -> None:
        files = self.authority.issue(leaf, 30, utc_now(), force=True)
        self.made[f"{leaf.kind}/{leaf.name}"] = files

    def security(self, name: str) -> ClientSecurity:
        return ClientSecurity(self.authority.ca, self.made[name].cert, self.made[name].key)

    @asynccontextmanager
    async def master(self) -> AsyncIterator[MasterDaemon]:
        own = self.made["master/m1"]
        tls = TlsFlags(tls_ca=self.authority.ca, tls_cert=own.cert, tls_key=own.key)
        async with running_master(tls=tls, auth=True) as master:
            yield master

    def target(self, master: MasterDaemon, name: str = "client/admin") -> Target:
        own = self.made[name]
        return Target(
            (master.address,), tls_ca=self.authority.ca, tls_cert=own.cert, tls_key=own.key
        )

    async def revoke(
        self, master: MasterDaemon, named: Path | str, by: str = "client/admin"
    ) -> None:
        target = self.target(master, by)
        await asyncio.to_thread(
            revoke, str(named), description="stolen", change=Change(master=target)
        )

    async def caller(self, master: MasterDaemon, name: str) -> str:
        """Return the principal that the master sees, or why it refuses."""
        async with make_channel(master.address, self.security(name)) as channel:
            try:
                return str((await AccessServiceStub(channel).WhoAmI(WhoAmIRequest())).principal)
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"

    async def scrape(self, master: MasterDaemon, name: str) -> int:
        context = ssl.create_default_context(cafile=self.authority.ca)
        context.load_cert_chain(self.made[name].cert, self.made[name].key)
        url = f"https://{master.http_address}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
            return answer.status


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_revoked_key_is_refused_with_all_its_certificates(site: Site) -> None:
    security = site.security("agent/a1")
    async with site.master() as master, RawAgent(master.address, security) as agent:
        await agent.register(agent_id="a1")
        assert await site.scrape(master, "client/admin") == 200

        await site.revoke(master, site.made["agent/a1"].cert)
        with pytest.raises(
            StreamEnded, match=r"UNAUTHENTICATED.*certificate of this stream was rev"
        ):
            await agent.next("launch")
        refused = await site.caller(master, "agent/a1")
        assert refused.startswith("UNAUTHENTICATED: the client certificate was revoked")
        # A renewal keeps the key, which the thief has.
        site.authority.renew(site.made["agent/a1"].cert, 30, utc_now())
        assert "was revoked" in await site.caller(master, "agent/a1")
        site.issue(Leaf("agent", "a1"))
        assert await site.caller(master, "agent/a1") == "agent/a1"

        with pytest.raises(Refused, match="your own certificate"):
            await site.revoke(master, site.made["client/admin"].cert)
        with pytest.raises(InvalidRequest, match="no certificate of an agent or a client"):
            await site.revoke(master, site.made["master/m1"].cert)


async def test_a_watch_with_a_revoked_key_ends(site: Site) -> None:
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(site.master())
        security = site.security("client/spare")
        channel = await stack.enter_async_context(make_channel(master.address, security))
        watch = OperatorServiceStub(channel).WatchEvents(WatchEventsRequest(follow=True))
        await watch.read()
        await site.revoke(master, site.made["client/spare"].cert)

        async def read_on() -> None:
            while await watch.read() is not grpc.aio.EOF:
                pass

        with pytest.raises(grpc.aio.AioRpcError, match="of this stream was revoked") as ended:
            await asyncio.wait_for(read_on(), 30)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_restored_key_is_accepted_again(site: Site) -> None:
    async with site.master() as master:
        key_id = read_certificates(site.made["client/spare"].cert)[0].key_id
        # The audit log shows the id where the certificate's file is lost.
        await site.revoke(master, key_id)
        assert "was revoked" in await site.caller(master, "client/spare")
        assert await site.scrape(master, "client/spare") == 401
        await asyncio.to_thread(restore, key_id, change=Change(master=site.target(master)))
        assert await site.caller(master, "client/spare") == "client/spare"


def test_a_timer_renews_what_expires_soon_and_nothing_during_a_rotation(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, soon = site.authority.path, site.made["agent/a1"].cert
    site.authority.renew(soon, 5, utc_now())

    def renewed() -> str:
        renew(folder, within="10d")
        return capsys.readouterr().out

    lines = renewed().splitlines()
    assert [line.split()[0] for line in lines if "renewed" in line] == [str(soon)]
    assert renewed() == "no certificate needs to be renewed\n"
    site.authority.renew(soon, 5, utc_now())
    site.authority.rotate(365, utc_now())
    with pytest.raises(Conflict, match="finish the rotation"):
        renewed()
