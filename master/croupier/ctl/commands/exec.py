"""`croupier exec`: passes input, output and the end of a command on.

Rules: output is written as bytes, unmodified. Once the command has started, an error that ends it
has an exit code of its own, so that scripts can tell it from an operation that was refused. The
terminal is restored at every exit, also one by SIGINT, SIGTERM, SIGHUP or SIGQUIT.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty as terminals
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import grpc
import grpc.aio
from cyclopts import Parameter

from croupier.cli.connection import Master, connected
from croupier.cli.flags import LOCAL, MasterFlag, Target, TaskFrameworkFlag
from croupier.cli.printer import OutputClosed, Printer
from croupier.cli.signals import EndSignals
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.task_output import TaskArgument, TaskName, advising, resolve
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.net.task_scope import end, racing, reraise_own_cancellation
from croupier.v1 import exec_pb2
from croupier.v1 import operator_pb2 as pb

# The command was ended because the agent, the master or the permission was lost.
LOST: Final = 125
CHUNK: Final = 64 * 1024


@app.command(name="exec")
def exec_(
    task_id: TaskArgument,
    /,
    *command: str,
    stdin: Annotated[bool, Parameter(name=("--stdin", "-i"), negative="")] = False,
    tty: Annotated[bool, Parameter(name=("--tty", "-t"), negative="")] = False,
    framework: TaskFrameworkFlag = "",
    master: MasterFlag = LOCAL,
) -> int:
    """Run a command beside a task: croupier exec [-it] TASK -- CMD...

    The command runs in the task's sandbox directory, with the task's environment, user, limits and
    isolation: it can do what the task can. It is ended when the task, this command or the agent
    ends, and when another master leads. Ctrl-C ends it; with -it Ctrl-C is passed to the command.

    Exit codes: the command's own, or 128 + N if signal N ended it; 127 if the agent does not find
    the program; 126 if it cannot run it; 125 if the connection, the agent or the permission was
    lost while it ran; 1 if it was not started.

    Args:
        command: The command and its arguments, after --.
        stdin: Pass standard input to the command; without it, its input is empty.
        tty: Give the command a terminal of the size of this one. With -i, each key is passed to it
            at once. Its standard error is part of its output.
    """
    task = resolve(master, TaskName(task_id, framework))
    started = exec_pb2.ExecCommand(argv=_argv(command), has_input=stdin)
    if tty:
        started.terminal.CopyFrom(window_size())
        started.terminal_type = terminal_type()
    raw = RawTerminal() if stdin and tty else None
    try:
        ended = asyncio.run(_Exec(master, task, started, raw).run())
    except OutputClosed:
        raise BrokenPipeError from None
    if ended.message:
        print_lines(f"croupier: {ended.message}", file=sys.stderr)
    return ended.code


# For the status of a call that a master refuses at once. It waits longer for a first message.
REFUSAL_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command: the exit code of this one, and what to tell the user."""

    code: int
    message: str = ""


def _argv(words: Sequence[str]) -> Sequence[str]:
    if not words:
        raise InvalidRequest("name the command to run: croupier exec TASK -- CMD...")
    try:
        "\0".join(words).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the words of the command must be UTF-8") from None
    return words


class _Exec:
    """One run of `croupier exec`."""

    def __init__(
        self, target: Target, task: TaskName, command: exec_pb2.ExecCommand, raw: RawTerminal | None
    ) -> None:
        self._target, self._task, self._command, self._raw = target, task, command, raw
        self._turn = asyncio.Lock()
        self._has_started = False

    async def run(self) -> CommandEnd:
        """Run the command until it ends, or a signal comes."""
        # SIGQUIT would leave the terminal as the command needs it.
        signals = EndSignals(signal.SIGQUIT)
        try:
            async with racing(self._serve(), signals.first()) as (working, signalled):
                if signalled.done() and not working.done():
                    return CommandEnd(128 + signalled.result())
                ended: CommandEnd = working.result()
                return ended
        finally:
            signals.close()

    async def _serve(self) -> CommandEnd:
        printer = Printer(sys.stdout.buffer, sys.stderr.buffer, prefixed=False)
        try:
            async with connected(self._target) as master, advising(self._task, master):
                return await self._converse(master, printer)
        except CroupierError as error:
            if not self._has_started:
                raise
            return CommandEnd(LOST, f"the command was ended: {error}")

    async def _converse(self, master: Master, printer: Printer) -> CommandEnd:
        call: Any = master.service.ExecTask()
        start = exec_pb2.ExecStart(
            framework_id=self._task.framework_id, task_id=self._task.task_id, command=self._command
        )
        if not await self._send(call, start=start):
            await self._raise_refusal(master)
        helpers: list[asyncio.Task[None]] = []
        with self._raw or nullcontext(), self._windows(call):
            try:
                async with aclosing(master.answers(call)) as answers:
                    async for answer in answers:
                        match answer.WhichOneof("response"):
                            case "started":
                                self._has_started = True
                                if self._command.has_input:
                                    helpers.append(asyncio.create_task(self._pass_input(call)))
                            case "output":
                                await printer.write(sys.stdout.buffer, answer.output)
                            case "errors":
                                await printer.write(sys.stderr.buffer, answer.errors)
                            case "end":
                                return _ended(answer.end)
            finally:
                await end(*helpers)
                call.cancel()
        return CommandEnd(LOST, "the command was ended: the master has ended the connection")

    async def _pass_input(self, call: Any) -> None:
        async with aclosing(parts_of(sys.stdin.fileno())) as parts:
            async for data in parts:
                await self._send(call, input=data)
        await self._send(call, input_end=exec_pb2.ExecInputEnd())

    async def _send(self, call: Any, **fields: Any) -> bool:
        """Send a request; if the call has ended, its answers say why: return whether they do.

        They do not if the call ended while gRPC was writing: it then drops the master's status.
        """
        async with self._turn:
            try:
                await call.write(pb.ExecTaskRequest(**fields))
            except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
                reraise_own_cancellation()
                if isinstance(error, grpc.aio.AioRpcError):
                    return error.code() is not grpc.StatusCode.INTERNAL
        return True

    async def _raise_refusal(self, master: Master) -> None:
        """Raise the error with which the master refuses any command of this caller, if it does.

        Nothing is sent: the command might have been started before the connection broke.
        """
        call: Any = master.service.ExecTask()
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_S), aclosing(master.answers(call)) as answers:
                async for _ in answers:
                    pass

    @contextmanager
    def _windows(self, call: Any) -> Iterator[None]:
        """Send the size of the terminal whenever it changes."""
        if not self._command.HasField("terminal"):
            yield
            return
        loop, sending = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        def on_change() -> None:
            # One is enough: it sends the size of its time.
            if not sending:
                task = asyncio.create_task(self._send_window(call))
                sending.add(task)
                task.add_done_callback(sending.discard)

        def on_continued() -> None:
            if self._raw is not None:
                self._raw.set()
            on_change()

        loop.add_signal_handler(signal.SIGWINCH, on_change)
        loop.add_signal_handler(signal.SIGCONT, on_continued)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGCONT)
            for task in sending:
                task.cancel()

    async def _send_window(self, call: Any) -> None:
        await self._send(call, window=window_size())


def _ended(ended: exec_pb2.ExecEnd) -> CommandEnd:
    if ended.WhichOneof("end") == "signal":
        return CommandEnd(128 + ended.signal, ended.message)
    return CommandEnd(ended.exit_code, ended.message)


def window_size() -> exec_pb2.WindowSize:
    """Return the size of the terminal at standard input or output; 80 x 24 if there is none."""
    for fd in (0, 1):
        with suppress(OSError):
            size = os.get_terminal_size(fd)
            if size.lines and size.columns:
                return exec_pb2.WindowSize(rows=size.lines, columns=size.columns)
    return exec_pb2.WindowSize(rows=24, columns=80)


def terminal_type() -> str:
    """Return the kind of the terminal, for the variable TERM; empty if it is not known."""
    name = os.environ.get("TERM", "")
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", name) else ""


class RawTerminal:
    """Standard input, which passes every key on as it is while the context is open."""

    def __init__(self) -> None:
        """Remember the terminal's mode; raises InvalidRequest if stdin is not a terminal."""
        if not sys.stdin.isatty():
            raise InvalidRequest("-t with -i needs a terminal at standard input: leave out -t")
        self._fd = sys.stdin.fileno()
        self._saved = termios.tcgetattr(self._fd)

    def __enter__(self) -> Self:
        self.set()
        return self

    def __exit__(self, *_: object) -> None:
        # Without waiting for what is written: its reader may be gone.
        termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)

    def set(self) -> None:
        """Put the terminal into raw mode; again after the shell has reset it, as for `fg`."""
        terminals.setraw(self._fd, termios.TCSANOW)


async def parts_of(fd: int) -> AsyncGenerator[bytes, None]:
    """Yield what comes from a file, a pipe or a terminal, until it ends or cannot be read."""
    try:
        while data := await _read(fd):
            yield data
    except OSError:
        # It is closed, or the terminal is gone: that is the end of the input.
        return


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        try:
            loop.add_reader(fd, _set, ready)
        except PermissionError:
            # A regular file cannot be waited for, and need not be.
            return await asyncio.to_thread(os.read, fd, CHUNK)
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            continue


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
