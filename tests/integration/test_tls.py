"""TLS between a real master and its clients: accepted certificates, and errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from structlog.testing import capture_logs

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.agent.probe import GivenResources
from croupier.agent.recover import clean_up
from croupier.master.app import MasterDaemon
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.credential_search import credentials_file
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import bind, make_channel, make_server
from croupier.net.unary import call_master
from croupier.process.tls.flags import TlsFlags
from croupier.sdk import Credentials, Framework
from croupier.v1.operator_pb2 import GetMasterRequest
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agent_defaults import SAME_USER
from tests.harness.agents import UNISOLATED
from tests.harness.certificates import HOUR, Authority, PemFiles, authority
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, running_master

PAST, FUTURE = (-2 * HOUR, -HOUR), (HOUR, 2 * HOUR)


def flags(files: PemFiles) -> TlsFlags:
    return TlsFlags(tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca)


def client(files: PemFiles) -> ClientSecurity:
    return ClientSecurity(files.ca, files.cert, files.key)


@asynccontextmanager
async def secured(files: PemFiles, **options: Any) -> AsyncIterator[MasterDaemon]:
    async with running_master(tls=flags(files), auth=False, **options) as master:
        assert master._tls is not None
        yield master


async def ask(address: Address, security: ClientSecurity | None) -> str:
    """Return `accepted`, or the error's text."""
    async with make_channel(address, security) as channel:
        question = OperatorServiceStub(channel).GetMaster
        try:
            await call_master(question, GetMasterRequest(), address, 5.0, security)
        except Unavailable as error:
            return str(error)
        return "accepted"


@pytest.fixture
def own(tmp_path: Path) -> PemFiles:
    return authority().issue(tmp_path / "master", "master/m1")


@pytest.fixture
def alice(tmp_path: Path) -> PemFiles:
    return authority().issue(tmp_path / "alice", "client/alice")


async def test_a_client_with_a_certificate_of_the_authority_is_accepted(
    own: PemFiles, alice: PemFiles
) -> None:
    async with secured(own) as master:
        assert await ask(master.address, client(alice)) == "accepted"


async def test_every_other_client_is_refused_with_a_reason(
    own: PemFiles, alice: PemFiles, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expired = authority().issue(tmp_path / "expired", "client/alice", valid=PAST)
    early = authority().issue(tmp_path / "early", "client/alice", valid=FUTURE)
    forged = Authority().issue(tmp_path / "forged", "client/alice", trusting=authority().pem)
    async with secured(own) as master:
        at = f"cannot reach a master at {master.address}: it"
        capfd.readouterr()
        assert await ask(master.address, None) == (
            f"{at} closed the connection; does it require TLS (--tls-ca)?"
        )
        without = await ask(master.address, ClientSecurity(ca=alice.ca))
        assert without.startswith(f"{at} closed the connection; does it require a certificate")
        refused = f"{at} refused this client's certificate; "
        assert f"{refused}the certificate {expired.cert} expired on" in await ask(
            master.address, client(expired)
        )
        assert f"{refused}the certificate {early.cert} is not valid before" in await ask(
            master.address, client(early)
        )
        assert await ask(master.address, client(forged)) == (
            f"{at} closed the connection; does it trust the authority that signed {forged.cert}?"
        )
        assert capfd.readouterr().err == "", "gRPC prints nothing of its own"


@asynccontextmanager
async def impostor(files: PemFiles | None) -> AsyncIterator[Address]:
    """Run a server with a certificate that no master should have."""
    server = make_server()
    credentials = None
    if files is not None:
        pair = (files.key.read_bytes(), files.cert.read_bytes())
        credentials = grpc.ssl_server_credentials([pair])
    address = Address("127.0.0.1", bind(server, ANY_PORT, credentials))
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("role", "valid", "is_forged", "reason"),
    [
        ("master/m1", PAST, False, "the certificate of {at} has expired"),
        ("master/m1", FUTURE, False, "is not valid yet; compare the clocks of both machines"),
        ("master/m1", (-HOUR, HOUR), True, "no authority in --tls-ca has signed"),
        ("agent/a1", (-HOUR, HOUR), False, "is not that of a master of this cluster: it lacks"),
    ],
)
async def test_a_false_master_is_refused_with_a_reason(
    role: str, valid: Any, is_forged: bool, reason: str, alice: PemFiles, tmp_path: Path
) -> None:
    signer = Authority() if is_forged else authority()
    async with impostor(signer.issue(tmp_path / "false", role, valid=valid)) as address:
        text = await ask(address, client(alice))
        assert reason.format(at=f"the server at {address}") in text


async def test_a_master_without_tls_is_refused_with_a_reason(alice: PemFiles) -> None:
    async with impostor(None) as address:
        text = await ask(address, client(alice))
        assert text == f"the server at {address} does not use TLS"


async def test_token_listener_takes_clients_without_a_certificate(
    own: PemFiles, alice: PemFiles
) -> None:
    async with secured(own, token_listen=ANY_PORT) as master:
        assert master.token_address is not None
        security = ClientSecurity(ca=alice.ca, token="crp_1_x")
        assert await ask(master.token_address, security) == "accepted"
        assert "does it require a certificate" in await ask(master.address, security)


async def seen_certificate(address: Address, files: PemFiles) -> bytes:
    """Return the certificate that a new connection to `address` is shown."""
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found
    finally:
        writer.close()


def der(files: PemFiles) -> bytes:
    return ssl.PEM_cert_to_DER_cert(files.cert.read_text())


async def test_a_renewed_certificate_is_for_new_connections_and_breaks_no_stream(
    own: PemFiles, alice: PemFiles
) -> None:
    async with secured(own) as master, make_channel(master.address, client(alice)) as channel:
        assert master._tls is not None
        question = OperatorServiceStub(channel).GetMaster
        await question(GetMasterRequest())
        first = der(own)
        assert await seen_certificate(master.address, alice) == first
        authority().issue(own.cert.parent, "master/m1")
        await master._tls.look()
        assert await seen_certificate(master.address, alice) == der(own) != first
        assert await seen_certificate(master.http_address, alice) == der(own)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await question(GetMasterRequest())


async def test_an_authority_is_replaced_while_old_and_new_are_trusted(
    own: PemFiles, alice: PemFiles
) -> None:
    old, new = authority(), Authority()
    both = old.pem + new.pem

    async def renew(signer: Authority, trusting: bytes, files: PemFiles, role: str) -> None:
        signer.issue(files.cert.parent, role, trusting=trusting)
        assert master._tls is not None
        await master._tls.look()
        assert await ask(master.address, client(alice)) == "accepted"

    async with secured(own) as master, make_channel(master.address, client(alice)) as channel:
        await OperatorServiceStub(channel).GetMaster(GetMasterRequest())
        for signer, trusting in ((old, both), (new, both), (new, new.pem)):
            await renew(signer, trusting, alice, "client/alice")
            await renew(signer, trusting, own, "master/m1")
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        old.issue(alice.cert.parent, "client/alice", trusting=both)
        assert "does it trust the authority" in await ask(master.address, client(alice))


async def test_metrics_are_served_over_https(own: PemFiles, alice: PemFiles) -> None:
    trusted = ssl.create_default_context(cafile=alice.ca)
    async with secured(own) as master, aiohttp.ClientSession() as session:
        url = f"://{master.http_address}/metrics"
        for has_certificate in (False, True):
            if has_certificate:
                trusted.load_cert_chain(alice.cert, alice.key)
            async with session.get(f"https{url}", ssl=trusted) as answer:
                assert "croupier_certificate_expiry_time_seconds" in await answer.text()
        with capture_logs() as logs, pytest.raises(aiohttp.ClientError):
            await session.get(f"http{url}")
        failed = [line["reason"] for line in logs if line["event"] == "http_handshake_failed"]
        assert failed == ["HTTP_REQUEST"]


@pytest.mark.parametrize(
    ("role", "valid", "cluster", "reason"),
    [
        ("master/m1", PAST, None, "expired on"),
        ("master/m1", FUTURE, None, "the clock of this machine says"),
        ("agent/a1", (-HOUR, HOUR), None, "is not the certificate of a master, but of agent/a1"),
        ("master/m1", (-HOUR, HOUR), "NONE", "does not name its cluster"),
    ],
)
async def test_a_master_refuses_to_start_with_a_certificate_that_clients_refuse(
    role: str, valid: Any, cluster: str | None, reason: str, tmp_path: Path
) -> None:
    files = authority().issue(tmp_path / "own", role, valid=valid, cluster=cluster)
    with pytest.raises(InvalidRequest, match=reason):
        async with secured(files):
            pass


def test_flags_that_lack_another_are_refused(own: PemFiles) -> None:
    with pytest.raises(CroupierError, match="--tls-cert needs --tls-key"):
        TlsFlags(tls_cert=own.cert)
    with pytest.raises(CroupierError, match="give --tls-ca"):
        TlsFlags(tls_name="m")


async def test_a_framework_without_tls_logs_what_is_missing(
    own: PemFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(own) as master:
        framework = Framework(
            name="plain", role="a", master=str(master.address), credentials=Credentials()
        )
        running = asyncio.create_task(framework.run())
        try:
            await eventually(lambda: "does it require TLS (--tls-ca)?" in caplog.text)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_an_agent_keeps_its_session_and_reconnects_with_renewed_files(
    own: PemFiles, tmp_path: Path
) -> None:
    files = authority().issue(tmp_path / "agent", "agent/a1")
    async with secured(own) as master, AsyncExitStack() as stack:
        agent = AgentDaemon(
            AgentConfig(
                master=(master.address,),
                http=ANY_PORT,
                work_dir=tmp_path / "work",
                resources=GivenResources.parse("cpus:1;mem:1GB;disk:1GB;ports:[31000-31009]"),
                tls=flags(files),
                isolate=UNISOLATED,
                users=SAME_USER,
            )
        )
        stack.push_async_callback(clean_up, tmp_path / "work")
        stack.push_async_callback(agent.stop)
        await agent.start()
        await eventually(lambda: agent.link.is_registered)
        assert await seen_certificate(agent.http_address, files) == der(files)
        session = agent.link._number
        old, new = authority(), Authority()
        for signer, trusting in ((old, old.pem + new.pem), (new, old.pem + new.pem)):
            signer.issue(own.cert.parent, "master/m1", trusting=trusting)
            signer.issue(files.cert.parent, "agent/a1", trusting=trusting)
            assert master._tls is not None
            await master._tls.look()
        assert agent.link.is_registered
        assert agent.link._number == session
        agent.link._session.hang_up()
        await eventually(lambda: agent.link._number > session and agent.link.is_registered)


class Waiting(Framework):
    """Notes when it is subscribed."""

    def __init__(self, master: Address) -> None:
        super().__init__(master=str(master))
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, _: str) -> None:
        self.subscribed.set()


async def test_a_framework_finds_credentials_that_are_written_later(
    own: PemFiles,
    alice: PemFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says once what is missing, and needs no restart."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with secured(own) as master:
        path = credentials_file(master.address)
        assert path is not None
        waiting = Waiting(master.address)
        running = asyncio.create_task(waiting.run())
        await eventually(lambda: "retry_in_s" in caplog.text)
        path.parent.mkdir(parents=True)
        path.touch(mode=0o600)
        path.write_text(f'ca = "{alice.ca}"\ncert = "{alice.cert}"\nkey = "{alice.key}"\n')
        async with asyncio.timeout(30):
            await waiting.subscribed.wait()
        await waiting.stop(teardown=True)
        await running
    assert caplog.text.count("no credential was found") == 1
    assert str(path) in caplog.text
