"""A master, put together."""

from __future__ import annotations

import asyncio
import secrets

import structlog
from prometheus_client import CollectorRegistry

from croupier.master.config import MasterConfig
from croupier.master.core.records import MasterRecord, Registry
from croupier.master.core.state import State
from croupier.master.driver import Driver
from croupier.master.eventlog.lines import FORMAT, Head
from croupier.master.eventlog.metrics import EventLogCollector
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.eventlog.writer import Writer
from croupier.master.leader import Leader, SoleLeader
from croupier.master.metrics import Metrics, StateCollector
from croupier.master.services.agent import AgentService
from croupier.master.services.framework import FrameworkService
from croupier.master.services.operator import OperatorService
from croupier.master.sessions import Sessions
from croupier.master.store import MemoryStore, SqliteStore, Store
from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.rpc.address import Address
from croupier.rpc.clock import SystemClock
from croupier.rpc.http import HttpServer
from croupier.rpc.transport import bind, make_server
from croupier.rpc.version import croupier_version
from croupier.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from croupier.v1.framework_pb2_grpc import add_FrameworkServiceServicer_to_server
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server

_log = structlog.get_logger("croupier.master")


class Master:
    """A master in this process, from `start` to `stop`.

    Attributes:
        address: where it listens, once it is started.
        http_address: where it serves metrics, once it is started.
        driver: the task that owns the state.
    """

    def __init__(self, config: MasterConfig, clock: Clock | None = None) -> None:
        """Nothing is opened before `start`."""
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._leader: Leader = SoleLeader()
        self._store: Store = _open_store(config)
        self._sessions = Sessions()
        self._server = make_server()
        self._http: HttpServer | None = None
        self._recorder: FileRecorder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.address = config.listen
        self.http_address = config.http
        self.driver: Driver

    async def start(self) -> None:
        """Recover what the store holds, and serve.

        Raises:
            CroupierError: if the store cannot be read or a port is taken.
        """
        registry = CollectorRegistry()
        metrics = Metrics(registry)
        state = await self._recover()
        if self._recorder is not None:
            registry.register(EventLogCollector(self._recorder))
        self.driver = Driver(
            state, self._store, self._sessions, metrics, self._clock, self._recorder
        )
        self._sessions.report_to(self.driver.inbox)
        registry.register(
            StateCollector(
                state,
                lambda: {"inbox": len(self.driver.inbox), "outboxes": self._sessions.queued()},
                lambda: self._sessions.dropped,
                lambda: self._leader.is_me,
                self._clock.wall_ms() / 1000,
            )
        )
        self._add_services()
        port = bind(self._server, self._config.listen)
        self.address = Address(self._config.listen.host, port)
        self._http = HttpServer(registry, self._clock, lambda: None)
        http_port = await self._http.start(self._config.http)
        self.http_address = Address(self._config.http.host, http_port)
        self._tasks = [
            asyncio.create_task(self.driver.run(), name="driver"),
            asyncio.create_task(self._sessions.beat(self._config.heartbeat), name="heartbeats"),
        ]
        await self._server.start()
        _log.info(
            "master_started",
            master_id=state.master_id,
            listen=str(self.address),
            http=str(self.http_address),
            store=str(self._config.store),
            agents_known=len(state.agents),
            frameworks_known=len(state.frameworks),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            Exception: whatever ended one of the master's own tasks.
        """
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Tell every peer, end every stream, and let go of everything."""
        self._sessions.end_all(Unavailable("the master is stopping"))
        await self._server.stop(grace=1.0)
        if self._http is not None:
            await self._http.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        await self._store.close()

    async def _recover(self) -> State:
        registry = await self._store.load()
        before = registry.master or MasterRecord(secrets.token_hex(3), 0)
        record = MasterRecord(before.cluster, before.epoch + 1)
        await self._store.commit([record])
        now = self._clock.now()
        self._recorder = self._open_log(registry, record.master_id, now)
        return State.recovered(
            registry, record.master_id, self._config.settings(), self._config.allocator(), now
        )

    def _open_log(self, registry: Registry, master_id: str, now: float) -> FileRecorder | None:
        config = self._config
        if config.event_log is None:
            return None
        head = Head(
            FORMAT,
            croupier_version(),
            master_id,
            part=1,
            at=now,
            wall_ms=self._clock.wall_ms(),
            events=0,
            decided="",
            settings=config.settings(),
            policy=config.policy,
            seed=0,
            rules=config.rules(),
            roles=config.weights.settings(),
            registry=registry,
        )
        writer = Writer(config.event_log.expanduser(), config.event_log_files)
        return FileRecorder(writer, config.event_log_size.bytes, head, self._clock)

    def _add_services(self) -> None:
        inbox = self.driver.inbox
        add_FrameworkServiceServicer_to_server(
            FrameworkService(self._sessions, inbox), self._server
        )
        add_AgentServiceServicer_to_server(AgentService(self._sessions, inbox), self._server)
        operator = OperatorService(
            self.driver, self._clock, croupier_version(), lambda: self._leader.is_me
        )
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


def _open_store(config: MasterConfig) -> Store:
    return MemoryStore() if config.store.path is None else SqliteStore(config.store.path)
