"""Write an executor: a process that runs tasks of its framework, on one agent.

    class Pool(Executor):
        async def on_launch(self, task):
            await self.update(task.task_id, TaskState.RUNNING)
            await self.update(task.task_id, TaskState.FINISHED, data=work(task.data))

    Pool().run_forever()

The framework launches it as a task with `executor=ExecutorSpec()`, and tasks in it with the
`executor_id` of that task. Its tasks end with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc.aio

from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.executor import SOCKET_VARIABLE, TOKEN_VARIABLE, check_message
from croupier.model.resources import Resources
from croupier.model.task import MAX_MESSAGE, TaskState
from croupier.model.task_checks import check_news
from croupier.net.errors import error_from_wire
from croupier.net.task_scope import racing, reraise_own_cancellation
from croupier.net.transport import socket_target
from croupier.sdk.log import log_event
from croupier.v1 import executor_pb2 as pb
from croupier.v1 import task_pb2
from croupier.v1.executor_pb2_grpc import ExecutorServiceStub
from croupier.wire.resources import resources_from_wire

# Updates that the agent has not recorded; more of them wait.
MOST_UPDATES: Final = 64
# Messages that wait to be sent; more of them are lost.
MOST_MESSAGES: Final = 100
# Messages are lost while so many events wait for their handlers.
MOST_HANDLERS: Final = 1_000
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 2.0
# The time that the last updates have to arrive when the executor stops.
FLUSH_S: Final = 5.0
_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 1_000),
]
_ENDED: Final = frozenset({TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED})
_STATES: Final = _ENDED | {TaskState.STARTING, TaskState.RUNNING, TaskState.KILLING}


@dataclass(frozen=True, slots=True)
class LaunchedTask:
    """A task that the executor is to run.

    Attributes:
        data: as the framework gave it to the task.
    """

    task_id: str
    name: str
    resources: Resources
    labels: Mapping[str, str]
    data: bytes


class Executor:
    """A program that runs tasks on an agent: derive from it, override handlers, run it.

    Handlers are called one at a time, in order, so a task that takes time is to be run as an
    asyncio task or a process. An exception in `on_launch` fails the task; one in another handler is
    logged as `handler_failed`. If the agent restarts, the executor connects again by itself.
    """

    def __init__(self) -> None:
        """Prepare; nothing is sent before `run`.

        Raises:
            InvalidRequest: if this process was not started as an executor.
        """
        self._socket = os.environ.get(SOCKET_VARIABLE, "")
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        if not self._socket or not self._token:
            raise InvalidRequest(
                f"{SOCKET_VARIABLE} is not set: launch this program as a task with"
                " executor=ExecutorSpec()"
            )
        # Launched tasks whose end the agent has not recorded.
        self._tasks: dict[str, None] = {}
        self._updates: dict[int, pb.ExecutorUpdate] = {}
        self._messages: deque[bytes] = deque()
        self._last_number = 0
        self._changed = asyncio.Event()
        self._recorded = asyncio.Event()
        self._handlers: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._is_connected = self._has_registered = False
        self._stopped = asyncio.Event()

    async def on_registered(self, framework_id: str, agent_id: str, data: bytes) -> None:
        """Handle the first registration; `data` is what the framework gave to the executor."""

    async def on_launch(self, task: LaunchedTask) -> None:
        """Run a task, and report its states by `update`. Called once for each task."""
        raise NotImplementedError

    async def on_kill(self, task_id: str, grace_s: float) -> None:
        """End a task within the grace, and report that it is KILLED; may be called again.

        The default fails to do so: an executor that cannot end a task is ended itself, 5 s after
        the grace (`ExecutorSpec.shutdown_grace_ms`).
        """

    async def on_message(self, data: bytes) -> None:
        """Handle a message of the framework. Each arrives at most once; some may be lost."""

    async def on_shutdown(self, grace_s: float) -> None:
        """End all tasks within the grace, and stop. Then the process is killed."""
        await self.stop(grace_s)

    async def update(
        self,
        task_id: str,
        state: TaskState,
        message: str = "",
        data: bytes = b"",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Report a state of a task, or news of it in the same state.

        The framework gets it in `on_update`, in order, also if the agent is away meanwhile. This
        waits while 64 updates are not recorded by the agent.

        Args:
            task_id: of a task that was launched here.
            state: STARTING, RUNNING, KILLING, FINISHED, FAILED or KILLED.
            message: for people.
            data: for the framework; at most 64 KiB.
            labels: for the framework.

        Raises:
            InvalidRequest: if the state is another one, the data are too large, there are more than
                64 labels, or one of them has more than 1,024 characters.
        """
        if state not in _STATES:
            raise InvalidRequest(f"an executor cannot report {state.name}")
        named = dict(labels or {}).items()
        check_news(data, named)
        while len(self._updates) >= MOST_UPDATES:
            self._recorded.clear()
            await self._recorded.wait()
        self._last_number += 1
        self._updates[self._last_number] = pb.ExecutorUpdate(
            task_id=task_id,
            state=task_pb2.TaskState.ValueType(state),
            message=message[:MAX_MESSAGE],
            data=data,
            labels=[task_pb2.Label(key=key, value=each) for key, each in named],
            number=self._last_number,
        )
        self._changed.set()

    async def send(self, data: bytes) -> bool:
        """Send a message to the framework; return False if it is lost at once.

        It arrives at most once, and may be lost on its way. At most 64 KiB.

        Raises:
            InvalidRequest: if it is larger.
        """
        check_message(data)
        if not self._is_connected or len(self._messages) >= MOST_MESSAGES:
            return False
        self._messages.append(data)
        self._changed.set()
        return True

    async def stop(self, within_s: float = FLUSH_S) -> None:
        """End `run`, once the updates that were made before have arrived, or after `within_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._updates:
                    self._recorded.clear()
                    await self._recorded.wait()
        self._stopped.set()

    async def run(self) -> None:
        """Serve the agent until `stop`.

        Raises:
            CroupierError: if the agent refuses the executor for good.
        """
        parts = (self._stay_connected(), self._handle(), self._stopped.wait())
        async with racing(*parts) as (connecting, *_):
            if connecting.done():
                connecting.result()

    def run_forever(self) -> None:
        """Run as a program, until the agent asks for its end, or SIGTERM or SIGINT.

        Main thread only.

        Raises:
            CroupierError: as `run` does.
        """
        asyncio.run(self._run_until_signalled())

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._put, partial(self.on_shutdown, FLUSH_S))
        await self.run()

    def _put(self, handler: Callable[[], Awaitable[None]]) -> None:
        self._handlers.put_nowait(handler)

    async def _handle(self) -> None:
        while True:
            handler = await self._handlers.get()
            try:
                await handler()
            except (Exception, asyncio.CancelledError):
                reraise_own_cancellation()
                log_event(logging.ERROR, "handler_failed", with_traceback=True)

    async def _stay_connected(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                if await self._connect():
                    retry_s = FIRST_RETRY_S
            except (Unavailable, OSError) as error:
                # OSError: the directory of the socket is not there.
                log_event(logging.WARNING, "agent_refused", error=str(error))
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def _connect(self) -> bool:
        """Serve one stream until it ends; return whether the agent answered.

        Raises:
            CroupierError: if the agent refused the executor.
        """
        with _address(Path(self._socket)) as target:
            async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
                call = ExecutorServiceStub(channel).Connect(self._requests())
                try:
                    async for response in call:
                        self._on_response(response)
                except (grpc.RpcError, asyncio.CancelledError):
                    reraise_own_cancellation()
                finally:
                    was_connected, self._is_connected = self._is_connected, False
                    self._messages.clear()
                    call.cancel()
        return was_connected

    async def _requests(self) -> AsyncIterator[pb.ExecutorServiceConnectRequest]:
        register = pb.RegisterExecutor(token=self._token, task_ids=list(self._tasks))
        yield pb.ExecutorServiceConnectRequest(register=register)
        last_sent = 0
        while True:
            # What is added while a request is written is found in the next turn.
            self._changed.clear()
            for number in sorted(each for each in self._updates if each > last_sent):
                last_sent = number
                yield pb.ExecutorServiceConnectRequest(update=self._updates[number])
            while self._messages:
                yield pb.ExecutorServiceConnectRequest(message=self._messages.popleft())
            await self._changed.wait()

    def _on_response(self, response: pb.ExecutorServiceConnectResponse) -> None:
        match response.WhichOneof("response"):
            case "registered":
                self._on_registered(response.registered)
            case "launch":
                self._on_launch(response.launch)
            case "kill":
                kill = response.kill
                grace_s = kill.kill_policy.grace_ms / 1000
                self._put(partial(self.on_kill, kill.task_id, grace_s))
            case "acknowledged":
                self._on_recorded(response.acknowledged)
            case "message" if self._handlers.qsize() < MOST_HANDLERS:
                self._put(partial(self.on_message, response.message))
            case "shutdown":
                self._put(partial(self.on_shutdown, response.shutdown.grace_ms / 1000))
            case "error":
                raise error_from_wire(response.error)

    def _on_registered(self, registered: pb.ExecutorRegistered) -> None:
        if not self._has_registered:
            self._has_registered = True
            ids = (registered.framework_id, registered.agent_id)
            self._put(partial(self.on_registered, *ids, registered.executor.data))
        self._is_connected = True

    def _on_launch(self, wire: task_pb2.TaskInfo) -> None:
        if wire.task_id in self._tasks:
            return
        self._tasks[wire.task_id] = None
        task = LaunchedTask(
            wire.task_id,
            wire.name,
            resources_from_wire(wire.resources),
            {label.key: label.value for label in wire.labels},
            wire.data,
        )
        self._put(partial(self._launch, task))

    async def _launch(self, task: LaunchedTask) -> None:
        try:
            await self.on_launch(task)
        except (Exception, asyncio.CancelledError) as error:
            reraise_own_cancellation()
            message = f"{type(error).__name__}: {error}"
            await self.update(task.task_id, TaskState.FAILED, message)
            raise

    def _on_recorded(self, number: int) -> None:
        update = self._updates.pop(number, None)
        if update is not None and TaskState(update.state) in _ENDED:
            self._tasks.pop(update.task_id, None)
        self._recorded.set()


@contextmanager
def _address(socket: Path) -> Iterator[str]:
    """Yield the address of the agent's socket."""
    directory = os.open(socket.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield socket_target(socket, directory)
    finally:
        os.close(directory)
