"""The framework that runs workers as tasks, the handle of one worker, and why workers fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface
from distributed.security import Security

from croupier.dask.boot import NO_DASK, OTHER_PYTHON
from croupier.dask.launch import DaskLaunch
from croupier.futures.start import private_python_hint
from croupier.sdk import (
    Conflict,
    CroupierError,
    Framework,
    NotFound,
    PreemptRequest,
    Reason,
    TaskState,
    TaskStatus,
    Unavailable,
)


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


LOGGER: Final = logging.getLogger("croupier.dask")
# Time for which workers outlive the connection to a master. A client that is killed leaves none
# anyway: they end when they lose the scheduler.
FAILOVER_S: Final = 120.0
# For calls about workers that are closed.
CLOSE_S: Final = 5.0
AGAIN_S: Final = 1.0


class WorkerFramework(Framework):
    """Submits the workers of one cluster, and tells when they end.

    Attributes:
        is_admitted: whether the master has admitted the framework.
    """

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

        Raises:
            InvalidRequest: if the master refuses it.
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
        """Tell that a worker has ended; no update ends one that a master may still find."""
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
        """Let workers hand on their data before the master kills them."""
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
