"""Prefixes that distinguish the lines of several copies. Pure."""

from __future__ import annotations

from typing import Final

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
