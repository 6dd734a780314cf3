"""`POST /api/v1/executor`: the executor API of Mesos, in JSON.

A SUBSCRIBE opens a stream of records, and every other call is a request of its own. A call is by
the executor that it names: its caller presents the token of the executor, or is of its user. A
process of that user could read the executor's memory, and so may speak for it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiohttp import web

from croupier.agent.core import effects as fx
from croupier.agent.core.events import ExecutorUpdated
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.executors.streams import Message, Stream, Streams
from croupier.agent.mesos import environment
from croupier.mesos import fields
from croupier.mesos.fields import Json, entry, id_of, made_id, text, typed
from croupier.model import errors
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.executor import MESOS_API
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import MAX_MESSAGE, TaskState
from croupier.model.task_checks import check_news
from croupier.process.http.bodies import read_body
from croupier.process.http.connections import HttpLimits
from croupier.process.http.credentials import refusal
from croupier.process.http.routes import Requirement, Route

PATH: Final = "/api/v1/executor"
# An update has 64 KiB of data, in base64, and labels.
MOST_BODY: Final = 256 * 1024
LIMITS: Final = HttpLimits(most_received=MOST_BODY + 64 * 1024, idle_s=24 * 3600.0)
HEARTBEAT_S: Final = 15.0
_TABLES: Final = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_STATES: Final = {
    **{f"TASK_{state.name}": state for state in (
        TaskState.STARTING, TaskState.RUNNING, TaskState.KILLING, TaskState.FINISHED,
        TaskState.FAILED, TaskState.KILLED,
    )},
    **dict.fromkeys(
        ("TASK_ERROR", "TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_UNREACHABLE"),
        TaskState.FAILED,
    ),
}  # fmt: skip


class ExecutorApi:
    """The executor API of one agent."""

    def __init__(
        self, state: AgentState, streams: Streams, hostname: str, uid_of: Callable[[Key], int]
    ) -> None:
        """`uid_of` returns the user of a live executor."""
        self._state, self._streams, self._hostname, self._uid_of = state, streams, hostname, uid_of
        self._open: dict[Key, Stream] = {}

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        public = Requirement.PUBLIC
        return tuple(
            route
            for prefix in ("", "/slave(1)")
            for route in (
                Route(prefix + PATH, self._post, public, "POST"),
                Route(f"{prefix}/state", self._get_state, public),
            )
        )

    async def _get_state(self, _: web.Request) -> web.Response:
        """Describe the agent, in short: executors of Toil do not start without an answer."""
        found = {"id": self._state.agent_id, "hostname": self._hostname, "version": fields.VERSION}
        return web.json_response(found)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        try:
            of = fields.parse_object(await read_body(request, MOST_BODY))
            key = self._executor(request, of)
            if text(of, "type") == "SUBSCRIBE":
                return await self._subscribe(request, key, entry(of, "subscribe"))
            await self._call(key, of)
        except CroupierError as error:
            return refusal(errors.shortened(error), None)
        return web.Response(status=202)

    def _executor(self, request: web.Request, of: Json) -> Key:
        """Return the executor that a call names, after a check of the caller.

        A framework may start an executor anew before the one of the same id has ended. Its token
        tells them apart, or the task of an update; else the newest is meant.

        Raises:
            NotFound: if this agent runs no such executor.
            PermissionDenied: if the caller is neither of the executor's user nor has its token.
        """
        framework_id, name = FrameworkId(id_of(of, "framework_id")), id_of(of, "executor_id")
        found: list[Key] = []
        for key in self._state.executors:
            info = self._state.tasks[key].info
            is_mesos = info.executor is not None and info.executor.api == MESOS_API
            if is_mesos and key[0] == framework_id and environment.executor_id_of(info) == name:
                found.append(key)
        if not found:
            raise errors.NotFound(
                f"Executor {name[:80]!r} of framework {framework_id[:80]!r} is unknown"
            )
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            key = self._streams.key_of(token.strip())
            if key not in found:
                raise errors.PermissionDenied("the token is that of another executor")
            return key
        child = (framework_id, TaskId(id_of(entry(of, "update", "status"), "task_id")))
        runs_it = (key for key in found if child in self._state.executors[key].tasks)
        key = next(runs_it, found[-1])
        self._check_user(request, key)
        return key

    def _check_user(self, request: web.Request, key: Key) -> None:
        transport = request.transport
        if transport is None:
            raise errors.Unavailable("the connection has ended")
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        uid = _uid_of_peer(peer[:2], own[:2])
        if uid not in (0, self._uid_of(key)):
            raise errors.PermissionDenied("the caller is not of the user of this executor")

    async def _subscribe(self, request: web.Request, key: Key, of: Json) -> web.StreamResponse:
        listed = {id_of(each, "task_id") for each in fields.entries(of, "unacknowledged_tasks")}
        stream = self._streams.open(key, frozenset(map(TaskId, listed)))
        self._open[key] = stream
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.force_close()
        try:
            await response.prepare(request)
            for each in fields.entries(of, "unacknowledged_updates"):
                await self._streams.updated(stream, _update(stream, entry(each, "status")))
            await self._write(stream, response)
        except (ConnectionError, InvalidRequest):
            # The executor is gone, or sends what cannot be read: it subscribes again.
            pass
        finally:
            if self._open.get(key) is stream:
                del self._open[key]
            self._streams.ended(stream)
        return response

    async def _write(self, stream: Stream, response: web.StreamResponse) -> None:
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    message = await stream.take()
            except TimeoutError:
                await response.write(fields.record(typed("HEARTBEAT")))
                continue
            if message is None:
                if stream.error:
                    await response.write(fields.record(typed("ERROR", message=stream.error)))
                return
            await response.write(fields.record(self._event(message)))

    def _event(self, message: Message) -> Json:
        agent_id = self._state.agent_id
        match message:
            case fx.Welcome(framework_id, _, info):
                return typed(
                    "SUBSCRIBED",
                    executor_info=environment.executor_info(info, framework_id),
                    framework_info=environment.framework_info(info, framework_id),
                    agent_info={"id": made_id(agent_id), "hostname": self._hostname},
                )
            case fx.RunTask(info):
                return typed("LAUNCH", task=environment.task_info(info, agent_id))
            case fx.EndTask(task_id, grace_ms):
                policy = {"grace_period": {"nanoseconds": grace_ms * fields.NANOSECONDS_PER_MS}}
                return typed("KILL", task_id=made_id(task_id), kill_policy=policy)
            case fx.UpdateDurable(task_id, update_id):
                return typed(
                    "ACKNOWLEDGED",
                    task_id=made_id(task_id),
                    uuid=fields.made_data(update_id),
                )
            case fx.Said(data):
                return typed("MESSAGE", data=fields.made_data(data))
            case _:
                return typed("SHUTDOWN")

    async def _call(self, key: Key, of: Json) -> None:
        stream = self._open.get(key)
        if stream is None:
            raise errors.PermissionDenied("Executor is not subscribed")
        match text(of, "type"):
            case "UPDATE":
                update = _update(stream, entry(of, "update", "status"))
                await self._streams.updated(stream, update)
            case "MESSAGE":
                await self._streams.said(stream, fields.data_of(entry(of, "message"), "data"))
            case "HEARTBEAT":
                pass
            case kind:
                raise InvalidRequest(f"Received call {kind[:80]!r}, which is not supported")


def _update(stream: Stream, status: Json) -> ExecutorUpdated:
    state = _STATES.get(text(status, "state"))
    if state is None:
        raise InvalidRequest(f"an executor cannot report {text(status, 'state')[:80]!r}")
    uuid, data, labels = (
        fields.uuid_of(status),
        fields.data_of(status, "data"),
        fields.labels_of(status),
    )
    check_news(data, labels)
    return ExecutorUpdated(
        stream.key,
        stream.number,
        TaskId(id_of(status, "task_id")),
        state,
        uuid,
        text(status, "message")[:MAX_MESSAGE],
        data,
        labels,
    )


def _uid_of_peer(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the uid that owns a connection of this machine, by the kernel; None if unknown."""
    version = 6 if ":" in peer[0] else 4
    wanted = [_address_in_table(peer), _address_in_table(own)]
    with suppress(OSError), _TABLES[version].open() as table:
        for line in table:
            parts = line.split()
            if parts[1:3] == wanted:
                return int(parts[7])
    return None


def _address_in_table(address: tuple[str, int]) -> str:
    """Return an address as the kernel writes it: words in the order of the machine."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    packed = socket.inet_pton(family, address[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
