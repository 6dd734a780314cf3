"""The terminal of this command, given to a command beside a task.

Rule: what was set is restored at every exit, also one by SIGINT, SIGTERM, SIGHUP or SIGQUIT.
"""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from types import TracebackType
from typing import Final, Self

from croupier.model.errors import InvalidRequest
from croupier.v1 import exec_pb2

DEFAULT: Final = os.terminal_size((80, 24))


def window_size() -> exec_pb2.WindowSize:
    """Return the size of the terminal at standard input or output; 80 x 24 if there is none."""
    found = DEFAULT
    for fd in (0, 1):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        if size.lines and size.columns:
            found = size
            break
    return exec_pb2.WindowSize(rows=found.lines, columns=found.columns)


def terminal_type() -> str:
    """Return the kind of the terminal, for the variable TERM; empty if it is not known."""
    name = os.environ.get("TERM", "")
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", name) else ""


class RawTerminal:
    """Standard input, which passes every key on as it is while the context is open."""

    def __init__(self) -> None:
        """Change nothing yet.

        Raises:
            InvalidRequest: if standard input is not a terminal.
        """
        if not sys.stdin.isatty():
            raise InvalidRequest("-t with -i needs a terminal at standard input: leave out -t")
        self._fd = sys.stdin.fileno()
        self._saved = termios.tcgetattr(self._fd)

    def __enter__(self) -> Self:
        self.set()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        # Without waiting for what is written: its reader may be gone.
        termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)

    def set(self) -> None:
        """Pass keys on; again after the shell has set the terminal, as it does for `fg`."""
        tty.setraw(self._fd, termios.TCSANOW)
