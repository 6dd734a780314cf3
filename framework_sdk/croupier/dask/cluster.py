"""The cluster that users see, on Dask's `SpecCluster`.

Rule: the scheduler runs in this process, workers are tasks. A worker that ends and is still wanted
is replaced under another name, so that the scheduler never confuses the two.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import SpecCluster
from distributed.scheduler import Scheduler
from distributed.security import Security

from croupier.dask.workers import (
    LOGGER,
    DaskLaunch,
    WorkerFramework,
    WorkersFailed,
    WorkerTask,
    failure_of,
    memory_bytes,
    security_of,
)
from croupier.futures.shape import Shape, shape_of
from croupier.futures.start import Reach, StartFailures, reach_of
from croupier.sdk import (
    Constraint,
    Credentials,
    CroupierError,
    InvalidRequest,
    Resources,
    TaskStatus,
    Unavailable,
)

# For a master to admit the framework.
ADMISSION_S: Final = 30.0
DEFAULT_RESOURCES: Final = "cpus:1;mem:1GB"


class DaskCluster(SpecCluster):
    """A Dask cluster on Croupier: `scale`, `adapt`, `Client(cluster)` as with any of Dask's."""

    def __init__(
        self,
        n_workers: int = 0,
        *,
        cpus: float | None = None,
        mem: str | None = None,
        resources: Resources | str | None = None,
        threads: int | None = None,
        constraints: Iterable[Constraint] | None = None,
        limits: str | Mapping[str, str | float] = "",
        image: str = "",
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str = "",
        role: str | None = None,
        name: str = "dask",
        master: str | None = None,
        credentials: Credentials | None = None,
        insecure: bool = False,
        address: str | None = None,
        listen: str | None = None,
        security: Security | bool | None = None,
        death_timeout_s: float = 60.0,
        worker_arguments: Sequence[str] = (),
        dashboard_address: str = "127.0.0.1:0",
        scheduler_options: Mapping[str, Any] | None = None,
        silence_logs: int = logging.WARNING,
        asynchronous: bool = False,
        loop: Any = None,
    ) -> None:
        """Start a scheduler in this process, and workers on the cluster.

        Args:
            n_workers: the number of workers at first; `scale` and `adapt` change it.
            cpus: of each worker; 1 by default.
            mem: of each worker, and the memory limit that Dask observes; 1 GB by default.
            resources: in place of `cpus` and `mem`.
            threads: of each worker; its whole cpus by default.
            constraints: on the agents.
            limits: hard limits of each worker, as those of a `Task`.
            image: root file system of the workers; it has Python and Dask.
            python: the Python on the agents; that of this process by default.
            env: variables of the workers.
            user: account of the workers.
            role: the role whose share the workers are charged to.
            name: of the framework, and the beginning of workers' names.
            master: as of `Framework`.
            credentials: as of `Framework`.
            insecure: send the workers' key even unencrypted to a master on another machine.
            address: HOST or HOST:PORT at which workers reach the scheduler; by default this
                machine's address on the way to the master.
            listen: interface for the scheduler; that of `address` by default.
            security: a `distributed.Security`; None or True makes a new certificate for this
                cluster. False uses no TLS: who reaches the scheduler can run code here.
            death_timeout_s: time after which a worker that finds no scheduler ends.
            worker_arguments: further ones of `dask worker`.
            dashboard_address: of the scheduler's dashboard, if bokeh is installed.
            scheduler_options: further arguments of `distributed.Scheduler`.
            silence_logs: Dask logs nothing below this level.
            asynchronous: whether it is used within an event loop: `async with`.
            loop: the loop to use.

        Raises:
            InvalidRequest: if an argument is invalid, or the master refuses the framework.
            Unavailable: if no master admits it within 30 s.
        """
        reach = reach_of(address, listen, master)
        default = Shape(Resources.parse(DEFAULT_RESOURCES))
        mem = mem or (None if cpus is None else "1GB")
        shape = shape_of(default, cpus, mem, resources, constraints, limits, image, python)
        own_security = security_of(security)
        host = "127.0.0.1" if reach.host.startswith("127.") else ""
        self._launch = DaskLaunch(
            shape,
            _threads(shape.resources, threads),
            name,
            death_timeout_s=death_timeout_s,
            host=host,
            user=user,
            env=dict(env or {}),
            arguments=tuple(worker_arguments),
        )
        self._launch.task("check", "tcp://check", own_security)
        self._settings: dict[str, Any] = {
            "name": name,
            "role": role,
            "master": master,
            "credentials": credentials,
            "insecure": insecure,
        }
        self._framework: WorkerFramework | None = None
        self._running: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self._first = n_workers
        self._numbers = itertools.count()
        self._connected: set[str] = set()
        self._failures = StartFailures()
        self.failure: CroupierError | None = None
        worker = {
            "cls": WorkerTask,
            "options": {"framework": self._own_framework, "security": own_security},
        }
        scheduler = {
            "cls": Scheduler,
            "options": {
                **_scheduler_options(reach, own_security, dashboard_address),
                **(scheduler_options or {}),
            },
        }
        try:
            super().__init__(
                scheduler=scheduler,
                worker=worker,
                asynchronous=asynchronous,
                loop=loop,
                security=own_security,
                silence_logs=silence_logs,
                name=name,
            )
        except BaseException:
            if not asynchronous:
                self._loop_runner.stop()
            raise

    def new_worker_spec(self) -> dict[str, Any]:
        """Return a name that was never used, and the specification of a worker."""
        return {f"{self._launch.name}-{next(self._numbers)}": self.new_spec}

    def scale(self, n: int = 0, memory: str | None = None, cores: int | None = None) -> Any:
        """Ask for so many workers, or for as many as have so much memory or so many cores.

        Raises:
            WorkersFailed: if workers cannot start.
        """
        if self.failure is not None and n:
            raise self.failure
        return super().scale(n, memory=memory, cores=cores)

    # The first argument of `SpecCluster.adapt` is a class.
    def adapt(  # type: ignore[override]
        self, minimum: float = 0, maximum: float = math.inf, **options: Any
    ) -> Adaptive:
        """Have between `minimum` and `maximum` workers, as the work needs.

        `options` are those of `distributed.deploy.Adaptive`, such as `interval="500ms"`.
        """
        return super().adapt(minimum=minimum, maximum=maximum, **options)

    def _threads_per_worker(self) -> int:
        return self._launch.threads

    def _memory_per_worker(self) -> int:
        return memory_bytes(self._launch.shape.resources)

    async def _start(self) -> None:
        if self._framework is None:
            await self._connect()
        await super()._start()
        first, self._first = self._first, 0
        if first:
            self.scale(first)

    async def _connect(self) -> None:
        """Run the framework, and wait until a master admits it."""
        self._framework = framework = WorkerFramework(
            self._launch, self._on_ended, self._on_preempted, **self._settings
        )
        self._running = running = asyncio.create_task(framework.run())
        admitted = asyncio.create_task(framework.is_admitted.wait())
        await asyncio.wait(
            (running, admitted), timeout=ADMISSION_S, return_when=asyncio.FIRST_COMPLETED
        )
        admitted.cancel()
        if framework.is_admitted.is_set():
            running.add_done_callback(self._on_framework_over)
            return
        await self._disconnect()
        if running.done() and not running.cancelled():
            running.result()
        raise Unavailable(f"no master admits the cluster within {ADMISSION_S:g} s")

    async def _disconnect(self) -> None:
        """Remove the framework, and with it every worker that is left."""
        framework, running = self._framework, self._running
        if framework is None or running is None:
            return
        with suppress(CroupierError):
            if not running.done():
                await framework.stop(teardown=framework.framework_id is not None)
        others = [task for task in self._ending if task is not asyncio.current_task()]
        for task in (running, *others):
            task.cancel()
        await asyncio.gather(running, *others, return_exceptions=True)

    async def _close(self) -> None:
        if self.status is Status.closed:
            return
        try:
            await super()._close()
        finally:
            await self._disconnect()

    async def _wait_for_workers(self, n_workers: int = 0, timeout: Any = None) -> None:
        """Wait for workers; if none can start, say why."""
        try:
            await super()._wait_for_workers(n_workers, timeout)
        except Exception as error:
            if self.failure is not None:
                raise self.failure from error
            raise

    def _own_framework(self) -> WorkerFramework:
        assert self._framework is not None
        return self._framework

    def _update_worker_status(self, op: str, msg: Any) -> None:
        """Follow the scheduler's workers.

        The method of `SpecCluster` closes a worker that was away for a while. Here its task says
        whether it lives, and it ends by itself when it loses the scheduler.
        """
        if op == "add":
            self._failures.on_success()
            self._connected.update(worker["name"] for worker in msg["workers"].values())
        Cluster._update_worker_status(self, op, msg)  # noqa: SLF001 - overridden there

    def _on_ended(self, status: TaskStatus) -> None:
        """Replace a worker that is still wanted."""
        name = status.task_id
        has_connected = name in self._connected
        self._connected.discard(name)
        self.workers.pop(name, None)
        if name not in self.worker_spec or self.status is not Status.running:
            return
        del self.worker_spec[name]
        if not has_connected and self._failures.on_failure(status):
            where = self._own_framework().where(name)
            self._give_up(failure_of(status, where, self._failures.count))
            return
        LOGGER.log(
            logging.INFO if has_connected else logging.WARNING,
            "worker %s ended (%s %s); another one is started",
            name, status.state.name, status.message,
        )  # fmt: skip
        self.worker_spec.update(self.new_worker_spec())
        self._keep(asyncio.create_task(self._replace()))

    async def _replace(self) -> None:
        await asyncio.sleep(self._failures.pause_s)
        if self.status is Status.running:
            try:
                await self._correct_state()
            except CroupierError as error:
                self._give_up(WorkersFailed(str(error)))

    async def _on_preempted(self, names: tuple[str, ...]) -> None:
        """Retire workers that the master will kill: their data moves to others first."""
        if self.scheduler is not None:
            await self.scheduler.retire_workers(names=list(names), close_workers=True)

    def _give_up(self, failure: CroupierError) -> None:
        """Start no more workers; without any, end the cluster, so that nothing waits for ever."""
        LOGGER.error("%s", failure)
        self.failure = failure
        if (adaptive := getattr(self, "_adaptive", None)) is not None:
            adaptive.stop()
        for name in set(self.worker_spec) - self._connected:
            del self.worker_spec[name]
        if not self._connected:
            self._keep(asyncio.create_task(self._close()))

    def _on_framework_over(self, running: asyncio.Task[None]) -> None:
        """Handle the end of the session: by `close`, or by an error of the master."""
        if running.cancelled() or self.status is not Status.running:
            return
        error = running.exception()
        if isinstance(error, CroupierError):
            self._give_up(error)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _threads(resources: Resources, threads: int | None) -> int:
    if threads is not None and threads < 1:
        raise InvalidRequest(f"threads must be at least 1, not {threads}")
    return max(1, resources["cpus"] // 1000) if threads is None else threads


def _scheduler_options(reach: Reach, security: Security, dashboard_address: str) -> dict[str, Any]:
    protocol = "tls://" if security.require_encryption else "tcp://"
    options: dict[str, Any] = {
        "host": reach.listen or None,
        "port": reach.port,
        "protocol": protocol,
        "security": security,
        "dashboard": True,
        "dashboard_address": dashboard_address,
    }
    if reach.port and reach.host != reach.listen:
        options["contact_address"] = f"{protocol}{reach.host}:{reach.port}"
    return options
