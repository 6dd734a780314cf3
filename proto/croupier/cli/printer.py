"""Writing the output of tasks to stdout and stderr, without blocking the loop.

Rule: one thread writes, in order, and each writer waits for it. So a slow reader of our output
slows down the reading from agents, and nothing piles up.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final, Literal

from croupier.process.writer_thread import WriterThread

# Longer lines are printed in pieces.
MAX_LINE: Final = 64 * 1024
_COLOURS: Final = (36, 33, 32, 35, 34, 31)


def prefix_of(index: int, *, coloured: bool) -> bytes:
    """Return the prefix of each line of the copy with that index."""
    text = f"[{index}] "
    return (f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{text}\x1b[0m" if coloured else text).encode()


class LinePrefixer:
    """Adds a prefix to each line of a stream of bytes, whole lines at a time."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix, self._rest = prefix, b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that `chunk` completes, with their prefixes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE:
            lines.append(self._rest)
            self._rest = b""
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def finish(self) -> bytes:
        """Return the last line, if the stream ended within one."""
        rest, self._rest = self._rest, b""
        return self._prefix + rest + b"\n" if rest else b""


Stream = Literal["stdout", "stderr"]


class OutputClosed(Exception):
    """The reader of our output has closed it."""


class Printer:
    """Our stdout and stderr, shared by all copies."""

    def __init__(self, out: BinaryIO, err: BinaryIO, *, prefixed: bool) -> None:
        """Write to `out` and `err`; with `prefixed` each line has the prefix of its copy."""
        self._files = {"stdout": out, "stderr": err}
        self._prefixed = prefixed
        # A daemon thread, so that a reader that never reads cannot keep the process alive.
        self._thread = WriterThread("printer")

    def sink(self, index: int, stream: Stream) -> Sink:
        """Return the sink of one stream of one copy."""
        file = self._files[stream]
        coloured = file.isatty() and "NO_COLOR" not in os.environ
        prefix = prefix_of(index, coloured=coloured)
        return Sink(self, file, LinePrefixer(prefix) if self._prefixed else None)

    async def write(self, file: BinaryIO, data: bytes) -> None:
        """Write all of `data`; raises OutputClosed if the reader has closed it."""

        def write() -> None:
            file.write(data)
            file.flush()

        try:
            await self._thread.run(write)
        except (OSError, ValueError) as error:
            raise OutputClosed(str(error)) from None


class Sink:
    """The destination of one stream of one copy."""

    def __init__(self, printer: Printer, file: BinaryIO, prefixer: LinePrefixer | None) -> None:
        self._printer, self._file, self._prefixer = printer, file, prefixer

    async def write(self, chunk: bytes) -> None:
        """Print what was read; raises OutputClosed if the reader has closed it."""
        data = self._prefixer.feed(chunk) if self._prefixer else chunk
        if data:
            await self._printer.write(self._file, data)

    async def finish(self) -> None:
        """Print the last, incomplete line at the end of the stream; raises as `write`."""
        data = self._prefixer.finish() if self._prefixer else b""
        if data:
            await self._printer.write(self._file, data)
