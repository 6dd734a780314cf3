"""Credentials for etcd: accepted, refused, renewed, and replaced with their authority."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from croupier.cli.flags import Target
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import AuthorityDirectory
from croupier.ctl.commands.doctor import cluster_findings
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import MasterRecord
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.etcd.target import EtcdAccess, EtcdFlags
from croupier.master.etcd.upkeep import EtcdRenewal
from croupier.master.store.etcd import EtcdStore
from croupier.model.errors import InvalidRequest
from croupier.process.tls.flags import TlsFlags
from tests.harness.certificates import PemFiles
from tests.harness.etcd import PASSWORD, USER, Certificates, Etcd, make_certificates, running_etcd
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT
from tests.integration.etcd.conftest import Masters


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    directory = tmp_path_factory.mktemp("tls")
    certificates = make_certificates(directory / "certificates")
    with running_etcd(directory, certificates=certificates) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("users")) as etcd:
        etcd.enable_users("croupier")
        yield etcd


async def use(etcd: Etcd, access: EtcdAccess, prefix: str = "croupier") -> None:
    """Lead, commit and load with `access`."""
    async with AsyncExitStack() as stack:
        client = EtcdClient(etcd.addresses, access)
        stack.push_async_callback(client.close)
        election = EtcdElection(client, prefix, "a:1", 5)
        stack.push_async_callback(election.resign)
        await election.win()
        store = EtcdStore(client, prefix, election)
        await store.load()
        await store.commit([MasterRecord("c", 1)])
        # An expired token is renewed.
        if client._token:
            client._token = "nonsense"
        assert (await store.load()).master == MasterRecord("c", 1)
        assert election.is_won


async def refusal(etcd: Etcd, access: EtcdAccess, prefix: str = "croupier") -> str:
    with pytest.raises(InvalidRequest) as refused:
        await use(etcd, access, prefix)
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_client_with_a_certificate_is_accepted(guarded: Etcd) -> None:
    await use(guarded, guarded.access())


async def test_a_wrong_authority_is_reported(guarded: Etcd, tmp_path: Path) -> None:
    others = make_certificates(tmp_path)
    access = dataclasses.replace(guarded.access(), ca=others.client.ca.read_bytes())
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(guarded, access)


async def test_a_client_without_a_certificate_is_refused(guarded: Etcd) -> None:
    access = EtcdAccess(ca=guarded.access().ca)
    assert "are ca, certificate and key the right files?" in await refusal(guarded, access)


async def test_a_key_of_another_certificate_is_refused(guarded: Etcd, tmp_path: Path) -> None:
    others = make_certificates(tmp_path)
    access = dataclasses.replace(guarded.access(), key=others.client.key.read_bytes())
    assert "are ca, certificate and key the right files?" in await refusal(guarded, access)


async def test_renewed_credentials_are_used_within_a_term(guarded: Etcd, tmp_path: Path) -> None:
    assert guarded.certificates is not None
    own = guarded.certificates
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))
    for path, source in ((ca, own.client.ca), (cert, own.client.cert), (key, own.client.key)):
        path.write_bytes(source.read_bytes())
    files = EtcdFlags(etcd_ca=ca, etcd_cert=cert, etcd_key=key)
    async with AsyncExitStack() as stack:
        client = EtcdClient(guarded.addresses, files.read())
        stack.push_async_callback(client.close)
        election = EtcdElection(client, "renewed", "a:1", 5)
        stack.push_async_callback(election.resign)
        await election.win()
        renewal = EtcdRenewal(client, files)
        assert await renewal.look()
        before = client._endpoints
        # A certificate without its key, then of a foreign authority, then a good one.
        foreign = make_certificates(tmp_path / "foreign")
        cert.write_bytes(foreign.client.cert.read_bytes())
        with capture_logs() as logs:
            assert not await renewal.look()
            key.write_bytes(foreign.client.key.read_bytes())
            assert not await renewal.look()
            assert not await renewal.look()
            assert client._endpoints is before
            await client.get(b"x")
            cert.write_bytes(own.server.cert.read_bytes())
            key.write_bytes(own.server.key.read_bytes())
            assert await renewal.look()
        assert [line["event"] for line in logs] == [
            "etcd_credentials_not_renewed",
            "etcd_credentials_not_renewed",
            "etcd_credentials_renewed",
        ]
        assert client._endpoints is not before
        assert (client.certificate_expires_at or 0) > time.time()
        await client.get(b"x")
        assert election.is_won


async def test_a_client_with_a_password_is_accepted(with_users: Etcd) -> None:
    await use(with_users, with_users.access(USER, PASSWORD))


async def test_a_wrong_password_is_reported(with_users: Etcd) -> None:
    text = await refusal(with_users, with_users.access(USER, "wrong"))
    assert "authentication failed" in text
    assert repr(USER) in text
    assert "wrong" not in text


async def test_a_missing_user_is_refused(with_users: Etcd) -> None:
    assert "it wants a user" in await refusal(with_users, with_users.access())


async def test_a_user_without_permission_is_refused(with_users: Etcd) -> None:
    text = await refusal(with_users, with_users.access(USER, PASSWORD), prefix="elsewhere")
    assert "must be granted" in text


async def test_a_user_of_an_etcd_without_users_is_refused(masters: Masters) -> None:
    assert "not enabled" in await refusal(masters.etcd, masters.etcd.access(USER, PASSWORD))


async def test_an_unsound_release_is_logged(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.master.etcd.client.SOUND", {(3, 4): 99, (3, 5): 6})
    with capture_logs() as logs:
        await masters.client().check()
    assert [entry["event"] for entry in logs] == ["etcd_release_unsound"]


pytestmark = pytest.mark.timeout(300)

LOCALHOST = ("127.0.0.1",)
REFUSED = 'croupier_certificate_refused{certificate="etcd"}'
FAILED = 'croupier_certificate_renewals_total{certificate="etcd",outcome="failed"}'
RENEWED = 'croupier_certificate_renewals_total{certificate="etcd",outcome="renewed"}'


class Machines:
    """An authority's directory, and the files that were copied from it to the machines."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.live = AuthorityDirectory(folder / "certs"), folder / "live"
        self.authority.init("test", 365, utc_now(), force=False)
        for leaf in (
            Leaf("etcd", "member", LOCALHOST),
            Leaf("etcd", "m1", LOCALHOST),
            Leaf("master", "m1", LOCALHOST),
            Leaf("client", "admin"),
        ):
            self.authority.issue(leaf, 30, utc_now(), force=False)
        self.live.mkdir()
        self.copy()

    def copy(self) -> None:
        for path in self.authority.path.iterdir():
            if path.name not in ("ca.key", "ca-old.key"):
                shutil.copy(path, self.live / f"{path.name}.new")
                (self.live / f"{path.name}.new").replace(self.live / path.name)

    def renew(self) -> None:
        for path in self.authority.leaves():
            self.authority.renew(path, 30, utc_now())

    def pair(self, stem: str) -> PemFiles:
        folder = self.live
        return PemFiles(folder / "ca.crt", folder / f"{stem}.crt", folder / f"{stem}.key")

    @property
    def of_etcd(self) -> Certificates:
        return Certificates(self.pair("etcd-member"), self.pair("etcd-m1"))

    @asynccontextmanager
    async def master(self, etcd: Etcd) -> AsyncIterator[MasterDaemon]:
        own, client = self.pair("master-m1"), self.pair("etcd-m1")
        config = MasterConfig(
            listen=ANY_PORT,
            http=ANY_PORT,
            store=StoreChoice.parse(f"etcd://{','.join(map(str, etcd.addresses))}/croupier"),
            # The restarts follow one another without a pause.
            lease=30,
            tls=TlsFlags(tls_ca=own.ca, tls_cert=own.cert, tls_key=own.key),
            etcd=EtcdFlags(etcd_ca=client.ca, etcd_cert=client.cert, etcd_key=client.key),
            metrics_auth="off",
        )
        master = MasterDaemon(config)
        try:
            await master.start()
            serving = asyncio.create_task(master.run(asyncio.Event()))

            def leads() -> bool:
                return master.leadership.is_leader or serving.done()

            await eventually(leads, 20, "the master leads")
            if serving.done():
                serving.result()
            yield master
        finally:
            await master.stop()

    async def doctor(self, master: MasterDaemon) -> list[str]:
        admin = self.pair("client-admin")
        target = Target((master.address,), tls_ca=admin.ca, tls_cert=admin.cert, tls_key=admin.key)
        return [each.line async for each in cluster_findings(target)]


async def metrics(master: MasterDaemon) -> dict[str, float]:
    url = f"https://{master.http_address}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
        lines = (await answer.text()).splitlines()
    return {
        name: float(value)
        for name, _, value in (each.rpartition(" ") for each in lines[1:])
        if not name.startswith("#")
    }


async def restart_one_by_one(etcd: Etcd) -> None:
    for number in range(len(etcd.members)):
        etcd.kill(number)
        etcd.launch(number)
        await asyncio.to_thread(etcd.wait_ready, number)


async def test_an_authority_is_replaced_while_a_master_leads(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    with running_etcd(tmp_path / "etcd", members=3, certificates=machines.of_etcd) as etcd:
        async with machines.master(etcd) as master:
            epoch = master.leadership.latest.epoch
            machines.authority.rotate(365, utc_now())
            machines.copy()

            async def value(name: str, wanted: float) -> bool:
                return (await metrics(master)).get(name) == wanted

            # Both authorities are trusted by the master at once.
            await eventually(lambda: value(RENEWED, 1), 60, "the bundle is taken")
            machines.renew()
            machines.copy()
            # Members that were not restarted trust the old authority only.
            await eventually(lambda: value(REFUSED, 1), 60, "the refusal shows")
            assert (await metrics(master))[FAILED] >= 1
            (line,) = [each for each in await machines.doctor(master) if "TLS fails" in each]
            assert line.startswith("warn")
            assert "--etcd-cert" in line
            assert "restart its members one by one" in line
            with pytest.raises(InvalidRequest, match="restart its members"):
                async with machines.master(etcd):
                    pass

            await restart_one_by_one(etcd)
            await eventually(lambda: value(REFUSED, 0), 60, "the new certificate is taken")
            assert not [each for each in await machines.doctor(master) if "TLS fails" in each]
            machines.authority.finish_rotation()
            machines.copy()
            await restart_one_by_one(etcd)
            await eventually(lambda: value(RENEWED, 3), 60, "the old authority is forgotten")
            assert master.leadership.latest.epoch == epoch
        async with machines.master(etcd) as restarted:
            assert restarted.leadership.latest.epoch == epoch + 1
