"""The agent's streams of commands, with masters that break every rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.agent.core.tasks import Key
from croupier.agent.exec import calls
from croupier.agent.exec.calls import INPUT_WINDOW, ExecCalls
from croupier.agent.exec.streams import Stream
from croupier.agent.exec.task_exec import TaskExec
from croupier.model.errors import NotFound
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_server
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import exec_pb2, framework_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server

DEADLINE_S = 30.0
Script = Callable[["Conversation"], Awaitable[None]]


class Conversation:
    """The master's side of one stream."""

    def __init__(self, requests: AsyncIterator[pb.AgentServiceExecRequest], context: Any) -> None:
        self.requests, self._context = requests, context

    async def next(self) -> pb.AgentServiceExecRequest:
        async with asyncio.timeout(DEADLINE_S):
            return await anext(self.requests)

    async def send(self, **fields: Any) -> None:
        await self._context.write(pb.AgentServiceExecResponse(**fields))

    async def start(self, **command: Any) -> None:
        """Expect the id, send a start, and expect that the command has started."""
        assert (await self.next()).exec_id == "x1"
        wire = exec_pb2.ExecCommand(**{"argv": ["cat", "-"], "has_input": True, **command})
        await self.send(start=exec_pb2.ExecStart(framework_id="F", task_id="t", command=wire))


class Command:
    """A command without a process."""

    def __init__(self) -> None:
        self.printed: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue()
        self.reads, self.closed = asyncio.Event(), asyncio.Event()
        self.taken, self.windows = b"", list[exec_pb2.WindowSize]()
        self.input_ended = asyncio.Event()
        self.streams = self

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while (part := await self.printed.get()) is not None:
            yield part

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self.taken += data

    def end_input(self) -> None:
        self.input_ended.set()

    def resize(self, window: exec_pb2.WindowSize) -> None:
        self.windows.append(window)

    async def wait(self) -> exec_pb2.ExecEnd:
        return exec_pb2.ExecEnd(exit_code=4, message="done")

    async def close(self) -> None:
        self.closed.set()


class Scene:
    """A master that follows a script, and an agent with one command."""

    def __init__(self) -> None:
        self.command, self.started = Command(), list[tuple[Key, exec_pb2.ExecCommand]]()
        self.error: NotFound | None = None
        self.outcomes: list[str] = []
        self.calls = ExecCalls(self.start, ClientSecurity, self.outcomes.append)
        self.script_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self, key: Key, command: exec_pb2.ExecCommand) -> TaskExec:
        if self.error is not None:
            raise self.error
        self.started.append((key, command))
        return cast("TaskExec", self.command)

    @asynccontextmanager
    async def follows(self, script: Script) -> AsyncIterator[None]:
        """Let the master order a command and follow `script`."""
        scene = self

        class Master(AgentServiceServicer):
            async def Exec(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
                try:
                    await script(Conversation(requests, context))
                except BaseException as error:
                    if not scene.script_ended.done():
                        scene.script_ended.set_exception(AssertionError(repr(error)))
                    raise
                scene.script_ended.set_result(None)

        server = make_server()
        add_AgentServiceServicer_to_server(Master(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            self.calls.open("x1", Address("127.0.0.1", port))
            yield
        finally:
            await self.calls.close()
            await server.stop(0)

    async def cuts(self, stream: Conversation, **message: Any) -> None:
        """Send `message`, for which the agent ends the command and then its call."""
        # The end of the call may come first, and cancels what follows the script.
        with suppress(asyncio.CancelledError):
            await stream.send(**message)
            await self.command.closed.wait()

    async def ended(self) -> None:
        """Wait until the script and the agent's stream have ended."""
        async with asyncio.timeout(DEADLINE_S):
            await self.script_ended
            while len(self.calls):
                await asyncio.wait(self.calls._tasks)


async def test_a_command_with_input_and_output() -> None:
    scene = Scene()
    command = scene.command

    async def script(stream: Conversation) -> None:
        terminal = exec_pb2.WindowSize(rows=2, columns=3)
        await stream.start(terminal=terminal, terminal_type="vt100")
        assert (await stream.next()).HasField("started")
        await stream.send(window=exec_pb2.WindowSize(rows=5, columns=6))
        await stream.send(input=b"in")
        command.reads.set()
        assert (await stream.next()).input_taken == 2
        await stream.send(input_end=exec_pb2.ExecInputEnd())
        await command.input_ended.wait()
        command.printed.put_nowait((Stream.OUTPUT, b"out"))
        assert (await stream.next()).output == b"out"
        command.printed.put_nowait((Stream.ERRORS, b"err"))
        assert (await stream.next()).errors == b"err"
        command.printed.put_nowait(None)
        end = (await stream.next()).end
        assert (end.WhichOneof("end"), end.exit_code, end.message) == ("exit_code", 4, "done")
        # Its caller may read for long; the command is gone.
        await command.closed.wait()

    async with scene.follows(script):
        await scene.ended()
    ((key, ordered),) = scene.started
    assert (key, [*ordered.argv], ordered.has_input) == (("F", "t"), ["cat", "-"], True)
    terminal = exec_pb2.WindowSize(rows=2, columns=3)
    assert (ordered.terminal, ordered.terminal_type) == (terminal, "vt100")
    assert (command.taken, command.windows) == (b"in", [exec_pb2.WindowSize(rows=5, columns=6)])
    assert scene.outcomes == ["ended"]


async def test_a_refusal() -> None:
    scene = Scene()
    scene.error = NotFound("no task" + "x" * 1000)

    async def script(stream: Conversation) -> None:
        await stream.start()
        refused = (await stream.next()).refused
        assert refused.code == framework_pb2.ERROR_CODE_NOT_FOUND
        assert len(refused.message) < 500

    async with scene.follows(script):
        await scene.ended()
    assert scene.outcomes == ["refused"]


@pytest.mark.parametrize("first", [None, {}, {"input": b"x"}])
async def test_nothing_is_started_without_a_start(first: dict[str, Any] | None) -> None:
    scene = Scene()

    async def script(stream: Conversation) -> None:
        await stream.next()
        if first is not None:
            # The end of the call may come first, and cancels what follows the script.
            with suppress(asyncio.CancelledError):
                await stream.send(**first)

    async with scene.follows(script):
        await scene.ended()
    assert (scene.started, scene.outcomes) == ([], [])


async def test_a_master_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OPEN_S", 0.05)
    scene = Scene()
    is_over = asyncio.Event()

    async def script(stream: Conversation) -> None:
        await is_over.wait()

    async with scene.follows(script):
        await asyncio.wait(scene.calls._tasks, timeout=DEADLINE_S)
        assert not len(scene.calls)
        is_over.set()
    assert scene.started == []


@pytest.mark.parametrize(
    "wrong",
    [{}, {"start": exec_pb2.ExecStart()}, {"window": exec_pb2.WindowSize(rows=70_000, columns=1)}],
)
async def test_a_master_that_breaks_the_rules_ends_the_command(wrong: dict[str, Any]) -> None:
    scene = Scene()

    async def script(stream: Conversation) -> None:
        await stream.start()
        await stream.next()
        await scene.cuts(stream, **wrong)

    async with scene.follows(script):
        await scene.ended()
    assert scene.command.closed.is_set()
    assert scene.outcomes == ["cancelled"]


async def test_a_master_that_sends_more_input_than_fits() -> None:
    scene = Scene()

    async def script(stream: Conversation) -> None:
        await stream.start()
        await stream.next()
        await stream.send(input=b"x" * INPUT_WINDOW)
        assert not scene.command.closed.is_set()
        await scene.cuts(stream, input=b"x")

    async with scene.follows(script):
        await scene.ended()
    assert scene.command.closed.is_set()
    assert (scene.command.taken, scene.outcomes) == (b"", ["cancelled"])


async def test_the_end_of_the_stream_ends_a_command_that_never_reads() -> None:
    scene = Scene()

    async def script(stream: Conversation) -> None:
        await stream.start()
        await stream.next()
        await stream.send(input=b"x" * INPUT_WINDOW)

    async with scene.follows(script):
        await scene.ended()
        assert scene.command.closed.is_set()
    assert scene.outcomes == ["cancelled"]


async def test_the_end_of_the_agent_ends_its_commands() -> None:
    scene = Scene()
    has_begun = asyncio.Event()

    async def script(stream: Conversation) -> None:
        await stream.start()
        await stream.next()
        has_begun.set()
        with pytest.raises((StopAsyncIteration, asyncio.CancelledError)):
            await stream.next()

    async with scene.follows(script):
        await asyncio.wait_for(has_begun.wait(), DEADLINE_S)
        await scene.calls.close()
        assert scene.command.closed.is_set()
    assert scene.outcomes == ["cancelled"]


async def test_too_many_streams_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST", 0)
    scene = Scene()
    scene.calls.open("x1", Address("127.0.0.1", 1))
    assert (len(scene.calls), scene.outcomes) == (0, ["refused"])


async def test_an_agent_that_refuses_commands_opens_no_stream(tmp_path: Any) -> None:
    opened: list[str] = []
    for permission in ("refuse", "allow"):
        agent = AgentDaemon(AgentConfig(work_dir=tmp_path, exec=permission))
        agent._exec_calls = cast("ExecCalls", _Opened(opened))
        agent._on_exec(permission, Address("127.0.0.1", 1))
    assert opened == ["allow"]


class _Opened:
    def __init__(self, opened: list[str]) -> None:
        self._opened = opened

    def open(self, exec_id: str, _: Address) -> None:
        self._opened.append(exec_id)
