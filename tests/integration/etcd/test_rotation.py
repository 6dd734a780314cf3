"""The rotation of an authority, with etcd, whose members read authorities only at their start."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from croupier.cli.flags import Target
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import AuthorityDirectory
from croupier.ctl.commands.doctor import cluster_findings
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.etcd.target import EtcdFlags
from croupier.model.errors import InvalidRequest
from croupier.net.server_tls import TlsFiles
from croupier.process.tls.flags import TlsFlags
from tests.harness.etcd import Certificates, Etcd, running_etcd
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT

pytestmark = pytest.mark.timeout(120)

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

    def pair(self, stem: str) -> TlsFiles:
        folder = self.live
        return TlsFiles(folder / f"{stem}.crt", folder / f"{stem}.key", folder / "ca.crt")

    @property
    def of_etcd(self) -> Certificates:
        member, client = self.pair("etcd-member"), self.pair("etcd-m1")
        assert member.ca is not None
        return Certificates(member.ca, member.cert, member.key, client.cert, client.key)

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
            await eventually(lambda: value(RENEWED, 1), 10, "the bundle is taken")
            machines.renew()
            machines.copy()
            # Members that were not restarted trust the old authority only.
            await eventually(lambda: value(REFUSED, 1), 20, "the refusal shows")
            assert (await metrics(master))[FAILED] >= 1
            (line,) = [each for each in await machines.doctor(master) if "TLS fails" in each]
            assert line.startswith("warn")
            assert "--etcd-cert" in line
            assert "restart its members one by one" in line
            with pytest.raises(InvalidRequest, match="restart its members"):
                async with machines.master(etcd):
                    pass

            await restart_one_by_one(etcd)
            await eventually(lambda: value(REFUSED, 0), 20, "the new certificate is taken")
            assert not [each for each in await machines.doctor(master) if "TLS fails" in each]
            machines.authority.finish_rotation()
            machines.copy()
            await restart_one_by_one(etcd)
            await eventually(lambda: value(RENEWED, 3), 20, "the old authority is forgotten")
            assert master.leadership.latest.epoch == epoch
        async with machines.master(etcd) as restarted:
            assert restarted.leadership.latest.epoch == epoch + 1
