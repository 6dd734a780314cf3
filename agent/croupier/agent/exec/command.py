"""What is run beside a task, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from croupier.model.errors import InvalidRequest

MOST_WORDS: Final = 4096
# Characters of all words together; each can take four bytes.
MOST_TEXT: Final = 128 * 1024
_MOST_SIDE: Final = 65535


class Stream(Enum):
    """What a command writes to."""

    OUTPUT = "stdout"
    ERRORS = "stderr"


@dataclass(frozen=True, slots=True)
class Window:
    """The size of a terminal in characters; 0 is unknown."""

    rows: int
    columns: int

    def check(self) -> None:
        """Check the size.

        Raises:
            InvalidRequest: if no terminal can have it.
        """
        if not (0 <= self.rows <= _MOST_SIDE and 0 <= self.columns <= _MOST_SIDE):
            raise InvalidRequest(f"no terminal has {self.rows} rows and {self.columns} columns")


@dataclass(frozen=True, slots=True)
class ExecCommand:
    """A program with its arguments, to run beside a task.

    Attributes:
        has_input: whether it gets input from the caller; else its input is empty.
        window: the size of its terminal; None: it has none.
        terminal_type: the variable TERM of a command with a terminal; empty: the task's own.
    """

    argv: tuple[str, ...]
    has_input: bool = False
    window: Window | None = None
    terminal_type: str = ""

    def check(self) -> None:
        """Check the command.

        Raises:
            InvalidRequest: if no agent can run it.
        """
        if not self.argv or not self.argv[0]:
            raise InvalidRequest("the command's program is empty")
        if len(self.argv) > MOST_WORDS:
            raise InvalidRequest(f"the command has more than {MOST_WORDS} words")
        if sum(map(len, self.argv)) > MOST_TEXT:
            raise InvalidRequest(f"the command has more than {MOST_TEXT} characters")
        if any("\0" in word for word in (*self.argv, self.terminal_type)):
            raise InvalidRequest("a word of the command holds a NUL character")
        if self.window is not None:
            self.window.check()


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """The end of a command: an exit code or a signal.

    Attributes:
        exit_code: 127 if the program was not found, 126 if it cannot be executed.
        message: why it did not run, or what ended it; empty if it ended by itself.
    """

    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
