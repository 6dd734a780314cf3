"""The standard error of a daemon, which never blocks and never fails; other descriptors too.

Rule: everything that the process writes to `sys.stderr` passes one `LineWriter`: log lines,
tracebacks, warnings and the last line of a failed start.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, TextIO, cast

from croupier.process.queue_writer import RETRY_S, LineWriter

_FD: Final = 2
_CLOSE_S: Final = 1.0


class StandardError(io.TextIOBase):
    """A text stream whose lines go to a `LineWriter`."""

    def __init__(self, lines: LineWriter, prefix: str = "") -> None:
        """Write `prefix` before each line."""
        self._lines, self._prefix = lines, prefix
        self._is_inside_line = False

    def write(self, text: str) -> int:
        """Queue `text`."""
        for part in text.splitlines(keepends=True):
            begin = "" if self._is_inside_line else self._prefix
            self._is_inside_line = not part.endswith("\n")
            self._lines.put((begin + part).encode(errors="backslashreplace"))
        return len(text)

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(_FD)


def replace_standard_error(on_recovered: Callable[[int], None], prefix: str = "") -> LineWriter:
    """Replace `sys.stderr` by a `StandardError` over the lines that are returned."""
    lines = lines_to(_FD, on_recovered)
    sys.stderr = cast("TextIO", StandardError(lines, prefix))
    return lines


def lines_to(fd: int, on_recovered: Callable[[int], None]) -> LineWriter:
    """Return a writer of lines to `fd`; what waits at the process's exit is written within 1 s.

    `on_recovered` is called with the number of lost lines once lines can be written again.
    """
    lines = LineWriter(f"lines-{fd}", partial(_write, fd), on_recovered=on_recovered)
    atexit.register(lines.close, _CLOSE_S)
    return lines


def hold_standard_descriptors() -> None:
    """Open /dev/null for each closed standard descriptor: a store must not get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _FD:
        os.set_inheritable(fd, True)
    os.close(fd)


def _write(fd: int, data: bytes) -> None:
    """Write all of `data`.

    Raises:
        OSError: if that fails, or a descriptor that does not block takes nothing for a second.
    """
    rest, is_again = memoryview(data), False
    while rest:
        try:
            rest, is_again = rest[os.write(fd, rest) :], False
        except BlockingIOError:
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            if is_again or not ready.poll(RETRY_S * 1000):
                raise
            is_again = True
