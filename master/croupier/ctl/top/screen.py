"""The terminal of `croupier top`: a screen of its own, keys without Enter, a new size.

Rule: the terminal is as before when the screen is closed, also after an error.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from typing import Any

from croupier.cli.table import takes_colour
from croupier.ctl.top.frame import Terminal

_OPEN = "\x1b[?1049h\x1b[?25l"
_CLOSE = "\x1b[?25h\x1b[?1049l"


class Screen:
    """The terminal while a program draws on it. For the main thread and its loop."""

    def __init__(self, on_keys: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_keys = on_keys
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._before: list[Any] | None = None
        self._loop.add_signal_handler(signal.SIGWINCH, on_resize)
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            self._loop.add_reader(sys.stdin, self._read)
        _write(_OPEN)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace what is shown."""
        body = "\r\n".join(f"{line}\x1b[K" for line in lines)
        _write(f"\x1b[H{body}\x1b[J")

    def close(self) -> None:
        """Return the terminal to its user."""
        self._loop.remove_signal_handler(signal.SIGWINCH)
        if self._before is not None:
            self._loop.remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        _write(_CLOSE)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 1024)
        if not data:
            # The terminal is gone.
            self._loop.remove_reader(sys.stdin)
            self._on_keys("q")
            return
        self._on_keys(self._decoder.decode(data))


def terminal_now(*, is_live: bool) -> Terminal:
    """Return the size and abilities of the terminal, as of now."""
    size = shutil.get_terminal_size()
    is_terminal = sys.stdout.isatty()
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return Terminal(
        size.columns,
        size.lines if is_live else None,
        has_colours=is_terminal and takes_colour(),
        is_ascii=not encoding.startswith("utf"),
    )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
