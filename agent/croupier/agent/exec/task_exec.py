"""A command that runs beside a task, under a shim of its own.

Rule: everything of it ends when its program ends, with `close`, with its task, and with the agent.
The shim sees to that: it is a subreaper, and the kernel notifies it of the agent's end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGUSR1
from typing import Final

from croupier.agent.directories import unlink_beneath
from croupier.agent.exec.streams import Stream, Streams
from croupier.agent.isolation.isolator import Launch
from croupier.agent.shim import run_file
from croupier.agent.shim.orphans import sweep
from croupier.agent.shim.shim_process import KILL_S, ShimProcess
from croupier.agent.shim.start import as_shell, describe, exit_code_of
from croupier.model.errors import Unavailable
from croupier.process.logging import get_logger
from croupier.v1.exec_pb2 import ExecEnd

_log = get_logger("croupier.agent")

# A shim that is stopped or starved does not report a start within this time.
START_S: Final = 10.0
_REPORT_BYTES: Final = 4096


class TaskExec:
    """A command beside a task; `close` it in any case. `ended`: all of its processes have ended."""

    def __init__(
        self,
        launch: Launch,
        path: Path,
        shim: ShimProcess,
        pipe: int,
        streams: Streams,
        closed: Callable[[TaskExec], None],
    ) -> None:
        """Watch a shim that was started; `closed` is called once nothing is left.

        `path` is that of its run file, and `pipe` the reading end of its reports.
        """
        self.key, self.run = launch.key, launch.run
        self._launch, self._shim, self.streams, self._closed = launch, shim, streams, closed
        self._path, self._pipe = path, pipe
        self._loop = asyncio.get_running_loop()
        self._start: asyncio.Future[run_file.StartError | None] = self._loop.create_future()
        self.ended: asyncio.Future[ExecEnd] = self._loop.create_future()
        self._why = ""
        self._kill: asyncio.TimerHandle | None = None
        self._told = b""
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._on_report)
        self._loop.add_reader(shim.pidfd, self._on_shim_ended)

    async def started(self) -> None:
        """Wait until the program runs, or has turned out not to be executable.

        Raises Unavailable if the machine cannot start it.
        """
        try:
            async with asyncio.timeout(START_S):
                error = await asyncio.shield(self._start)
        except TimeoutError:
            raise Unavailable(f"the command did not start within {START_S:g} s") from None
        if error is not None and error.step != "exec":
            raise Unavailable(describe("", error).replace("the task", "the command"))

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Yield output, 64 KiB at a time, until all processes have closed both streams."""
        while (found := await self.streams.read()) is not None:
            yield found
            # A consumer that never waits must not hold the loop.
            await asyncio.sleep(0)

    async def wait(self) -> ExecEnd:
        """Wait until the program and all that it has started have ended."""
        return await asyncio.shield(self.ended)

    async def close(self) -> None:
        """Kill what is left, wait for its end, 30 s at most, and close the streams."""
        self.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * KILL_S):
                await self.wait()
        self.streams.close()
        self._closed(self)

    def kill(self, why: str = "") -> None:
        """Begin to kill everything of the command; `why` becomes the message of its end."""
        if self.ended.done() or self._kill is not None:
            return
        self._why = why
        self._shim.send(SIGUSR1)
        self._kill = self._loop.call_later(KILL_S, self._kill_shim)

    def _kill_shim(self) -> None:
        _log.error("shim_does_not_end", run=self._shim.run, shim=self._shim.shim)
        self._shim.send(SIGKILL)

    def _on_report(self) -> None:
        """Read what the shim reports: whether the program has started."""
        with suppress(BlockingIOError):
            chunk = os.read(self._pipe, _REPORT_BYTES)
            if not chunk:
                self._loop.remove_reader(self._pipe)
            self._told += chunk
        line, newline, _ = self._told.partition(b"\n")
        if newline and not self._start.done():
            start = run_file.parse_start(line.partition(b" ")[2] + b"\n")
            self._start.set_result(start if isinstance(start, run_file.StartError) else None)

    def _on_shim_ended(self) -> None:
        # Its report comes first.
        self._on_report()
        self._loop.remove_reader(self._shim.pidfd)
        self._loop.remove_reader(self._pipe)
        os.close(self._shim.pidfd)
        os.close(self._pipe)
        if self._kill is not None:
            self._kill.cancel()
        with suppress(ChildProcessError):
            os.waitpid(self._shim.shim, 0)
        try:
            record = run_file.read_path(self._path)
        except OSError as error:
            _log.error("run_file_unreadable", run=self._path.name, error=str(error))
            record = run_file.RunRecord()
        if record.end is not None:
            end = ExecEnd(message=self._why)
            if record.end.signal is None:
                end.exit_code = record.end.exit_code or 0
            else:
                end.signal = record.end.signal
            self._finish(end)
        elif record.error is not None:
            launch = self._launch
            failed = as_shell(record.error, launch.program, launch.search_path)
            message = describe(launch.program, failed)
            self._finish(ExecEnd(exit_code=exit_code_of(failed) or 0, message=message))
        else:
            sessions = [] if record.task is None else [record.task.pid]
            swept = self._loop.run_in_executor(None, sweep, [str(self._path)], (), sessions)
            swept.add_done_callback(
                lambda _: self._finish(
                    ExecEnd(signal=SIGKILL, message=self._why or "its shim was killed")
                )
            )

    def _finish(self, end: ExecEnd) -> None:
        with suppress(OSError):
            # What is left is removed by the next agent.
            unlink_beneath(self._path)
        if not self._start.done():
            self._start.set_result(None)
        self.streams.end()
        self.ended.set_result(end)
