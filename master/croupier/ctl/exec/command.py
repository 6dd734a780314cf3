"""`croupier exec`: passes input, output and the end of a command on.

Rule: output is written as bytes, unmodified. Once the command has started, an error that ends it
has an exit code of its own, so that scripts can tell it from an operation that was refused.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

from croupier.cli.connection import Master, connected
from croupier.cli.flags import Target
from croupier.cli.printer import OutputClosed, Printer
from croupier.cli.signals import EndSignals
from croupier.cli.terminal import print_lines
from croupier.ctl.exec.standard_input import parts_of
from croupier.ctl.exec.terminal import RawTerminal, terminal_type, window_size
from croupier.ctl.task_reader import TaskName, advising, resolve
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.net.task_scope import end, reraise_own_cancellation
from croupier.v1 import exec_pb2
from croupier.v1 import operator_pb2 as pb

# The command was ended because the agent, the master or the permission was lost.
LOST: Final = 125


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command: the exit code of this one, and what to tell the user."""

    code: int
    message: str = ""


def exec_in_task(
    target: Target, task: TaskName, words: Sequence[str], *, has_input: bool, has_terminal: bool
) -> int:
    """Run a command beside a task; return its exit code.

    Raises:
        CroupierError: if it was not started.
        BrokenPipeError: if the reader has closed our output.
    """
    task = resolve(target, task)
    command = exec_pb2.ExecCommand(argv=_argv(words), has_input=has_input)
    if has_terminal:
        command.terminal.CopyFrom(window_size())
        command.terminal_type = terminal_type()
    raw = RawTerminal() if has_input and has_terminal else None
    try:
        ended = asyncio.run(_Exec(target, task, command, raw).run())
    except OutputClosed:
        raise BrokenPipeError from None
    if ended.message:
        print_lines(f"croupier: {ended.message}", file=sys.stderr)
    return ended.code


def _argv(words: Sequence[str]) -> Sequence[str]:
    if not words:
        raise InvalidRequest("name the command to run: croupier exec TASK -- CMD...")
    try:
        "\0".join(words).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the words of the command must be UTF-8") from None
    return words


class _Exec:
    """One command."""

    def __init__(
        self,
        target: Target,
        task: TaskName,
        command: exec_pb2.ExecCommand,
        raw: RawTerminal | None,
    ) -> None:
        self._target, self._task, self._command, self._raw = target, task, command, raw
        self._turn = asyncio.Lock()
        self._has_started = False

    async def run(self) -> CommandEnd:
        """Run the command until it ends, or a signal comes."""
        # SIGQUIT would leave the terminal as the command needs it.
        signals = EndSignals(signal.SIGQUIT)
        working = asyncio.create_task(self._serve())
        signalled = asyncio.create_task(signals.first())
        try:
            await asyncio.wait({working, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if signalled.done() and not working.done():
                return CommandEnd(128 + signalled.result())
            return working.result()
        finally:
            await end(working, signalled)
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
        finally:
            printer.close()

    async def _converse(self, master: Master, printer: Printer) -> CommandEnd:
        call: Any = master.service.ExecTask()
        start = exec_pb2.ExecStart(
            framework_id=self._task.framework_id,
            task_id=self._task.task_id,
            command=self._command,
        )
        await self._send(call, start=start)
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

    async def _send(self, call: Any, **fields: Any) -> None:
        """Send a request; if the call has ended, its answers say why."""
        async with self._turn:
            try:
                await call.write(pb.ExecTaskRequest(**fields))
            except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
                reraise_own_cancellation()

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
