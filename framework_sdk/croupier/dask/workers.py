"""The tasks of workers, the framework that runs them, and why workers fail."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface
from distributed.security import Security

import dask
from croupier.dask.boot import NO_DASK, OTHER_PYTHON
from croupier.futures.shape import Shape
from croupier.futures.start import private_python_hint
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Framework,
    InvalidRequest,
    NotFound,
    PreemptRequest,
    Reason,
    Resources,
    Task,
    TaskState,
    TaskStatus,
    Unavailable,
    enforces,
)

_PREFIX: Final = "DASK_DISTRIBUTED__COMM__"
_TLS: Final = {
    "TLS__CA_FILE": "tls_ca_file",
    "TLS__WORKER__CERT": "tls_worker_cert",
    "TLS__WORKER__KEY": "tls_worker_key",
    "TLS__CIPHERS": "tls_ciphers",
}
_KIB: Final = 1024
LOGGER: Final = logging.getLogger("croupier.dask")
# Time for which workers outlive the connection to a master. A client that is killed leaves none
# anyway: they end when they lose the scheduler.
FAILOVER_S: Final = 120.0
# For calls about workers that are closed.
CLOSE_S: Final = 5.0
AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DaskLaunch:
    """What all workers of a cluster have in common.

    Attributes:
        threads: of each worker.
        env: variables to add to the agent's environment.
        user: account to run as; empty for the one that the agent gives.
        death_timeout_s: time after which a worker that finds no scheduler ends.
        host: interface that workers listen on; empty for all.
        arguments: further ones of `dask worker`.
    """

    shape: Shape
    threads: int
    name: str
    death_timeout_s: float = 60.0
    host: str = ""
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def conditions(self) -> tuple[Constraint, ...]:
        """Conditions on agents."""
        needs = self.task("check", "tcp://check", Security()).needs
        return (*self.shape.constraints, *((enforces(*needs),) if needs else ()))

    def task(self, worker: str, scheduler: str, security: Security) -> Task:
        """Return the task of a worker, named `worker`, of the scheduler at an address.

        Raises InvalidRequest if no agent can ever run it.
        """
        plain, secret = security_variables(security)
        return Task(
            [self.shape.python, "-u", "-c", boot_source(), *self._words(worker, scheduler)],
            resources=self.shape.resources,
            task_id=worker,
            name=worker,
            env={**default_environment(), **self.env, **plain},
            secrets=secret,
            user=self.user,
            grace_s=5.0,
            limits=self.shape.limits,
            image=self.shape.image,
        )

    def _words(self, worker: str, scheduler: str) -> list[str]:
        words = [
            scheduler, "--name", worker, "--no-nanny", "--nthreads", str(self.threads),
            "--memory-limit", str(memory_bytes(self.shape.resources)),
            "--death-timeout", f"{self.death_timeout_s:g}", "--local-directory", ".",
            "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
        ]  # fmt: skip
        if self.host:
            words += ["--host", self.host]
        return [*words, *self.arguments]


@cache
def boot_source() -> str:
    """Return the program of a worker as text."""
    return files(__package__).joinpath("boot.py").read_text()


def default_environment() -> dict[str, str]:
    """Return what Dask's own nannies set: one thread for each library that has threads."""
    found = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    python = ".".join(platform.python_version_tuple()[:2])
    return {**{name: str(value) for name, value in found.items()}, "CROUPIER_DASK_PYTHON": python}


def memory_bytes(resources: Resources) -> int:
    """Return the memory of a worker; 0, which Dask takes for no limit, if it has none."""
    return resources["mem"] * _KIB * _KIB // 1000


def security_variables(security: Security) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables by which a worker finds its certificates: plain and secret ones.

    What is in memory is secret. Paths of files are plain: agents must have these files.
    """
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, attribute in _TLS.items():
        value: Any = getattr(security, attribute)
        if value:
            target = secret if "\n" in value else plain
            target[_PREFIX + name] = str(value)
    if security.require_encryption:
        plain[_PREFIX + "REQUIRE_ENCRYPTION"] = "True"
    return plain, secret


def security_of(security: Security | bool | None) -> Security:
    """Return the security of a cluster: with None or True a new certificate, kept in memory.

    Raises InvalidRequest if it is something else.
    """
    if security is None or security is True:
        temporary: Security = Security.temporary()
        return temporary
    if security is False:
        return Security(require_encryption=False)
    if isinstance(security, Security):
        return security
    raise InvalidRequest(f"security is a distributed.Security, True or False, not {security!r}")


class WorkersFailed(CroupierError):
    """Workers end before they have connected to the scheduler."""


def failure_of(status: TaskStatus, where: str, count: int) -> WorkersFailed:
    """Return the error for `count` such workers, the last of which was on the agent `where`."""
    return WorkersFailed(
        f"{count} workers ended before they had connected; the last one on"
        f" {where or 'no agent'}: {failure_text(status)}"
    )


def failure_text(status: TaskStatus) -> str:
    """Return why a worker ended, and what to do."""
    if status.exit_code == OTHER_PYTHON:
        return (
            "its Python is of another minor version than the client's; name one with python=PATH,"
            " or an image"
        )
    if status.exit_code == NO_DASK:
        return "its Python has no Dask: install distributed there, or name another with python=PATH"
    if status.reason is Reason.CONTAINER_LAUNCH_FAILED:
        hint = private_python_hint()
        return f"{status.message}; name a Python that agents have with python=PATH{hint}"
    if status.exit_code is not None:
        return (
            f"exit code {status.exit_code}; its stderr is in the sandbox of task {status.task_id}."
            " If it found no scheduler, give an address of this machine that agents reach"
            " (address=HOST)"
        )
    return f"{status.state.name} {status.reason.name} {status.message}".rstrip()


class WorkerFramework(Framework):
    """Submits and watches the workers of one cluster; `is_admitted` once a master admits it."""

    def __init__(
        self,
        launch: DaskLaunch,
        on_ended: Callable[[TaskStatus], None],
        on_preempted: Callable[[tuple[str, ...]], Awaitable[None]],
        **settings: Any,
    ) -> None:
        super().__init__(failover_timeout_s=FAILOVER_S, **settings)
        self.launch = launch
        self.is_admitted = asyncio.Event()
        self._on_ended, self._on_preempted = on_ended, on_preempted
        self._wanted: set[str] = set()
        self._agents: dict[str, str] = {}

    def where(self, worker: str) -> str:
        """Return the hostname of a worker's agent; empty if it was not placed."""
        agent = self.agent(self._agents.get(worker, ""))
        return "" if agent is None else agent.hostname

    async def start_worker(self, worker: str, scheduler: str, security: Security) -> None:
        """Submit a worker; returns once the master has it.

        Raises InvalidRequest if the master refuses it.
        """
        task = self.launch.task(worker, scheduler, security)
        self._wanted.add(worker)
        while worker in self._wanted:
            try:
                (verdict,) = await self.submit([task], constraints=self.launch.conditions)
            except Unavailable:
                # It may have it. The update of a task that it does not know begins again.
                await self.reconcile([worker])
                return
            if verdict.error is None:
                return
            if not isinstance(verdict.error, Conflict):
                self._wanted.discard(worker)
                raise verdict.error
            await asyncio.sleep(AGAIN_S)

    async def end_worker(self, worker: str) -> None:
        """Kill a worker, if it has not ended by itself."""
        if worker not in self._wanted:
            return
        self._wanted.discard(worker)
        with suppress(NotFound, Unavailable, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.kill(worker)

    async def on_subscribed(self, framework_id: str) -> None:  # noqa: ARG002 - as in Framework
        """Note that the master has admitted the framework."""
        self.is_admitted.set()

    async def on_update(self, status: TaskStatus) -> None:
        """Report that a worker has ended, unless a master may still find it."""
        if status.agent_id:
            self._agents[status.task_id] = status.agent_id
        is_unknown = status.state is TaskState.UNKNOWN and status.decided_in_s is None
        if not (status.state.is_terminal or is_unknown):
            return
        is_wanted = status.task_id in self._wanted
        self._wanted.discard(status.task_id)
        if is_wanted:
            self._on_ended(status)
        self._agents.pop(status.task_id, None)

    async def on_preempt(self, request: PreemptRequest) -> None:
        """Let workers transfer their data before the master kills them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(request.expires_in_s):
                await self._on_preempted(tuple(request.task_ids))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""


class WorkerTask(ProcessInterface):
    """One worker, as Dask's `SpecCluster` sees it: started when the master has its task."""

    def __init__(
        self,
        scheduler: str,
        name: str,
        framework: Callable[[], WorkerFramework],
        security: Security,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self._scheduler, self._name, self._security = scheduler, name, security
        self._framework = framework

    async def start(self) -> None:
        """Submit the task."""
        try:
            await self._framework().start_worker(self._name, self._scheduler, self._security)
        except CroupierError:
            self.status = Status.failed
            raise
        await super().start()

    async def close(self) -> None:
        """End the task, if it has not ended."""
        await self._framework().end_worker(self._name)
        await super().close()
