"""A command beside a task, and its input and output: pipes, or a terminal.

Rule: nothing is buffered here. Output is read when the caller asks for more, and input is written
as the program reads it. The descriptors of the agent never block; those of the program do.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from typing import Final

from croupier.agent.shim.start import move_up
from croupier.agent.unix_user import UnixUser
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.v1.exec_pb2 import ExecCommand, WindowSize

MOST_WORDS: Final = 4096
# Characters of all words together; each can take four bytes.
MOST_TEXT: Final = 128 * 1024
_MOST_SIDE: Final = 65535
CHUNK: Final = 64 * 1024
# Bytes of output that are read after the end of all processes: more than a pipe or terminal holds,
# unless the machine allows larger pipes.
MOST_LEFT: Final = 2 * 1024 * 1024
# Errors of a terminal or pipe whose other end is closed.
_CLOSED: Final = (errno.EIO, errno.EPIPE)
# The character that ends the input of a terminal, usually typed as Ctrl-D.
_END_OF_INPUT: Final = b"\x04"


class Stream(Enum):
    """An output stream of a command."""

    OUTPUT = "stdout"
    ERRORS = "stderr"


def check_command(command: ExecCommand) -> None:
    """Check a command; raises InvalidRequest if no agent can run it."""
    if not command.argv or not command.argv[0]:
        raise InvalidRequest("the command's program is empty")
    if len(command.argv) > MOST_WORDS:
        raise InvalidRequest(f"the command has more than {MOST_WORDS} words")
    if sum(map(len, command.argv)) > MOST_TEXT:
        raise InvalidRequest(f"the command has more than {MOST_TEXT} characters")
    if any("\0" in word for word in (*command.argv, command.terminal_type)):
        raise InvalidRequest("a word of the command holds a NUL character")


def check_window(window: WindowSize) -> None:
    """Check the size of a terminal, 0 if it is unknown.

    Raises ProtocolViolation if no terminal can have it.
    """
    if window.rows > _MOST_SIDE or window.columns > _MOST_SIDE:
        raise ProtocolViolation(f"no terminal has {window.rows} rows and {window.columns} columns")


class Streams:
    """The streams of one command; its program gets `given`, until `release`."""

    def __init__(self, command: ExecCommand, null: int, owner: UnixUser | None) -> None:
        """Open what the command needs; `owner` may open its streams again by their names.

        Raises OSError if descriptors are short.
        """
        self._loop = asyncio.get_running_loop()
        self._outputs: dict[int, Stream] = {}
        self._input = self._master = -1
        self._opened: list[int] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_over = False
        self._left = MOST_LEFT
        self.given = (null, null, null)
        try:
            if command.HasField("terminal"):
                self._open_terminal(command.terminal, has_input=command.has_input)
            else:
                self._open_pipes(null, has_input=command.has_input)
            if owner is not None:
                for fd in self._opened:
                    os.fchown(fd, owner.uid, owner.gid)
                    # Members of its group may write to a terminal otherwise.
                    os.fchmod(fd, 0o600)
        except BaseException:
            self.release()
            self.close()
            raise

    @property
    def has_terminal(self) -> bool:
        """Whether the program has a terminal."""
        return self._master >= 0

    def release(self) -> None:
        """Close the descriptors of the program, which has its own by now."""
        for fd in self._opened:
            os.close(fd)
        self._opened.clear()

    async def read(self) -> tuple[Stream, bytes] | None:
        """Return the next output, 64 KiB at most; None once all of it was read."""
        while self._outputs:
            for fd, stream in list(self._outputs.items()):
                data = self._read(fd)
                if data:
                    # The other stream is looked at first then.
                    del self._outputs[fd]
                    self._outputs[fd] = stream
                    self._count_left(len(data))
                    return stream, data
                if data is not None:
                    self._close_output(fd)
            if self._outputs and not self._is_over:
                await self._ready(self._outputs, self._loop.add_reader, self._loop.remove_reader)
            elif self._is_over:
                # All processes have ended. One that could not be killed may hold the others.
                for fd in list(self._outputs):
                    self._close_output(fd)
        return None

    async def write(self, data: bytes) -> None:
        """Write input as the program reads it; drop it once the program has closed its input."""
        left = memoryview(data)
        while left and self._input >= 0:
            try:
                left = left[os.write(self._input, left[:CHUNK]) :]
            except BlockingIOError:
                await self._ready([self._input], self._loop.add_writer, self._loop.remove_writer)
            except OSError as error:
                if error.errno not in _CLOSED:
                    raise
                self._close_input()

    def end_input(self) -> None:
        """Close the input of the program; to a terminal, send what ends input there."""
        if self._input < 0:
            return
        if self.has_terminal:
            with suppress(OSError):
                os.write(self._input, _END_OF_INPUT)
        self._close_input()

    def resize(self, window: WindowSize) -> None:
        """Set the size of the terminal, if there is one; the kernel tells the program."""
        if self.has_terminal:
            _set_size(self._master, window)

    def end(self) -> None:
        """Note that no process is left to write; what is written already can still be read."""
        self._is_over = True
        self._close_input()

    def close(self) -> None:
        """Close everything; a terminal hangs up."""
        self._is_over = True
        self._close_input()
        for fd in list(self._outputs):
            self._close_output(fd)
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _open_pipes(self, null: int, *, has_input: bool) -> None:
        stdin = null
        if has_input:
            stdin, self._input = _pipe(self._opened, is_input=True)
        stdout, reading = _pipe(self._opened)
        self._outputs[reading] = Stream.OUTPUT
        stderr, reading = _pipe(self._opened)
        self._outputs[reading] = Stream.ERRORS
        self.given = (stdin, stdout, stderr)

    def _open_terminal(self, window: WindowSize, *, has_input: bool) -> None:
        # It stays open until all has ended: a program that closes its streams and goes on would be
        # hung up, and most programs do so before they exit.
        self._master, slave = os.openpty()
        self._opened.append(move_up(slave))
        os.set_blocking(self._master, False)
        self._outputs[_copy(self._master)] = Stream.OUTPUT
        if has_input:
            self._input = _copy(self._master)
        else:
            # As an empty input: a shell would wait for keys that cannot come.
            os.write(self._master, _END_OF_INPUT)
        _set_size(self._master, window)
        self.given = (self._opened[0],) * 3

    def _count_left(self, size: int) -> None:
        """Count output that was read; the task may have taken an end of it, and write forever."""
        if not self._is_over:
            return
        self._left -= size
        if self._left <= 0:
            for fd in list(self._outputs):
                self._close_output(fd)

    def _read(self, fd: int) -> bytes | None:
        """Return the bytes that have arrived; empty at the end, None if there are none yet."""
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            return b""

    async def _ready(
        self, fds: Collection[int], add: Callable[..., None], remove: Callable[[int], object]
    ) -> None:
        """Wait until one of the descriptors can be used, or the streams are over."""
        ready = self._loop.create_future()
        watched = list(fds)
        for fd in watched:
            add(fd, _set, ready)
        self._waiting.add(ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            for fd in watched:
                # Not one that was closed meanwhile: another file may have its number.
                if fd in self._outputs or fd == self._input:
                    remove(fd)

    def _close_input(self) -> None:
        if self._input >= 0:
            self._loop.remove_writer(self._input)
            os.close(self._input)
            self._input = -1
        for ready in self._waiting:
            _set(ready)

    def _close_output(self, fd: int) -> None:
        del self._outputs[fd]
        self._loop.remove_reader(fd)
        os.close(fd)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _pipe(opened: list[int], *, is_input: bool = False) -> tuple[int, int]:
    """Open a pipe; return the end of the program, which is added to `opened`, and the other."""
    reading, writing = os.pipe()
    its, own = (reading, writing) if is_input else (writing, reading)
    try:
        its = move_up(its)
    except BaseException:
        os.close(own)
        raise
    opened.append(its)
    os.set_blocking(own, False)
    return its, own


def _copy(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)


def _set_size(fd: int, window: WindowSize) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", window.rows, window.columns, 0, 0))
