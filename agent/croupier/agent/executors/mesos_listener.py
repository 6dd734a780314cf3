"""The port at which executors of Mesos find their agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.executors.streams import Streams
from croupier.agent.isolation.isolator import Launch
from croupier.agent.isolation.task_users import TaskUsers
from croupier.agent.mesos.environment import variables
from croupier.model.clock import Clock
from croupier.model.executor import MESOS_API
from croupier.model.isolation import Feature
from croupier.net.address import Address
from croupier.process.http.late_server import LateHttpServer

if TYPE_CHECKING:  # aiohttp
    from croupier.process.http.server import HttpServer


class MesosListener:
    """Serves executors of Mesos from `start` to `stop`.

    Attributes:
        address: where it listens.
    """

    def __init__(
        self,
        listen: Address,
        state: AgentState,
        streams: Streams,
        users: TaskUsers,
        hostname: str,
        clock: Clock,
    ) -> None:
        self.address, self._state, self._streams = listen, state, streams
        self._users, self._hostname, self._clock = users, hostname, clock
        self._server = LateHttpServer(self._make, "croupier.agent.mesos.executor_api")

    async def start(self) -> None:
        """Listen; raises Unavailable if the port is taken."""
        self._streams.prepare()
        port = await self._server.start(self.address)
        self.address = Address(self.address.host, port)
        self._state.features |= {Feature.MESOS_EXECUTORS}

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    def variables(self, launch: Launch, token: str) -> dict[str, str]:
        """Return the variables by which an executor finds its agent; none if it is not of Mesos."""
        spec, info = launch.info.executor, launch.info
        if spec is None or spec.api != MESOS_API:
            return {}
        agent_id = self._state.agent_id
        return variables(info, launch.key[0], agent_id, launch.sandbox, self.address, token)

    def _make(self) -> HttpServer:
        # This imports aiohttp.
        from croupier.agent.mesos.executor_api import LIMITS, ExecutorApi
        from croupier.process.http.server import HttpServer

        api = ExecutorApi(self._state, self._streams, self._hostname, self._uid_of)
        return HttpServer(
            CollectorRegistry(),
            self._clock,
            lambda: None,
            api.routes(),
            names=(self.address.host,),
            limits=LIMITS,
            guards={},
        )

    def _uid_of(self, key: Key) -> int:
        task = self._state.tasks[key]
        user = self._users.of(task.run, task.info.command.user)
        return os.geteuid() if user is None else user.uid
