"""Faults of credentials, certificates, limits and logs, with TLS and authentication."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.agent.app import AgentDaemon
from croupier.net.credentials import ClientSecurity, create_token_file, make_token, read_token_file
from croupier.net.transport import free_addresses, make_channel
from croupier.process.tls.flags import TlsFlags
from croupier.v1.operator_pb2 import DeactivateAgentRequest, GetMasterRequest
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness import small_disks
from tests.harness.agents import running_agent
from tests.harness.certificates import HOUR, Authority, PemFiles
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.prometheus import Prometheus, scrape
from tests.integration.prometheus.workload import fire, stop

CLUSTER = "secured"
DAY = dt.timedelta(days=1)
SECOND = dt.timedelta(seconds=1)
# The time that is left of a certificate when it replaces a fresh one.
LEFT = 12 * SECOND
# A call waits for a moment before it is refused for its rate, so one caller alone would be slowed.
CALLERS = 20


class SecurityFaults:
    """A master on a small disk, and agents with certificates and with a token."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder / CLUSTER
        self.prometheus: Prometheus
        self._disk = self.folder / "disk"
        self._authority = Authority(valid=(-HOUR, 10 * DAY))
        self._listen, self._tokens, self._http = free_addresses(3)
        self._process: subprocess.Popen[bytes] | None = None
        self._join = self.folder / "join"

    async def start(self) -> list[dict[str, Any]]:
        """Start everything; return what is to be scraped."""
        prefix = small_disks.on_small_disk(self._disk, "8m")
        self._metrics = make_token()
        create_token_file(self.folder / "metrics", self._metrics)
        own = self._issue("master/m1")
        self._argv = [
            *prefix, sys.executable, "-m", "croupier.master", "--listen", str(self._listen),
            "--token-listen", str(self._tokens), "--http", str(self._http), "--tls-cert",
            str(own.cert), "--tls-key", str(own.key), "--tls-ca", str(own.ca),
            "--store", f"sqlite:{self.folder / 'master.db'}",
            "--admin-token-file", str(self.folder / "admin"),
            "--metrics-token-file", str(self.folder / "metrics"), "--calls-per-second", "5",
            "--audit-log", str(self._disk / "audit"), "--event-log", str(self._disk / "events"),
        ]  # fmt: skip
        self._start_master()
        self.stack.callback(self._end_master)
        await eventually(self._answers, 60, "the secured master answers")
        # Made before anything is limited.
        said = await self._as_admin("token", "create", "join", "--output", str(self._join))
        assert said.code == 0, said.err
        certain = [await self._start_agent(name) for name in ("expiring", "unrenewed")]
        create_token_file(self.folder / "unknown", make_token())
        bearer = await self.stack.enter_async_context(
            running_agent(
                self.folder / "work-bearer",
                self._tokens,
                tls=TlsFlags(tls_ca=own.ca),
                join_token_file=self.folder / "unknown",
                metrics_token_file=self.folder / "metrics",
            )
        )
        settings: dict[str, Any] = {
            "cluster": CLUSTER,
            "authorization": {"credentials": self._metrics.text},
        }
        tls = {"scheme": "https", "tls_config": {"ca_file": str(own.ca)}}
        return [
            scrape("croupier-secured-master", self._http, **settings, **tls),
            scrape(
                "croupier-secured-agents", *(a.http_address for a in certain), **settings, **tls
            ),
            scrape("croupier-secured-bearer", bearer.http_address, **settings),
        ]

    async def run(self) -> None:
        """Force each fault, and end it."""
        faults: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (
            self._credential_unknown,
            self._calls_too_often_and_full_disk,
            self._agent_rejected,
            self._files_unusable,
            self._certificate_expires,
        )
        await self._fire("AuthorityExpiresSoon")
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(fault())
        await self._authority_replaced()

    async def _fire(self, *alerts: str) -> None:
        await fire(self.prometheus, CLUSTER, *alerts)

    async def _stop(self, *alerts: str) -> None:
        await stop(self.prometheus, CLUSTER, *alerts)

    async def _credential_unknown(self) -> None:
        async with self._calling(make_token().text):
            await self._fire("AuthenticationFailures")
        await self._stop("AuthenticationFailures")

    async def _calls_too_often_and_full_disk(self) -> None:
        async with self._calling(self._admin):
            await self._fire("RateLimited")
        await self._stop("RateLimited")
        await self._disk_full()

    async def _disk_full(self) -> None:
        assert self._process is not None
        disk = small_disks.seen_by(self._process.pid, self._disk)
        small_disks.fill(disk)
        async with self._changing():
            await self._fire("AuditFailing", "EventLogFailing")
            small_disks.make_room(disk)
            await self._stop("AuditFailing")
        # The log of this term stays given up.
        self._end_master()
        self._start_master()
        await self._stop("EventLogFailing")

    async def _agent_rejected(self) -> None:
        await self._fire("AgentRejected")
        self._join.replace(self.folder / "unknown")
        await self._stop("AgentRejected")

    async def _files_unusable(self) -> None:
        (self.folder / "unrenewed" / "cert.pem").write_text("not a certificate\n")
        await self._fire("CertificateNotRenewed")
        self._issue("agent/unrenewed")
        await self._stop("CertificateNotRenewed")

    async def _certificate_expires(self) -> None:
        self._issue("agent/expiring", valid=(-HOUR, LEFT))
        await self._fire("CertificateExpiresSoon")
        await self._fire("CertificateExpired")
        self._issue("agent/expiring")
        await self._stop("CertificateExpiresSoon", "CertificateExpired")

    async def _authority_replaced(self) -> None:
        """Replace the authority as the runbook says."""
        old, self._authority = self._authority, Authority(valid=(-HOUR, 365 * DAY))
        both = old.pem + self._authority.pem
        for file in self.folder.glob("*/ca.pem"):
            file.write_bytes(both)
        for role in ("master/m1", "agent/expiring", "agent/unrenewed"):
            self._issue(role, trusting=both)
        await self._stop("AuthorityExpiresSoon")

    def _issue(self, role: str, **more: Any) -> PemFiles:
        valid = more.pop("valid", (-HOUR, DAY))
        return self._authority.issue(
            self.folder / role.rpartition("/")[2], role, valid=valid, **more
        )

    async def _start_agent(self, name: str) -> AgentDaemon:
        files = self._issue(f"agent/{name}")
        return await self.stack.enter_async_context(
            running_agent(
                self.folder / f"work-{name}",
                self._listen,
                hostname=name,
                tls=TlsFlags(tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca),
                metrics_token_file=self.folder / "metrics",
            )
        )

    def _start_master(self) -> None:
        with (self.folder / "master.log").open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)

    def _end_master(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)

    @property
    def _admin(self) -> str:
        return read_token_file(self.folder / "admin").text

    def _bearing(self, token: str) -> ClientSecurity:
        return ClientSecurity(self.folder / "m1" / "ca.pem", token=token)

    async def _answers(self) -> bool:
        if not (self.folder / "admin").exists():
            return False
        async with make_channel(self._tokens, self._bearing(self._admin)) as channel:
            try:
                await OperatorServiceStub(channel).GetMaster(GetMasterRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                return False
        return True

    @asynccontextmanager
    async def _calling(self, token: str) -> AsyncIterator[None]:
        """Call the master all the time, and ignore its answers."""

        async def call(operator: OperatorServiceStub) -> None:
            await operator.GetMaster(GetMasterRequest(), timeout=5)

        async with self._repeating(call, token, CALLERS):
            yield

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Change the cluster all the time, which is audited and an event."""

        async def change(operator: OperatorServiceStub) -> None:
            request = DeactivateAgentRequest(agent="unrenewed")
            await operator.DeactivateAgent(request, timeout=5)

        async with self._repeating(change, self._admin, 1):
            yield

    @asynccontextmanager
    async def _repeating(
        self, call: Callable[[OperatorServiceStub], Awaitable[None]], token: str, callers: int
    ) -> AsyncIterator[None]:
        async def repeat() -> None:
            async with make_channel(self._tokens, self._bearing(token)) as channel:
                operator = OperatorServiceStub(channel)
                while True:
                    with suppress(grpc.aio.AioRpcError):
                        await call(operator)
                    await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(repeat()) for _ in range(callers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _as_admin(self, *argv: str) -> Any:
        return await croupier(
            *argv,
            CROUPIER_MASTER=str(self._tokens),
            CROUPIER_TLS_CA=str(self.folder / "m1" / "ca.pem"),
            CROUPIER_TOKEN_FILE=str(self.folder / "admin"),
        )
