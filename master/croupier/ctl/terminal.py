"""Lines for people: the one place where commands print what peers have written.

Rule: no control character of an agent or a framework reaches a terminal. The output of tasks
is not printed here: it is shown as it is.
"""

from __future__ import annotations

import sys
from typing import TextIO

from croupier.model.printable import printable


def print_lines(*lines: str, file: TextIO | None = None) -> None:
    """Print each of `lines` to stdout, or to `file`, with what does not print escaped."""
    text = "".join(f"{printable(line)}\n" for line in lines)
    print(text, end="", file=file or sys.stdout, flush=True)
