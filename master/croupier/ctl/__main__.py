"""The `croupier` command: parses the command line and returns the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from croupier.cli.flags import CONNECTION_FLAGS
from croupier.ctl.app import app, load_commands, load_summaries
from croupier.process.cli import run_app

INTERRUPTED = 130
BROKEN_PIPE = 141
HELP = frozenset({"--help", "-h", "--version"})


def connection_after_command(argv: Sequence[str]) -> list[str]:
    """Return `argv` with `--master M` and credentials before the command moved behind it."""
    flags, rest = _leading_flags(argv)
    count, node = 0, app
    while count < len(rest) and not rest[count].startswith("-") and rest[count] in node:
        count, node = count + 1, node[rest[count]]
    count = max(count, 1)
    return [*rest[:count], *flags, *rest[count:]] if rest else list(argv)


def _leading_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags of the connection that `argv` begins with, and the rest."""
    flags: list[str] = []
    rest = list(argv)
    while rest and rest[0].partition("=")[0] in CONNECTION_FLAGS:
        width = 1 if "=" in rest[0] else 2
        flags, rest = flags + rest[:width], rest[width:]
    return flags, rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of `argv`, or of the process; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    _, rest = _leading_flags(words)
    if not words or (rest and HELP.issuperset(rest)):
        load_summaries()
    else:
        load_commands(next(iter(rest), ""))
    try:
        code = run_app(app, connection_after_command(words))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it. Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


if __name__ == "__main__":
    sys.exit(main())
