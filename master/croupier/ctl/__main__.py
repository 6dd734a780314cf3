"""The `croupier` command: parses the command line and returns the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from croupier.ctl.app import app, families, load_commands
from croupier.process.cli import run_app

INTERRUPTED = 130
BROKEN_PIPE = 141


def master_after_command(argv: Sequence[str]) -> list[str]:
    """Return `argv` with a `--master M` before the command moved behind it."""
    words = list(argv)
    if words[:1] == ["--master"]:
        flag, rest = words[:2], words[2:]
    elif words and words[0].startswith("--master="):
        flag, rest = words[:1], words[1:]
    else:
        return words
    has_two_words = len(rest) > 1 and rest[0] in families and not rest[1].startswith("-")
    command = 2 if has_two_words else 1
    return [*rest[:command], *flag, *rest[command:]] if rest else words


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of `argv`, or of the process; return the exit code."""
    try:
        code = run_app(app, master_after_command(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it. Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


load_commands()

if __name__ == "__main__":
    sys.exit(main())
