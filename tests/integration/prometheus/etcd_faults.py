"""Faults of etcd and of the network to it, with two masters on three members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.etcd.target import EtcdFlags, EtcdTarget
from croupier.net.address import Address
from croupier.net.transport import free_addresses, make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.certificates import Authority
from tests.harness.etcd import Etcd, make_certificates, valid_for
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT
from tests.harness.prometheus import Prometheus, scrape
from tests.harness.proxy import Proxy
from tests.integration.prometheus.workload import fire, stop

CLUSTER = "etcd"
MEMBERS = 3
QUOTA = "--quota-backend-bytes=2000000"
# Added to each direction of the leader's connections.
DELAY_S = 0.15


@dataclass(frozen=True)
class Site:
    """A master, and the network between it and each member of etcd."""

    master: MasterDaemon
    links: tuple[Proxy, ...]


class EtcdFaults:
    """A leader and a follower, on an etcd of three members with TLS."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder / CLUSTER
        self.prometheus: Prometheus
        self._authority = Authority("etcd")
        self._etcd: Etcd
        self._sites: list[Site]

    async def start(self) -> list[dict[str, Any]]:
        """Start everything; return what is to be scraped."""
        certificates = make_certificates(self.folder / "certificates", self._authority)
        self._etcd = Etcd(self.folder, MEMBERS, certificates, (QUOTA,))
        self.stack.callback(self._etcd.stop)
        await asyncio.to_thread(self._etcd.start)
        self._sites = [await self._start_site() for _ in range(2)]
        await eventually(self._leaders, 60, "a leader on etcd")
        addresses = [site.master.http_address for site in self._sites]
        return [scrape("croupier-etcd", *addresses, cluster=CLUSTER)]

    async def run(self) -> None:
        """Force each fault, and end it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._certificate_ends())
            group.create_task(self._follower_cut_off())
            group.create_task(self._member_killed_and_slow_network())
        await self._all_frozen()
        await self._quota_exceeded()

    def _leaders(self) -> list[Site]:
        return [site for site in self._sites if site.master.leadership.is_leader]

    async def _leader(self) -> Site:
        """Return the master that leads now: on a busy machine it may have changed."""
        await eventually(self._leaders, 60, "a leader on etcd")
        return self._leaders()[0]

    async def _certificate_ends(self) -> None:
        await self._fire("EtcdCertificateExpiresSoon")
        assert self._etcd.certificates is not None
        folder = self._etcd.certificates.client.cert.parent
        self._authority.issue(folder, "client/master", valid=valid_for(30))
        await self._stop("EtcdCertificateExpiresSoon")

    async def _follower_cut_off(self) -> None:
        leader = await self._leader()
        links = [link for site in self._sites if site is not leader for link in site.links]
        for link in links:
            link.cut("")
        await self._fire("FollowerWithoutLeader")
        for link in links:
            link.heal("")
        await self._stop("FollowerWithoutLeader")

    async def _member_killed_and_slow_network(self) -> None:
        self._etcd.kill(0)
        await self._fire("EtcdMemberFailing")
        self._etcd.launch(0)
        await self._stop_of_leader("EtcdMemberFailing")
        links = (await self._leader()).links
        for link in links:
            link.slow_down("", DELAY_S)
        async with self._changing():
            await self._fire("StoreSlow")
            for link in links:
                link.heal("")
            await self._stop("StoreSlow")

    async def _all_frozen(self) -> None:
        members = range(MEMBERS)
        self._etcd.freeze(*members)
        await self._fire("EtcdSilent", "NoLeader")
        self._etcd.thaw(*members)
        await self._stop("EtcdSilent", "NoLeader", "EtcdMemberFailing")

    async def _quota_exceeded(self) -> None:
        await asyncio.to_thread(self._etcd.fill)
        async with self._changing():
            await self._fire("StoreFailing")
        await asyncio.to_thread(self._etcd.make_room)
        await self._stop("StoreFailing", "NoLeader")

    async def _fire(self, *alerts: str) -> None:
        await fire(self.prometheus, CLUSTER, *alerts)

    async def _stop(self, *alerts: str) -> None:
        await stop(self.prometheus, CLUSTER, *alerts)

    async def _stop_of_leader(self, alert: str) -> None:
        """Wait until the alert stops for the leader; the follower may be cut off."""
        instance = str((await self._leader()).master.http_address)

        async def has_stopped() -> bool:
            labels = await self.prometheus.alerts()
            return not any(
                each["alertname"] == f"Croupier{alert}" and each.get("instance") == instance
                for each in labels
            )

        await eventually(has_stopped, 90, f"{alert} stops for {instance}")

    async def _start_site(self) -> Site:
        fronts = free_addresses(MEMBERS)
        links = tuple(
            Proxy(server, front, dict)
            for server, front in zip(self._etcd.addresses, fronts, strict=True)
        )
        for link in links:
            await link.start()
            self.stack.push_async_callback(link.stop)
        master = MasterDaemon(self._config(fronts))
        self.stack.push_async_callback(master.stop)
        await master.start()
        return Site(master, links)

    def _config(self, members: list[Address]) -> MasterConfig:
        assert self._etcd.certificates is not None
        files = self._etcd.certificates.client
        return MasterConfig(
            listen=ANY_PORT,
            http=ANY_PORT,
            store=StoreChoice(None, EtcdTarget(tuple(members), "croupier")),
            lease=3,
            etcd=EtcdFlags(etcd_ca=files.ca, etcd_cert=files.cert, etcd_key=files.key),
        )

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Change a role all the time, which the leader commits and the follower refuses."""

        async def change(site: Site) -> None:
            weight = 1000
            async with make_channel(site.master.address) as channel:
                operator = OperatorServiceStub(channel)
                while True:
                    weight = 3000 - weight
                    role = pb.RoleChange(role="ads", settings=pb.RoleSettings(weight_milli=weight))
                    with suppress(grpc.aio.AioRpcError):
                        await operator.UpdateRoles(pb.UpdateRolesRequest(changes=[role]), timeout=5)
                    await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(change(site)) for site in self._sites]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
