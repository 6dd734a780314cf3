"""A master: its ports, which stay open, and the terms in which it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import grpc.aio
from prometheus_client import CollectorRegistry

from croupier.master.access.security import SECURITY, Security
from croupier.master.driver import Driver
from croupier.master.leadership.ha_backend import HaBackend, OpenHaBackend, open_ha_backend
from croupier.master.leadership.leadership import Leadership, Terms, resign
from croupier.master.leadership.roster import Candidate, Roster, problem_text
from croupier.master.leadership.term import TermSetting
from croupier.master.metrics.counters import Metrics
from croupier.master.metrics.gauges import collectors
from croupier.master.services.access import AccessService
from croupier.master.services.agent import AgentService
from croupier.master.services.execs import EXECS, Execs
from croupier.master.services.framework import FrameworkService
from croupier.master.services.gate import Gate
from croupier.master.services.operator import OperatorService
from croupier.master.services.task_files import TaskFiles
from croupier.master.sessions import SessionLimits
from croupier.master.tracing.tracing import END_S, TRACING, make_tracing
from croupier.net.address import Address
from croupier.net.server_tls import check_master, server_credentials
from croupier.net.task_scope import until_set
from croupier.net.transport import bind, make_server
from croupier.net.version import croupier_version
from croupier.process.clock import SystemClock
from croupier.process.daemon import Reloader
from croupier.process.http.late_server import LateHttpServer
from croupier.process.logging import get_logger, set_level
from croupier.process.metric_families import FamilyCollector
from croupier.process.process_metrics import PROCESS, LoopWatch
from croupier.process.tls.renewal import RENEWALS, TLS, Renewal, RenewedTls
from croupier.v1.access_pb2_grpc import add_AccessServiceServicer_to_server
from croupier.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from croupier.v1.framework_pb2_grpc import add_FrameworkServiceServicer_to_server
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server

if TYPE_CHECKING:  # cyclopts and aiohttp, which are imported where they are used
    from croupier.master.config import MasterConfig
    from croupier.process.http.routes import Guard, Requirement
    from croupier.process.http.server import HttpServer

_log = get_logger("croupier.master")


class MasterDaemon:
    """A master in this process, from `start` to `stop`.

    Attributes:
        address: where it listens, once it is started.
        http_address: where it serves metrics, once it is started.
        mesos_address: where it serves frameworks of Mesos, once it is started; None if it does not.
        token_address: where it takes calls without a certificate; None if it does not.
        leadership: the current term, once it is started.
    """

    leadership: Leadership

    def __init__(
        self,
        config: MasterConfig,
        open_ha_backend: OpenHaBackend = open_ha_backend,
        limits: SessionLimits | None = None,
    ) -> None:
        """Open nothing before `start`; `limits` None are those of `SessionLimits`."""
        self._limits = limits
        self._config, self._open_ha_backend = config, open_ha_backend
        self._clock = SystemClock()
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry)
        self._loop_watch = LoopWatch(self._registry)
        self._registry.register(FamilyCollector(PROCESS, lambda: PROCESS))
        self._http: LateHttpServer | None = None
        self._mesos: LateHttpServer | None = None
        self._files: TaskFiles | None = None
        self._ha_backend: HaBackend | None = None
        self._leading: asyncio.Task[NoReturn] | None = None
        self._tls: RenewedTls | None = None
        self._renewals: dict[str, Renewal] = {}
        self._server: grpc.aio.Server | None = None
        self._security: Security | None = None
        self.address = config.listen
        self.http_address = config.http
        self.token_address: Address | None = None
        self.mesos_address: Address | None = None

    @property
    def driver(self) -> Driver:
        """The driver of the current term; raises NotLeader if this master follows."""
        return self.leadership.term().driver

    async def start(self) -> None:
        """Listen; without other masters, wait until the first term has begun.

        Raises CroupierError if the store cannot be read or a port is taken.
        """
        self._loop_watch.start()
        box = await asyncio.to_thread(self._config.secret_box)
        self._security = security = Security(
            self._config, self._clock, lambda: self.leadership.state, self._trust_domain
        )
        self._registry.register(FamilyCollector(SECURITY, lambda: security))
        self._server = server = make_server(interceptors=[Gate(security.checks)])
        self._listen(server)
        known_at = self._config.advertise or self.address
        self._ha_backend = self._open_ha_backend(self._config, known_at)
        security.authenticator.find_token = self._ha_backend.find_token
        if self._ha_backend.renewal is not None:
            self._renewals["etcd"] = self._ha_backend.renewal
        self._registry.register(FamilyCollector(RENEWALS, lambda: self._renewals or None))
        self.leadership = leadership = Leadership(self._ha_backend.election, known_at)
        await self._trace(known_at)
        framework = FrameworkService(leadership, security.checks)
        add_FrameworkServiceServicer_to_server(framework, server)
        execs = Execs(leadership, self._clock, security.audit)
        self._registry.register(FamilyCollector(EXECS, lambda: execs))
        agent = AgentService(leadership, self._clock, security.checks, execs)
        add_AgentServiceServicer_to_server(agent, server)
        access = AccessService(leadership, self._clock, is_auth_on=self._config.requires_auth)
        add_AccessServiceServicer_to_server(access, server)
        self._files = TaskFiles(leadership, self._clock, self._config.tls.client())
        presence, started_ms = self._ha_backend.presence, self._clock.wall_ms()
        own = partial(self._candidate, known_at, croupier_version(), started_ms)
        others = tuple if presence is None else lambda: presence.others
        roster = Roster(leadership, own, others)
        operator = OperatorService(
            leadership, self._clock, croupier_version(), roster, self._files, execs
        )
        add_OperatorServiceServicer_to_server(operator, server)
        most = self._config.series
        read = collectors(
            leadership, started_ms / 1000, most.metrics_roles, most.metrics_frameworks
        )
        for collector in (*read, *self._ha_backend.collectors):
            self._registry.register(collector)
        make_http = partial(self._make_http, security, roster, (operator, access))
        self._http = LateHttpServer(make_http, "croupier.master.web.api")
        http_port = await self._http.start(self._config.http)
        self.http_address = Address(self._config.http.host, http_port)
        await self._listen_for_mesos(security, roster, (operator, access))
        if presence is not None:
            presence.start(own)
        setting = TermSetting(self._config, self._metrics, self._clock, self._limits, box)
        terms = Terms(setting, self._ha_backend, leadership)
        self._leading = asyncio.create_task(terms.run(), name="terms")
        if not self._ha_backend.is_shared:
            # Peers that connect meanwhile wait instead of being refused.
            await self.run(terms.first_began)
        await server.start()
        _log.info(
            "master_started",
            listen=str(self.address),
            http=str(self.http_address),
            token_listen=None if self.token_address is None else str(self.token_address),
            mesos_listen=None if self.mesos_address is None else str(self.mesos_address),
            tls=self._tls is not None,
            store=str(self._config.store),
        )

    def _http_url(self, known_at: Address) -> str:
        """Return the URL of the HTTP server."""
        address = _reachable(self.http_address, known_at)
        return f"{'http' if self._tls is None else 'https'}://{address}"

    def _candidate(self, known_at: Address, version: str, started_ms: int) -> Candidate:
        """Return what other masters and operators know of this master."""
        latest = self.leadership.latest
        return Candidate(
            str(known_at),
            self._http_url(known_at),
            version,
            started_ms,
            latest.master_id,
            latest.epoch,
            latest.began_ms,
            problem_text(self._renewals),
            "" if self.mesos_address is None else str(_reachable(self.mesos_address, known_at)),
        )

    def _make_http(
        self, security: Security, roster: Roster, services: tuple[OperatorService, AccessService]
    ) -> HttpServer:
        """Return the HTTP server, which does not listen yet."""
        from croupier.master.web.api import HttpApi
        from croupier.master.web.calls import handlers_of
        from croupier.process.http.server import HttpServer

        addresses = (self._config.listen, self._config.http, self.leadership.address)
        names = (*(address.host for address in addresses), *self._config.http_names)
        api = HttpApi(
            self._clock, security.checks, handlers_of(*services), roster.page_of, roster.other_pages
        )
        return HttpServer(
            self._registry,
            self._clock,
            self.leadership.unready_reason,
            api.routes(),
            names=names,
            tls=None if self._tls is None else self._tls.latest,
            guards={**self._http_guards(security), **api.guards},
            outer=(api.outer,),
        )

    async def _listen_for_mesos(
        self, security: Security, roster: Roster, services: tuple[OperatorService, AccessService]
    ) -> None:
        """Listen for frameworks of Mesos, if that is asked for; raises as `start`."""
        listen = self._config.mesos_listen
        if listen is None:
            return
        make = partial(self._make_mesos, security, roster, services)
        self._mesos = LateHttpServer(make, "croupier.master.mesos.gateway")
        self.mesos_address = Address(listen.host, await self._mesos.start(listen))

    def _make_mesos(
        self, security: Security, roster: Roster, services: tuple[OperatorService, AccessService]
    ) -> HttpServer:
        """Return the server for frameworks of Mesos, which does not listen yet."""
        from croupier.master.mesos.gateway import LIMITS, Gateway
        from croupier.master.web.calls import handlers_of
        from croupier.process.http.server import HttpServer

        assert self.mesos_address is not None
        known_at = self.leadership.address
        own = _reachable(self.mesos_address, known_at)
        gateway = Gateway(
            self.leadership, security.checks, handlers_of(*services), own, roster.leader_mesos
        )
        return HttpServer(
            CollectorRegistry(),
            self._clock,
            self.leadership.unready_reason,
            gateway.routes(),
            names=(own.host, known_at.host, self.mesos_address.host, *self._config.http_names),
            limits=LIMITS,
            tls=None if self._tls is None else self._tls.latest,
            guards=gateway.guards,
            outer=(gateway.outer,),
        )

    def _http_guards(self, security: Security) -> dict[Requirement, Guard]:
        """Return what HTTP routes require of requests."""
        from croupier.process.http.credentials import clients_only, metrics_guard
        from croupier.process.http.routes import Requirement, allow_all

        config = self._config
        if not config.protects_metrics:
            return {Requirement.READ_METRICS: allow_all}
        check = clients_only(self._trust_domain)
        if config.requires_auth:
            check = security.checks.check_metrics_reader
        return {Requirement.READ_METRICS: metrics_guard(config.metrics_token_file, check)}

    async def _trace(self, known_at: Address) -> None:
        """Begin to send traces of tasks, if there is a collector for them.

        Raises InvalidRequest if OpenTelemetry cannot be used.
        """
        flags = self._config.tracing
        if not flags.otel_endpoint:
            return

        self._metrics.tracing = tracing = await asyncio.to_thread(
            make_tracing,
            flags.otel_endpoint,
            flags.otel_ratio,
            str(known_at),
            lambda: self.leadership.state,
        )
        self._registry.register(FamilyCollector(TRACING, lambda: tracing))

    def _trust_domain(self) -> str:
        return "" if self._tls is None else self._tls.current.certificate.trust_domain

    def _listen(self, server: grpc.aio.Server) -> None:
        """Bind the addresses of gRPC; with TLS, watch the files of the certificate."""
        config, files = self._config, self._config.tls.files()
        if files is not None:
            self._tls = tls = RenewedTls(
                files, self._clock, partial(check_master, name=config.tls.tls_name)
            )
            self._registry.register(FamilyCollector(TLS, lambda: tls))
            self._renewals["own"] = tls
            tls.start()
        is_mutual = files is not None and files.ca is not None
        self.address = self._bind(server, config.listen, requires_certificate=is_mutual)
        if config.token_listen is not None:
            self.token_address = self._bind(server, config.token_listen, requires_certificate=False)

    def _bind(
        self, server: grpc.aio.Server, address: Address, *, requires_certificate: bool
    ) -> Address:
        credentials = None
        if self._tls is not None:
            credentials = server_credentials(
                self._tls.latest, requires_certificate=requires_certificate
            )
        return Address(address.host, bind(server, address, credentials))

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; raises the error that ended one of the master's own tasks."""
        assert self._leading is not None
        await until_set(stop, self._leading)

    def reloader(self, read: Callable[[], MasterConfig]) -> Reloader[MasterConfig]:
        """Return what takes changed settings from the configuration that `read` returns."""

        def read_all() -> MasterConfig:
            config = read()
            self._secured().renew()
            return config

        def limit(config: MasterConfig) -> None:
            self._secured().limiter.change(config.rate_limits())

        takes = dict.fromkeys(("calls_per_second", "stream_calls_per_second"), limit)
        takes["log_level"] = lambda config: set_level(config.log_level)
        return Reloader(self._config, read_all, takes)

    def _secured(self) -> Security:
        assert self._security is not None
        return self._security

    async def stop(self) -> None:
        """Notify every peer, end every session, and close everything."""
        self._loop_watch.stop()
        if self._tls is not None:
            self._tls.stop()
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        if self._ha_backend is not None:
            await resign(self._ha_backend.election)
        if self._server is not None:
            await self._server.stop(grace=1.0)
        if self._files is not None:
            await self._files.close()
        for http in (self._http, self._mesos):
            if http is not None:
                await http.stop()
        if self._ha_backend is not None:
            await self._ha_backend.close()
        if self._security is not None:
            await asyncio.to_thread(self._security.close)
        if self._metrics.tracing is not None:
            await asyncio.to_thread(self._metrics.tracing.queue.close, END_S)


def _reachable(address: Address, known_at: Address) -> Address:
    """Return an address of this master for others: the advertised host if it listens on all."""
    if address.host in ("0.0.0.0", "::"):  # noqa: S104
        return Address(known_at.host, address.port)
    return address


async def run_master(
    config: MasterConfig, stop: asyncio.Event, read: Callable[[], MasterConfig]
) -> None:
    """Run a master until `stop` is set; raises CroupierError if it fails. `read` is for reloads."""
    master = MasterDaemon(config)
    reloader = master.reloader(read)
    try:
        await master.start()
        reloader.start()
        await master.run(stop)
        _log.info("master_stopping")
    finally:
        await reloader.stop()
        await master.stop()
