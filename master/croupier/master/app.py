"""A master's process: its ports, which stay, and the terms in which it leads, which do not."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NoReturn

from prometheus_client import CollectorRegistry

from croupier.master.driver import Driver
from croupier.master.election import Election
from croupier.master.eventlog.metrics import EventLogCollector
from croupier.master.gauges import StateCollector
from croupier.master.ha_backend import HaBackend, OpenHaBackend, open_ha_backend
from croupier.master.leadership import Leadership
from croupier.master.metrics import Metrics
from croupier.master.services.agent import AgentService
from croupier.master.services.framework import FrameworkService
from croupier.master.services.operator import OperatorService
from croupier.master.session_limits import SessionLimits
from croupier.master.term import Term
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, FailedOver, Unavailable
from croupier.model.store_position import StorePosition
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.transport import bind, make_server
from croupier.net.version import croupier_version
from croupier.process.clock import SystemClock
from croupier.process.logging import get_logger
from croupier.process.loop_lag import LoopWatch
from croupier.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from croupier.v1.framework_pb2_grpc import add_FrameworkServiceServicer_to_server
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server

if TYPE_CHECKING:  # cyclopts and aiohttp, which are imported where they are used
    from croupier.master.config import MasterConfig
    from croupier.process.http.server import HttpServer

# Giving up leadership must not hold up who else could have it; a lease ends by itself.
RESIGN_S = 2.0
# After a term that failed, so that a store which fails each time is not asked all the time.
RETRY_S = 0.2
RETRY_CAP_S = 5.0

_log = get_logger("croupier.master")


class Master:
    """A master in this process, from `start` to `stop`.

    Attributes:
        address: where it listens, once it is started.
        http_address: where it serves metrics, once it is started.
        leadership: who decides here, once it is started.
    """

    leadership: Leadership

    def __init__(
        self,
        config: MasterConfig,
        clock: Clock | None = None,
        open_ha_backend: OpenHaBackend = open_ha_backend,
        limits: SessionLimits | None = None,
    ) -> None:
        """Nothing is opened before `start`; `limits` None are those of `SessionLimits`."""
        self._limits = limits
        self._config, self._open_backing = config, open_ha_backend
        self._clock: Clock = clock or SystemClock()
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry)
        self._loop_watch = LoopWatch(self._registry)
        self._server = make_server()
        self._http: HttpServer | None = None
        self._ha_backend: HaBackend | None = None
        self._leading: asyncio.Task[NoReturn] | None = None
        self._first_term = asyncio.Event()
        self._overtaken_by: StorePosition | None = None
        self.address = config.listen
        self.http_address = config.http

    @property
    def driver(self) -> Driver:
        """The task that owns the state, while this master leads.

        Raises:
            NotLeader: if it follows.
        """
        return self.leadership.term().driver

    async def start(self) -> None:
        """Listen; and, if there is no other master, recover what the store holds, and serve.

        Raises:
            CroupierError: if the store cannot be read or a port is taken.
        """
        from croupier.process.http.server import HttpServer

        self._loop_watch.start()
        port = bind(self._server, self._config.listen)
        self.address = Address(self._config.listen.host, port)
        known_at = self._config.advertise or self.address
        self._ha_backend = self._open_backing(self._config, known_at)
        self.leadership = leadership = Leadership(self._ha_backend.election, known_at)
        self._add_services(leadership)
        self._registry.register(StateCollector(leadership, self._clock.wall_ms() / 1000))
        self._registry.register(EventLogCollector(leadership.recorder))
        for collector in self._ha_backend.collectors:
            self._registry.register(collector)
        addresses = (self._config.listen, self._config.http, known_at)
        names = (*(address.host for address in addresses), *self._config.http_names)
        self._http = HttpServer(self._registry, self._clock, leadership.unready_reason, names=names)
        http_port = await self._http.start(self._config.http)
        self.http_address = Address(self._config.http.host, http_port)
        self._leading = asyncio.create_task(self._lead(self._ha_backend, leadership), name="terms")
        if not self._ha_backend.is_shared:
            # Whoever connects meanwhile waits, rather than being sent away.
            await self._until_leading(self._leading)
        await self._server.start()
        _log.info(
            "master_started",
            listen=str(self.address),
            http=str(self.http_address),
            store=str(self._config.store),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            Exception: whatever ended one of the master's own tasks.
        """
        assert self._leading is not None
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, self._leading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self._leading.done():
            self._leading.result()

    async def stop(self) -> None:
        """Tell every peer, end every stream, and let go of everything."""
        self._loop_watch.stop()
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        if self._ha_backend is not None:
            await _resign(self._ha_backend.election)
        await self._server.stop(grace=1.0)
        if self._http is not None:
            await self._http.stop()
        if self._ha_backend is not None:
            await self._ha_backend.close()

    async def _until_leading(self, leading: asyncio.Task[NoReturn]) -> None:
        begun = asyncio.create_task(self._first_term.wait())
        try:
            await asyncio.wait([begun, leading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        if leading.done():
            leading.result()

    async def _lead(self, ha_backend: HaBackend, leadership: Leadership) -> NoReturn:
        """Lead whenever this master is elected, for ever.

        Raises:
            CroupierError: if the store holds what cannot be read; or, of a master alone,
                whatever ended its term.
        """
        backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
        while True:
            await ha_backend.election.win()
            won_at = self._clock.now()
            error = await self._lead_once(ha_backend, leadership)
            why = "failed_over" if isinstance(error, FailedOver) else "store_unavailable"
            self._metrics.term_ended(why)
            if isinstance(error, Overtaken):
                # Whether the store is an old copy shows when the next term reads it.
                self._overtaken_by = error.position
                if not ha_backend.is_shared:
                    continue
            elif not ha_backend.is_shared:
                raise error
            await _resign(ha_backend.election)
            if self._clock.now() - won_at > RETRY_CAP_S:
                backoff.reset()
            wait_s = backoff.next_s()
            _log.warning(
                "term_ended",
                why=why,
                reason=str(error),
                leader=leadership.leader,
                retry_in_s=round(wait_s, 3),
            )
            await asyncio.sleep(wait_s)

    async def _lead_once(self, ha_backend: HaBackend, leadership: Leadership) -> CroupierError:
        """One term, from its beginning to its end; why it is over.

        Raises:
            Exception: if it is for a reason for which this master should not lead again.
        """
        election = ha_backend.election
        term = Term(
            self._config,
            ha_backend.open_store(),
            self._metrics,
            self._clock,
            lambda: election.is_won,
            self._limits,
            self._overtaken_by,
        )

        def leave(ended: asyncio.Task[None]) -> None:
            # In the same turn of the loop, whatever else is due in it.
            is_overtaken = term.overtaken_by is not None
            if (ha_backend.is_shared or is_overtaken) and not ended.cancelled():
                leadership.end()
                term.depose(leadership.refusal())

        serving = asyncio.create_task(
            self._begin_and_serve(term, election, leadership), name="term"
        )
        lost = asyncio.create_task(election.lost(), name="election")
        tasks = (serving, lost)
        for task in tasks:
            task.add_done_callback(leave)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                # Though the master be told to stop just now.
                leadership.end()
                await term.end(Unavailable("the master is stopping"))
        return _why_over(serving, lost, term)

    async def _begin_and_serve(
        self, term: Term, election: Election, leadership: Leadership
    ) -> None:
        await term.begin()
        if not election.is_won:
            raise FailedOver("the election was lost before the term began")
        leadership.begin(term)
        self._first_term.set()
        await term.serve()

    def _add_services(self, leadership: Leadership) -> None:
        add_FrameworkServiceServicer_to_server(FrameworkService(leadership), self._server)
        add_AgentServiceServicer_to_server(AgentService(leadership), self._server)
        operator = OperatorService(leadership, self._clock, croupier_version())
        add_OperatorServiceServicer_to_server(operator, self._server)


async def run_master(config: MasterConfig, stop: asyncio.Event) -> None:
    """Run a master until `stop` is set.

    Raises:
        CroupierError: if it cannot start, or its store fails.
    """
    master = Master(config)
    try:
        await master.start()
        await master.run(stop)
        _log.info("master_stopping")
    finally:
        await master.stop()


class Overtaken(FailedOver):
    """An agent has proven a position that the store of the term does not know."""

    def __init__(self, message: str, position: StorePosition) -> None:
        """Say so."""
        super().__init__(message)
        self.position = position


def _why_over(serving: asyncio.Task[None], lost: asyncio.Task[None], term: Term) -> CroupierError:
    """Why a term is over, if that is no reason not to begin another.

    Raises:
        Exception: if it is.
    """
    if not serving.cancelled() and (error := serving.exception()) is not None:
        overtaken_by = term.overtaken_by
        if isinstance(error, FailedOver) and overtaken_by is not None:
            return Overtaken(str(error), overtaken_by)
        if isinstance(error, FailedOver | Unavailable):
            return error
        raise error
    if not lost.cancelled():
        lost.result()
    return FailedOver("the election was lost")


async def _resign(election: Election) -> None:
    try:
        async with asyncio.timeout(RESIGN_S):
            await election.resign()
    except (CroupierError, TimeoutError) as error:
        _log.warning("resignation_failed", error=str(error) or "it took too long")
