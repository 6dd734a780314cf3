"""The commands of Croupier in a text of the documentation, read by the real command lines.

Rule: nothing runs. A command is wrong if its program would refuse the words at once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from cyclopts import App
from cyclopts.exceptions import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from croupier.agent.__main__ import command_line as agent_command_line
from croupier.ctl.__main__ import connection_after_command
from croupier.ctl.app import app as croupier_app
from croupier.ctl.app import load_commands
from croupier.master.__main__ import command_line as master_command_line
from croupier.model.errors import CroupierError

# A page writes "..." for what it leaves out, and a command may then lack what is required.
LEFT_OUT: Final = "..."
NO_FILE: Final = "No such file or directory"
_OPERATORS: Final = ";&|()<>"
_HERE_DOCUMENT: Final = re.compile(r"<<(\w+)\n.*?^\1$", re.DOTALL | re.MULTILINE)
# Words before a command, and variables that are set for it.
_PREFIX: Final = re.compile(r"(?:do|then|else|until|while|if|!|\{|exec|sudo|[A-Z_0-9]+=.*)")


def commands(script: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script that call Croupier, without redirections."""
    text = _HERE_DOCUMENT.sub("", script).replace("\\\n", " ")
    for line in text.splitlines():
        for words in _simple(line):
            while words and _PREFIX.fullmatch(words[0]):
                words.pop(0)
            if words[:2] == ["docker", "compose"]:
                words = words[next((at for at, word in enumerate(words) if word in PROGRAMS), 0) :]
            if words and words[0] in PROGRAMS:
                yield words


def mistake(words: Sequence[str], *, is_part: bool = False) -> str:
    """Return why the program refuses the words; empty if it accepts them.

    Args:
        words: the program and its arguments.
        is_part: whether arguments may be missing or stand for values, as in a sentence that names
            a command: then only unknown commands and flags are mistakes.
    """
    program, prepare = PROGRAMS[words[0]]
    arguments = [word for word in words[1:] if word != LEFT_OUT]
    is_part = is_part or len(arguments) < len(words) - 1
    try:
        program().parse_args(prepare(arguments), print_error=False, exit_on_error=False)
    except (UnknownCommandError, UnknownOptionError, UnusedCliTokensError) as error:
        return str(error)
    except MissingArgumentError as error:
        return "" if is_part else str(error)
    except (CycloptsError, CroupierError) as error:
        # Files that a command reads are those of the reader.
        return "" if is_part or NO_FILE in str(error) else str(error)
    return ""


def _simple(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words, is_file = list[str](), False
    for word in lexer:
        is_operator = set(word) <= set(_OPERATORS)
        if is_file:
            is_file = False
        elif is_operator and set(word) & set("<>"):
            is_file = True
        elif is_operator:
            yield words
            words = []
        else:
            words.append(word)
    yield words


@cache
def _croupier() -> App:
    load_commands()
    return croupier_app


_agent: Callable[[], App] = cache(agent_command_line)
_master: Callable[[], App] = cache(master_command_line)
PROGRAMS: Final[dict[str, tuple[Callable[[], App], Callable[[list[str]], Any]]]] = {
    "croupier": (_croupier, connection_after_command),
    "croupier-agent": (_agent, list),
    "croupier-master": (_master, list),
}
