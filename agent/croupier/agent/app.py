"""The agent: assembles the parts, starts and stops them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core.events import Event, StopRequested
from croupier.agent.core.on_task import STOP_GRACE_MS
from croupier.agent.core.state import AgentState
from croupier.agent.credential import AgentCredential
from croupier.agent.devices import check_tasks, read_devices, with_devices
from croupier.agent.driver import Driver
from croupier.agent.exec.calls import ExecCalls
from croupier.agent.exec.task_execs import Entries, TaskExecs
from croupier.agent.executors.service import ExecutorServer
from croupier.agent.executors.streams import Streams
from croupier.agent.fencing import NewestMaster
from croupier.agent.gauges import FAMILIES, AgentView
from croupier.agent.health_check import HealthCheck
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.cgroup.isolator import shims_of
from croupier.agent.isolation.container import pulls_of
from croupier.agent.isolation.disk import ProjectQuotas, disk_isolator, with_disk
from croupier.agent.isolation.isolator import NONE, Layers, Setting
from croupier.agent.isolation.task_users import TaskUsers, prepare_users
from croupier.agent.janitor import Janitor, remove_trees
from croupier.agent.link import Link
from croupier.agent.machine import LocalMachine
from croupier.agent.metrics import Metrics
from croupier.agent.output_links import OutputLinks
from croupier.agent.output_trim import OutputTrim
from croupier.agent.probe import probe, read_boot_id
from croupier.agent.reactor import Reactor
from croupier.agent.recover import end_unknown_runs, recovered_state, take_identity
from croupier.agent.sandbox import Sandboxes
from croupier.agent.secret_files import SecretFiles
from croupier.agent.shared_directories import SharedDirectories
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.agent.supervisor import Supervisor
from croupier.agent.task_usage import TaskUsage
from croupier.agent.volumes import Volumes
from croupier.agent.wire import identity_to_wire
from croupier.agent.work_dir import WorkDir
from croupier.model.access import AGENT_USER
from croupier.model.errors import Unavailable
from croupier.model.health import problems_text
from croupier.model.isolation import OF_EVERY_AGENT, Feature, feature_names
from croupier.model.resources import Resources
from croupier.net.address import Address
from croupier.net.leader_search import Masters
from croupier.net.server_tls import ServerTls
from croupier.net.task_scope import end, until_set
from croupier.process.clock import SystemClock
from croupier.process.daemon import Reloader
from croupier.process.http.late_server import LateHttpServer
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger, set_level
from croupier.process.metric_families import FamilyCollector
from croupier.process.process_metrics import PROCESS, LoopWatch
from croupier.process.tls.renewal import RENEWALS, TLS, RenewedTls
from croupier.v1.agent_pb2 import Register

if TYPE_CHECKING:  # cyclopts and aiohttp
    from croupier.agent.config import AgentConfig
    from croupier.agent.executors.mesos_listener import MesosListener
    from croupier.process.http.server import HttpServer

_log = get_logger("croupier.agent")

# The time that a process takes to end after SIGKILL.
END_MARGIN_S = 2.0
# The time to send the last updates and GOODBYE.
FLUSH_S = 3.0


class AgentDaemon:
    """An agent in this process, from `start` to `stop`.

    Attributes:
        http_address: address of metrics and output, once started.
        mesos_address: where executors of Mesos find it, once started; None if they do not.
        state: the state of the core; only the driver changes it.
    """

    state: AgentState
    link: Link
    _driver: Driver
    _http: LateHttpServer
    _supervisor: Supervisor
    execs: TaskExecs
    _exec_calls: ExecCalls

    def __init__(self, config: AgentConfig, boot_id: Callable[[], str] = read_boot_id) -> None:
        """Open nothing before `start`; `boot_id` returns the id of the machine's current boot."""
        self._config, self._boot_id = config, boot_id
        self._clock, self._rng = SystemClock(), random.Random()
        self._inbox: Inbox[Event] = Inbox()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._opened = AsyncExitStack()
        self.http_address = config.http
        self.mesos_address: Address | None = None
        self._default_user = AGENT_USER
        self._isolate_flags = config.isolate
        self._quotas: ProjectQuotas | None = None

    async def start(self) -> None:
        """Lock the work dir, recover the tasks of an earlier life, and connect to a master.

        Raises CroupierError if the work dir cannot be used, its records are damaged, or the port is
        taken.
        """
        config = self._config
        work_dir = await WorkDir.open(config.work_dir, is_passable=config.users.gives_own)
        self._opened.callback(work_dir.close)
        inventory = None if config.devices is None else read_devices(config.devices)
        total = with_devices(probe(config.resources, work_dir.path), inventory)
        registry = CollectorRegistry()
        metrics = Metrics(registry, self._clock)
        loop_watch = LoopWatch(registry)
        registry.register(FamilyCollector(PROCESS, lambda: PROCESS))
        loop_watch.start()
        self._opened.callback(loop_watch.stop)
        credential = AgentCredential(config, work_dir.path)
        checkpoint, loaded = Checkpoint.open(work_dir.path, lenient=config.recover == "best-effort")
        self._opened.push_async_callback(checkpoint.close)
        self.state = await recovered_state(
            config, work_dir, checkpoint, loaded, total, self._boot_id, metrics
        )
        check_tasks(inventory, self.state.tasks.values())
        self.state.inventory = inventory
        self.state.reregistration_s = config.executor_reregistration_timeout
        take_identity(self.state, credential)
        sandboxes = Sandboxes(work_dir.sandboxes)
        users = prepare_users(config.users, work_dir, sandboxes)
        shim = await asyncio.to_thread(prepare_shim, work_dir.path)
        isolation = await self._isolate(work_dir, total, sandboxes, shim)
        shim = replace(shim, group=shims_of(isolation))
        if os.geteuid() == 0:
            self.state.features |= {Feature.USERS}
        self._default_user = users.default
        supervisor = await self._supervise(work_dir, sandboxes, shim, metrics, isolation)
        users.recover(self.state.live_runs())
        if (leftovers := users.leftovers()) is not None:
            self._own("leftovers", leftovers.run())
        usage = TaskUsage(self.state, isolation)
        metrics.on_status = usage.on_status
        self._own("usage", usage.run())
        links = OutputLinks(self._clock, are_required=credential.has_any)
        tls = self._tls(registry, credential)

        def make() -> HttpServer:
            # This imports aiohttp.
            from croupier.agent.http import TaskRoutes, make_http

            tasks = TaskRoutes(self.state, sandboxes, usage, links, self._isolate_flags)
            return make_http(
                config, registry, self._clock, self._waits_for, tasks, tls, credential.has_any
            )

        self._http = LateHttpServer(make, "croupier.agent.http")
        self._opened.push_async_callback(self._http.stop)
        port = await self._http.start(config.http)
        self.http_address = Address(config.http.host, port)
        self.link = Link(
            Masters(config.master, only_loopback=config.is_confined),
            self._identity(),
            self._inbox,
            self._rng,
            NewestMaster(self.state.cluster, self.state.master_epoch, self.state.position),
            credential,
            self._clock,
            lambda: self.state.agent_id,
            links.on_registered,
            self._on_exec,
        )
        started_s = self._clock.wall_ms() / 1000
        put, clock = self._inbox.put_now, self._clock
        janitor = Janitor(sandboxes, clock)
        janitor.adopt([*self.state.tasks, *self.state.voided])
        groups = SharedDirectories(work_dir.groups, sandboxes)
        groups.keep(self.state.groups)
        volumes = Volumes(work_dir.volumes, sandboxes, self._quotas)
        self.state.volumes = volumes.listed()
        health_check = HealthCheck(work_dir, checkpoint, shim, put, clock, self._rng)
        secret_files = SecretFiles(work_dir.path)
        await remove_trees(secret_files.left(self.state.known_runs()))
        entries = Entries(self.state, sandboxes, users, secret_files)
        self.execs = TaskExecs(work_dir.execs, shim, supervisor, isolation, entries.launch)
        self._opened.push_async_callback(self.execs.close)
        self._exec_calls = ExecCalls(
            self.execs.start, lambda: credential.security, partial(metrics.count, "agent_execs")
        )
        self._opened.push_async_callback(self._exec_calls.close)
        view = AgentView(self.state, self.link, janitor, started_s, usage, self.execs)
        registry.register(FamilyCollector(FAMILIES, lambda: view))
        trim = OutputTrim(sandboxes, config.output.bound, self.state.is_live)
        trim.adopt(self.state.tasks.values())
        self._own("output", trim.run())
        streams = Streams(
            self.state,
            self._inbox,
            work_dir.path,
            clock,
            partial(metrics.count, "agent_executor_drops"),
        )
        mesos = await self._listen_for_mesos(streams, users)
        executors = ExecutorServer(streams, None if mesos is None else mesos.variables)
        self._opened.push_async_callback(executors.close)
        if self.state.executors:
            executors.start()
        machine = LocalMachine(
            sandboxes,
            supervisor,
            janitor,
            health_check,
            secret_files,
            isolation,
            users,
            partial(metrics.count, "agent_container_errors"),
            pulls_of(isolation, put, self._opened),
            trim,
            groups,
            volumes,
            executors,
        )
        reactor = Reactor(self.state, self.link, machine, put, metrics, clock)
        self._driver = Driver(reactor, self._inbox, checkpoint, metrics, clock)
        self._own("driver", self._driver.run())
        self._own("link", self.link.run())
        self._own("janitor", janitor.run())
        self._own("health", health_check.run())
        _log.info(
            "agent_started",
            agent_id=self.state.agent_id or None,
            masters=[str(address) for address in config.master],
            http=str(self.http_address),
            work_dir=str(work_dir.path),
            resources=str(total),
            tasks=self.state.live,
            isolation=list(isolation.names),
            enforced=feature_names(isolation.features),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then leave the tasks, or end them and send GOODBYE.

        Raises:
            Exception: the error that ended one of the agent's asyncio tasks.
        """
        await until_set(stop, *self._tasks.values())
        _log.info("agent_stopping", tasks=self.state.live, on_stop=self._config.on_stop)
        if self._config.on_stop == "end":
            await self._end_tasks()
            await self._send_goodbye()

    async def stop(self) -> None:
        """Release everything; the next agent on the work dir adopts the tasks that run."""
        await end(*self._tasks.values())
        await self._opened.aclose()

    def reloader(self, read: Callable[[], AgentConfig]) -> Reloader[AgentConfig]:
        """Return what takes changed settings from the configuration that `read` returns."""

        def introduce(config: AgentConfig) -> None:
            self._config = replace(self._config, attributes=config.attributes, exec=config.exec)
            self.link.introduce(self._identity())

        takes = dict.fromkeys(("attributes", "exec"), introduce)
        takes["log_level"] = lambda config: set_level(config.log_level)
        return Reloader(self._config, read, takes)

    async def _listen_for_mesos(self, streams: Streams, users: TaskUsers) -> MesosListener | None:
        """Serve executors of Mesos, if that is asked for; raises Unavailable if it cannot."""
        config = self._config
        if config.mesos_listen is None:
            return None
        from croupier.agent.executors.mesos_listener import MesosListener

        address, hostname = config.mesos_listen, config.hostname
        mesos = MesosListener(address, self.state, streams, users, hostname, self._clock)
        self._opened.push_async_callback(mesos.stop)
        await mesos.start()
        self.mesos_address = mesos.address
        return mesos

    def _tls(
        self, registry: CollectorRegistry, credential: AgentCredential
    ) -> Callable[[], ServerTls] | None:
        """Watch the files of the certificate; return the present one, None for plain text."""
        files = self._config.tls.files()
        if files is None:
            return None
        renewed = RenewedTls(files, self._clock, credential.check_renewed)
        registry.register(FamilyCollector(TLS, lambda: renewed))
        registry.register(FamilyCollector(RENEWALS, lambda: {"own": renewed}))
        renewed.start()
        self._opened.callback(renewed.stop)
        return renewed.latest

    async def _supervise(
        self,
        work_dir: WorkDir,
        sandboxes: Sandboxes,
        shim: Shim,
        metrics: Metrics,
        isolation: Layers,
    ) -> Supervisor:
        """Prepare to start processes, and remove what runs of earlier lives have left."""
        try:
            self._supervisor = Supervisor(
                work_dir.runs,
                sandboxes,
                shim,
                self._inbox.put_now,
                partial(metrics.count, "agent_container_errors"),
                isolation,
            )
            self._opened.callback(self._supervisor.close)
            await asyncio.to_thread(end_unknown_runs, work_dir, self.state.known_runs(), isolation)
        except OSError as error:
            raise Unavailable(f"cannot use {work_dir.runs}: {error.strerror}") from error
        return self._supervisor

    async def _isolate(
        self, work_dir: WorkDir, total: Resources, sandboxes: Sandboxes, shim: Shim
    ) -> Layers:
        flags, secrets = self._config.isolate, self._config.secret_files
        has_own_uids = self._config.users.gives_own
        setting = Setting(flags, total, work_dir.path, shim, has_own_uids, secrets)
        isolation = await asyncio.to_thread(assemble, setting)
        self._opened.callback(lambda: isolation.close())
        if flags.isolation != (NONE,):
            defaults = with_disk(flags.default_limits, work_dir.path, total["disk"])
            self._isolate_flags = replace(flags, default_limits=defaults)
            uids = self._config.users.task_uids if has_own_uids else None
            put = self._inbox.put_now
            disk = disk_isolator(sandboxes, defaults, put, uids, lambda: self._supervisor.shims())
            disk.adopt(self.state.tasks.values())
            self._own("disk", disk.watch.run())
            isolation = isolation.extended(disk)
            self._quotas = disk.quotas
        self.state.features = isolation.features | OF_EVERY_AGENT
        if self.state.inventory is not None:
            self.state.features |= {Feature.DEVICES}
        return isolation

    async def _end_tasks(self) -> None:
        self._inbox.put_now(StopRequested())
        most_s = STOP_GRACE_MS / 1000 + END_MARGIN_S
        await until_set(self._driver.all_ended, *self._tasks.values(), timeout_s=most_s)
        if not self._driver.all_ended.is_set():
            _log.error("tasks_do_not_end", tasks=self.state.live)
            await self._supervisor.end(END_MARGIN_S)

    async def _send_goodbye(self) -> None:
        # A master may have registered the agent although its answer has not arrived.
        if not self.link.is_open:
            return
        self.link.leave("the agent was asked to stop")
        link = self._tasks["link"]
        await asyncio.wait([link], timeout=FLUSH_S)
        if not link.done():
            _log.warning("goodbye_unanswered")

    def _identity(self) -> Register:
        boot_id, user = self.state.boot_id, self._default_user
        return identity_to_wire(self._config, self.http_address, boot_id, user)

    def _on_exec(self, exec_id: str, master: Address) -> None:
        if self._config.exec == "allow":
            self._exec_calls.open(exec_id, master)

    def _waits_for(self) -> str | None:
        if self.state.health.problems:
            return f"unhealthy: {problems_text(self.state.health.problems)}"
        if self.link.is_registered:
            return None
        why = self.link.rejection
        return f"rejected by the master: {why}" if why else "waiting for a master"

    def _own(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)
