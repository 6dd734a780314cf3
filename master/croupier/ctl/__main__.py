"""The `croupier` command: parses the command line and returns the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from croupier.ctl.app import app, families, load_commands
from croupier.ctl.flags import CONNECTION_FLAGS
from croupier.process.cli import run_app

INTERRUPTED = 130
BROKEN_PIPE = 141


def connection_after_command(argv: Sequence[str]) -> list[str]:
    """Return `argv` with `--master M` and credentials before the command moved behind it."""
    flags: list[str] = []
    rest = list(argv)
    while rest and rest[0].partition("=")[0] in CONNECTION_FLAGS:
        width = 1 if "=" in rest[0] else 2
        flags, rest = flags + rest[:width], rest[width:]
    command = 1
    while " ".join(rest[:command]) in families and _is_word(rest[command:]):
        command += 1
    return [*rest[:command], *flags, *rest[command:]] if rest else list(argv)


def _is_word(rest: Sequence[str]) -> bool:
    """Return whether the first of `rest` is the name of a command, and no flag."""
    return bool(rest) and not rest[0].startswith("-")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of `argv`, or of the process; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    load_commands(next(iter(words), ""))
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
