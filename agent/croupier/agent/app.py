"""An agent, put together."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Coroutine
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from croupier.agent.config import AgentConfig
from croupier.agent.core.events import Event, StopAsked
from croupier.agent.core.on_task import STOP_GRACE_MS
from croupier.agent.core.state import AgentState
from croupier.agent.driver import Driver
from croupier.agent.guard import Guard
from croupier.agent.janitor import Janitor
from croupier.agent.launcher import Launcher
from croupier.agent.link import Link
from croupier.agent.metrics import Metrics, StateCollector
from croupier.agent.output import OutputRoutes
from croupier.agent.probe import probe, read_boot_id
from croupier.agent.sandbox import Sandboxes
from croupier.agent.supervisor import Supervisor
from croupier.agent.watchdog import sweep
from croupier.agent.wire import Identity
from croupier.agent.work_dir import WorkDir
from croupier.model.clock import Clock
from croupier.model.errors import Unavailable
from croupier.rpc.address import Address
from croupier.rpc.backoff import Backoff
from croupier.rpc.clock import SystemClock
from croupier.rpc.http import HttpServer
from croupier.rpc.inbox import Inbox
from croupier.rpc.version import croupier_version

_log = structlog.get_logger("croupier.agent")

# Between SIGKILL and the end of a process.
END_MARGIN_S = 2.0
# For the last updates and the goodbye to get through.
FLUSH_S = 3.0


class Agent:
    """An agent in this process, from `start` to `stop`.

    Attributes:
        http_address: where it serves metrics and output, once it is started.
        state: what it knows; only its driver may change it.
        guard: keeps its watchdog.
        link: its connection to the master.
    """

    state: AgentState
    guard: Guard
    link: Link

    def __init__(
        self, config: AgentConfig, clock: Clock | None = None, rng: random.Random | None = None
    ) -> None:
        """Nothing is opened before `start`."""
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._run_id = secrets.token_hex(16)
        self._inbox: Inbox[Event] = Inbox()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work_dir: WorkDir | None = None
        self._guard: Guard | None = None
        self._supervisor: Supervisor | None = None
        self._http: HttpServer | None = None
        self._driver: Driver | None = None
        self.http_address = config.http

    async def start(self) -> None:
        """Take the work dir, and begin to look for a master.

        Raises:
            CroupierError: if the work dir cannot be used or the port is taken.
        """
        config = self._config
        work_dir = self._work_dir = await WorkDir.open(config.work_dir)
        total = probe(config.resources, work_dir.path)
        self.state = AgentState.of(total, work_dir.load_agent_id())
        registry = CollectorRegistry()
        metrics = Metrics(registry)
        sandboxes = Sandboxes(work_dir.sandboxes)
        supervisor = self._guarded(work_dir, metrics)
        output = OutputRoutes(sandboxes, self.state.is_live)
        self._http = HttpServer(registry, self._clock, self._waits_for, output.routes())
        port = await self._http.start(config.http)
        self.http_address = Address(config.http.host, port)
        self.link = Link(config.master, self._identity(), self._inbox, self._backoff())
        started_s = self._clock.wall_ms() / 1000
        registry.register(StateCollector(self.state, self._is_registered, started_s))
        janitor = Janitor(sandboxes, self._clock)
        janitor.adopt()
        self._driver = Driver(
            self.state,
            self._inbox,
            self.link,
            Launcher(sandboxes, supervisor, self._run_id),
            supervisor,
            work_dir,
            janitor.retire,
            metrics,
            self._clock,
        )
        self._own("driver", self._driver.run())
        self._own("link", self.link.run())
        self._own("guard", self.guard.keep())
        self._own("janitor", janitor.run())
        _log.info(
            "agent_started",
            agent_id=self.state.agent_id,
            masters=[str(address) for address in config.master],
            http=str(self.http_address),
            work_dir=str(work_dir.path),
            resources=str(total),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then end the tasks, and say goodbye to the master.

        Raises:
            Exception: whatever ended one of the agent's own tasks.
        """
        await self._until(stop, None)
        _log.info("agent_stopping", tasks=self.state.live)
        await self._end_tasks()
        await self._say_goodbye()

    async def stop(self) -> None:
        """Kill what still runs, and let go of everything."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        sessions: set[int] = set()
        if self._supervisor is not None:
            sessions.update(self._supervisor.pids())
            self._supervisor.close()
        if self._http is not None:
            await self._http.stop()
        if self._guard is not None and self._work_dir is not None:
            await asyncio.to_thread(sweep, self._run_id, str(self._work_dir.sandboxes), sessions)
            await self._guard.stop()
        if self._work_dir is not None:
            self._work_dir.close()

    async def _until(self, event: asyncio.Event, timeout_s: float | None) -> None:
        """Wait for `event`, and raise what ends one of the agent's own tasks before."""
        waiting = asyncio.create_task(event.wait())
        mine = self._tasks.values()
        try:
            await asyncio.wait(
                [waiting, *mine], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
        for task in mine:
            if task.done():
                task.result()

    async def _end_tasks(self) -> None:
        assert self._driver is not None
        self._inbox.put_now(StopAsked())
        await self._until(self._driver.all_ended, STOP_GRACE_MS / 1000 + END_MARGIN_S)
        if not self._driver.all_ended.is_set():
            _log.error("tasks_do_not_end", tasks=self.state.live)

    async def _say_goodbye(self) -> None:
        # A master may have taken the agent in without its having heard of that.
        if not self.link.is_open:
            return
        self.link.leave("the agent was asked to stop")
        link = self._tasks["link"]
        await asyncio.wait([link], timeout=FLUSH_S)
        if not link.done():
            _log.warning("goodbye_not_heard")

    def _guarded(self, work_dir: WorkDir, metrics: Metrics) -> Supervisor:
        """Processes that end with the agent, however it ends."""
        self.guard = self._guard = Guard(
            self._run_id,
            work_dir.sandboxes,
            work_dir.lock_fd,
            lambda: self._supervisor.pids() if self._supervisor else (),
            self._backoff(),
            metrics.watchdog_restarted,
        )
        try:
            self._guard.start()
        except OSError as error:
            raise Unavailable(f"cannot start the watchdog: {error.strerror}") from error
        self._supervisor = Supervisor(self._guard, self._inbox.put_now)
        return self._supervisor

    def _identity(self) -> Identity:
        config = self._config
        host = self.http_address.host
        named = config.hostname if host in ("0.0.0.0", "::") else host  # noqa: S104 - asked for
        return Identity(
            config.hostname,
            config.attributes,
            str(Address(named, self.http_address.port)),
            croupier_version(),
            read_boot_id(),
        )

    def _backoff(self) -> Backoff:
        return Backoff(0.2, 10.0, self._rng)

    def _is_registered(self) -> bool:
        return "link" in self._tasks and self.link.is_registered

    def _waits_for(self) -> str | None:
        return None if self._is_registered() else "waiting for a master"

    def _own(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)


async def run_agent(config: AgentConfig, stop: asyncio.Event) -> None:
    """Run an agent until `stop` is set.

    Raises:
        CroupierError: if it cannot start, or another agent takes over its id.
    """
    agent = Agent(config)
    try:
        await agent.start()
        await agent.run(stop)
    finally:
        await agent.stop()
