"""Lines for people, which may quote agents and frameworks.

Rule: no control character of a peer reaches a terminal. The output of tasks is not printed here:
it is passed on unchanged.
"""

from __future__ import annotations

import sys
from typing import TextIO

from croupier.model.printable import printable


def print_lines(*lines: str, file: TextIO | None = None) -> None:
    """Print `lines` to stdout, or to `file`, with control characters escaped."""
    text = "".join(f"{printable(line)}\n" for line in lines)
    print(text, end="", file=file or sys.stdout, flush=True)
